"""`kraftlog chaos --minutes 10 --seed 1 --json FILE`: exit code 0 if nothing was violated, 1 if something was."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from kraftlog.chaos.report import print_result, progress_line, write_json
from kraftlog.chaos.run import Plan, Run
from kraftlog.chaos.session import SECONDS_PER_MINUTE, VIOLATED, WELL, Session, run_parser


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    session = Session(arguments.dir, console)
    plan = Plan(
        seconds=arguments.minutes * SECONDS_PER_MINUTE,
        seed=arguments.seed,
        directory=session.directory,
        voters=arguments.voters,
        network=arguments.network,
    )
    run = Run(plan)
    code = session.run(run.run(), lambda: progress_line(run))
    if code not in (WELL, VIOLATED):
        return code
    print_result(run, console)
    if arguments.json is not None:
        write_json(arguments.json, run)
    if code == VIOLATED:
        console.print(
            f"seed {plan.seed}; the faults are in {plan.directory}/journal.txt, the clients' history in"
            f" {plan.directory}/history.jsonl, the nodes' logs and data in {plan.directory}/cluster",
            markup=False,
        )
    return code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = run_parser(
        "kraftlog chaos",
        "Faults on a cluster of real processes.",
        minutes="how long faults are injected",
        epilog="Other runs: kraftlog chaos brokers, damage, soak and full-disks; each has --help.",
    )
    parser.add_argument("--voters", type=int, default=5, help="number of voters, in addition to one observer")
    parser.add_argument("--network", choices=("auto", "namespaces", "proxy"), default="auto", help="how links are cut")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or arguments.voters < 1:
        parser.error("--minutes and --voters must be above 0")
    return arguments
