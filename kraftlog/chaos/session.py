"""The frame of every command's run: its directory, progress, signals and exit code."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ApiError
from kraftbase.stop_signals import on_stop_signals
from kraftlog.chaos.namespaces import NamespacesUnavailable
from kraftlog.process.logs import configure_logging

SECONDS_PER_MINUTE: Final = 60
MINUTES_DEFAULT: Final = 10.0
WELL: Final = 0
VIOLATED: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130

LINE_SECONDS_TERMINAL: Final = 0.5
LINE_SECONDS_FILE: Final = 10.0


class DirectoryNotEmpty(Exception):
    """A run needs an empty directory. The message names the directory that was given."""


def run_parser(program: str, description: str, *, minutes: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Return a parser with the options that runs have in common. `minutes` is the help of that option."""
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=epilog)
    parser.add_argument("--minutes", type=float, default=MINUTES_DEFAULT, help=minutes)
    parser.add_argument("--seed", type=int, default=1, help="determines the faults, their order and their length")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep all files in this directory; default: only after a failure"
    )
    return parser


class Session:
    """One run of a command. Its directory is removed after a success, unless the user named it."""

    def __init__(self, directory: Path | None, console: Console) -> None:
        """`directory` is None if the user named none. Raises DirectoryNotEmpty."""
        self._is_named = directory is not None
        self._console = console
        self.directory = directory or Path(tempfile.mkdtemp(prefix="kraftlog-chaos-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        if any(self.directory.iterdir()):
            raise DirectoryNotEmpty(f"{self.directory} is not empty; name a new directory")

    def run(self, work: Coroutine[Any, Any, bool], line: Callable[[], str]) -> int:
        """Carry out `work`, which returns whether nothing was violated; show `line` as progress; return an exit code.

        `WELL` (0) and `VIOLATED` (1) are results. With any other code there is no result, and the reason was printed.
        """
        configure_logging("error")
        code = FAILED
        try:
            code = WELL if asyncio.run(_supervised(work, line, self._console)) else VIOLATED
        except NamespacesUnavailable as error:
            self._say(f"error: network namespaces are not available: {error}; use --network proxy")
        except ApiError as error:
            self._say(f"error: {error}; see {self.directory}")
        except (KeyboardInterrupt, asyncio.CancelledError):
            self._say(f"interrupted; the nodes' logs are in {self.directory}")
            code = INTERRUPTED
        if code == WELL and not self._is_named:
            shutil.rmtree(self.directory)
        return code

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


async def _supervised(work: Coroutine[Any, Any, bool], line: Callable[[], str], console: Console) -> bool:
    task = asyncio.current_task()
    if task is not None:
        on_stop_signals(task.cancel)
    progress = asyncio.create_task(_show_progress(line, console))
    try:
        return await work
    finally:
        progress.cancel()
        with suppress(asyncio.CancelledError):
            await progress


async def _show_progress(line: Callable[[], str], console: Console) -> None:
    """Show progress until cancelled: in one line that changes, or in a line from time to time."""
    if console.is_terminal:
        with console.status("starting") as status:
            while True:
                await asyncio.sleep(LINE_SECONDS_TERMINAL)
                status.update(line())
    while True:
        await asyncio.sleep(LINE_SECONDS_FILE)
        console.print(line())
        sys.stdout.flush()
