"""A progress bar for operations that take longer than a second, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

PATIENCE_SECONDS: Final = 1.0


@contextmanager
def late_progress(what: str, *, is_wanted: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with the amount done and the total, None if the total is unknown. The bar is removed at
    the end. It is drawn on standard error, and only if that is a terminal and `is_wanted`; it leaves standard output
    alone.
    """
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    console = Console(stderr=True)
    can_draw = is_wanted and sys.stderr.isatty() and console.is_terminal
    with ExitStack() as stack:
        bars: list[Progress] = []

        def tell(done: int, total: int | None) -> None:
            if can_draw and not bars and time.monotonic() - started >= PATIENCE_SECONDS:
                # With redirect_stdout, rich would print the command's standard output on standard error.
                bar = Progress(console=console, transient=True, redirect_stdout=False)
                bars.append(stack.enter_context(bar))
                bars[0].add_task(what, total=total)
            for bar in bars:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield tell
