"""`kraftlog chaos soak [--brokers] --minutes 10 --json FILE --plot FILE.svg`: exit code 0 if all bounds held."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rich.console import Console

from kraftlog.chaos.session import SECONDS_PER_MINUTE, VIOLATED, WELL, Session, run_parser
from kraftlog.chaos.soak import report as node_report
from kraftlog.chaos.soak.faults import LANES
from kraftlog.chaos.soak.run import Plan, Soak
from kraftlog.clients.broker_errors import require_confluent_kafka

OPERATIONS_PER_SECOND: Final = 600.0
RECORDS_PER_SECOND: Final = 200.0


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    if arguments.brokers:
        require_confluent_kafka()
    session = Session(arguments.dir, console)
    soak, report = _soak_of(arguments, session.directory)
    code = session.run(soak.run(), lambda: report.progress_line(soak))
    if code not in (WELL, VIOLATED):
        return code
    report.print_result(soak, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.figures(soak), indent=2) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        arguments.plot.write_text(report.plot(soak), encoding="utf-8")
    if code == VIOLATED:
        console.print(
            f"seed {arguments.seed}; the faults are in {session.directory}/journal.txt, the logs and data of all"
            f" processes in {session.directory}/cluster",
            markup=False,
        )
    return code


def _soak_of(arguments: argparse.Namespace, directory: Path) -> tuple[Any, ModuleType]:
    """The run, and the module that reports it."""
    seconds, seed = arguments.minutes * SECONDS_PER_MINUTE, arguments.seed
    if not arguments.brokers:
        rate = OPERATIONS_PER_SECOND if arguments.rate is None else arguments.rate
        lanes = () if arguments.without_faults else LANES
        plan = Plan(seconds=seconds, seed=seed, directory=directory, operations_per_second=rate, lanes=lanes)
        return Soak(plan), node_report
    from kraftlog.chaos.soak.brokers import report, run

    rate = RECORDS_PER_SECOND if arguments.rate is None else arguments.rate
    lanes = () if arguments.without_faults else run.LANES
    return run.BrokersSoak(
        run.Plan(seconds=seconds, seed=seed, directory=directory, records_per_second=rate, lanes=lanes)
    ), report


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = run_parser(
        "kraftlog chaos soak",
        "Steady load, then faults as well; the resources that each node uses are checked against bounds.",
        minutes="length of the whole run",
    )
    parser.add_argument("--brokers", action="store_true", help="with three data brokers, and Kafka clients")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="N",
        help=f"target operations per second, {OPERATIONS_PER_SECOND:g} by default; with --brokers records per second,"
        f" {RECORDS_PER_SECOND:g} by default",
    )
    parser.add_argument("--without-faults", action="store_true", help="steady load only: then no election may happen")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="plot the resources over time to this file")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or (arguments.rate is not None and arguments.rate <= 0):
        parser.error("--minutes and --rate must be above 0")
    return arguments
