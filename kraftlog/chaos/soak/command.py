"""`kraftlog chaos soak --minutes 10 --json FILE --plot FILE.svg`: exit code 0 if every bound held, else 1."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from kraftlog.chaos.session import SECONDS_PER_MINUTE, VIOLATED, WELL, Session, run_parser
from kraftlog.chaos.soak.faults import LANES
from kraftlog.chaos.soak.report import figures, plot, print_result, progress_line
from kraftlog.chaos.soak.run import Plan, Soak

OPERATIONS_PER_SECOND: Final = 600.0


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    session = Session(arguments.dir, console)
    plan = Plan(
        seconds=arguments.minutes * SECONDS_PER_MINUTE,
        seed=arguments.seed,
        directory=session.directory,
        operations_per_second=arguments.rate,
        lanes=() if arguments.without_faults else LANES,
    )
    soak = Soak(plan)
    code = session.run(soak.run(), lambda: progress_line(soak))
    if code not in (WELL, VIOLATED):
        return code
    print_result(soak, console)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures(soak), indent=2) + "\n", encoding="utf-8")
    if arguments.plot is not None:
        arguments.plot.write_text(plot(soak), encoding="utf-8")
    if code == VIOLATED:
        console.print(
            f"seed {plan.seed}; what was done is in {plan.directory}/journal.txt, the nodes' logs and data in"
            f" {plan.directory}/cluster",
            markup=False,
        )
    return code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = run_parser(
        "kraftlog chaos soak",
        "Steady load, then faults as well; the resources that each node uses are checked against bounds.",
        minutes="how long in all",
    )
    parser.add_argument(
        "--rate", type=float, default=OPERATIONS_PER_SECOND, metavar="N", help="target operations per second"
    )
    parser.add_argument("--without-faults", action="store_true", help="steady load only: then nobody may be elected")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="plot the bytes on disk over time to this file")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or arguments.rate <= 0:
        parser.error("--minutes and --rate must be above 0")
    return arguments
