"""`kraftlog chaos damage --damages 600 --json FILE`: exit code 0 if every damage ended well, otherwise 1."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from kraftlog.chaos.damage.damages import FILE_KINDS, KINDS
from kraftlog.chaos.damage.report import RESULTS_NAME, figures, print_result, progress_line, write_line
from kraftlog.chaos.damage.run import DamageRun, Plan
from kraftlog.chaos.session import FAILED, VIOLATED, WELL, Session

DAMAGES_DEFAULT: Final = 600
DESCRIPTION: Final = """\
Damage one file of a stopped broker (a bit, a cut, a deletion, the same file of another partition, an older copy), start
the voter and three brokers, read everything, and compare it with what was acknowledged; then compare the disks. A
damage ends well if the records are the same, or if the broker names what is wrong and nothing is cut elsewhere."""
EPILOG: Final = """\
Kinds of damage: bit, cut, deletion, swap, 'older copy'. Kinds of files: 'closed .log', 'last .log', .index, .timeindex,
.txnindex, .snapshot, and the names of the others, such as leader-epoch-checkpoint. Exit code: 0 all ended well, 1 not
all did, 2 the run failed."""


def main(words: Sequence[str], console: Console) -> int:
    """Run, report, and keep the directory if there is something to inspect. Raises DirectoryNotEmpty."""
    arguments = _arguments(words)
    is_json = arguments.output == "json"
    told = Console(stderr=True) if is_json else console
    session = Session(arguments.dir, told)
    numbers = range(arguments.first, arguments.first + arguments.damages)
    if arguments.damage is not None:
        numbers = range(arguments.damage, arguments.damage + 1)
    plan = Plan(seed=arguments.seed, numbers=numbers, only=tuple(arguments.only), directory=session.directory)
    run = DamageRun(plan, lambda result: write_line(session.directory / RESULTS_NAME, plan, result))
    try:
        code = session.run(run.run(), lambda: progress_line(run))
    except (OSError, ValueError) as error:
        told.print(f"error: {error}", markup=False)
        code = FAILED
    if code not in (WELL, VIOLATED) and not run.results:
        return code
    text = json.dumps(figures(run), indent=2)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if is_json:
        console.out(text, highlight=False)
    else:
        print_result(run, console)
        if code == VIOLATED:
            console.print(f"the files after the last damage are in {plan.directory}/cluster", markup=False)
    return code


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kraftlog chaos damage",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--damages", type=int, default=DAMAGES_DEFAULT, metavar="N", help="number of damages; default: 600"
    )
    parser.add_argument("--seed", type=int, default=1, help="with a damage's number, determines the damage")
    parser.add_argument("--first", type=int, default=1, metavar="NUMBER", help="number of the first damage")
    parser.add_argument("--damage", type=int, metavar="NUMBER", help="only the damage with this number, to repeat it")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KIND", help="a kind of damage or of file; may be given again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every damage and verdict to this file")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="format of the result")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep all files in this directory; default: only after a failure"
    )
    arguments = parser.parse_args(words)
    if min(arguments.damages, arguments.first, arguments.damage or 1) < 1:
        parser.error("--damages, --first and --damage must be above 0")
    unknown = [kind for kind in arguments.only if kind not in (*KINDS, *FILE_KINDS)]
    if unknown:
        known = ", ".join((*KINDS, *FILE_KINDS))
        parser.error(f"--only {unknown[0]!r} is not a kind of damage or of file; choose from {known}")
    return arguments
