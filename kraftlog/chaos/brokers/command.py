"""`kraftlog chaos brokers --kills 200 --json FILE`: exit code 0 if nothing was violated, 1 if something was."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rich.console import Console

from kraftlog.chaos.brokers.report import figures, print_result, progress_line
from kraftlog.chaos.brokers.run import BrokersRun, Plan
from kraftlog.chaos.session import SECONDS_PER_MINUTE, VIOLATED, WELL, Session, run_parser
from kraftlog.clients.broker_errors import require_confluent_kafka


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    require_confluent_kafka()
    session = Session(arguments.dir, console)
    plan = Plan(
        seconds=arguments.minutes * SECONDS_PER_MINUTE,
        kills=arguments.kills,
        seed=arguments.seed,
        directory=session.directory,
        network=arguments.network,
    )
    run = BrokersRun(plan)
    code = session.run(run.run(), lambda: progress_line(run))
    if code not in (WELL, VIOLATED):
        return code
    print_result(run, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures(run), indent=2) + "\n", encoding="utf-8")
    if code == VIOLATED:
        console.print(
            f"seed {plan.seed}; the faults are in {plan.directory}/journal.txt, the brokers' logs and data, and the"
            f" nodes', in {plan.directory}/cluster",
            markup=False,
        )
    return code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = run_parser(
        "kraftlog chaos brokers",
        "Faults on three voters and three data brokers, while clients record what was acknowledged.",
        minutes="how long faults are injected, at least",
    )
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="continue until brokers were killed N times")
    parser.add_argument(
        "--network", choices=("auto", "namespaces", "loopback"), default="auto", help="how links are cut, if at all"
    )
    arguments = parser.parse_args(words)
    if arguments.minutes < 0 or arguments.kills < 0 or not (arguments.minutes or arguments.kills):
        parser.error("--minutes and --kills must not be below 0, nor both 0")
    return arguments
