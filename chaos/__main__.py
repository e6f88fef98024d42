"""`python -m chaos --minutes 10 --seed 1 --json FILE`: exit code 0 if nothing was violated, 1 if something was."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from chaos.namespaces import NamespacesUnavailable
from chaos.report import print_result, show_progress, write_json
from chaos.run import Plan, Run
from kraftlog.logs import configure_logging
from raft.core.errors import ProtocolError

SECONDS_PER_MINUTE = 60
INTERRUPTED = 130


def main() -> int:
    """Run, report, and keep the directory if something is to be looked at."""
    arguments = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="kraftlog-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        console.print(f"error: {directory} is not empty; name a new directory", markup=False)
        return 2
    plan = Plan(
        seconds=arguments.minutes * SECONDS_PER_MINUTE,
        seed=arguments.seed,
        directory=directory,
        voters=arguments.voters,
        network=arguments.network,
    )
    configure_logging("error")
    run = Run(plan)
    is_well = False
    try:
        is_well = asyncio.run(_run(run, console))
    except NamespacesUnavailable as error:
        console.print(f"error: network namespaces cannot be had: {error}; use --network proxy", markup=False)
        return 2
    except ProtocolError as error:
        console.print(f"error: {error}; see {directory}", markup=False)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(f"interrupted; the nodes' logs are in {directory}", markup=False)
        return INTERRUPTED
    finally:
        if is_well and arguments.dir is None:
            shutil.rmtree(directory)
    print_result(run, console)
    if arguments.json is not None:
        write_json(arguments.json, run)
    if not is_well:
        console.print(
            f"seed {plan.seed}; what was done is in {directory}/journal.txt, what clients remember in"
            f" {directory}/history.jsonl, the nodes' logs and data in {directory}/cluster",
            markup=False,
        )
    return 0 if is_well else 1


async def _run(run: Run, console: Console) -> bool:
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    progress = asyncio.create_task(show_progress(run, console))
    try:
        return await run.run()
    finally:
        progress.cancel()
        with suppress(asyncio.CancelledError):
            await progress


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Faults on a cluster of real processes.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are made")
    parser.add_argument("--seed", type=int, default=1, help="decides which faults come when, and for how long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep everything there; else it is kept on failure only"
    )
    parser.add_argument("--voters", type=int, default=5, help="how many nodes vote; there is one observer besides")
    parser.add_argument("--network", choices=("auto", "namespaces", "proxy"), default="auto", help="how links are cut")
    arguments = parser.parse_args()
    if arguments.minutes <= 0 or arguments.voters < 1:
        parser.error("--minutes and --voters must be above 0")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
