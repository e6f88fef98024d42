"""A progress bar for operations that take longer than a second, on a terminal only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

PATIENCE_SECONDS: Final = 1.0


@contextmanager
def late_progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function to call with what is done and the total. The bar is removed at the end.

    The total is None where nobody knows it.
    """
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    console = Console(stderr=True)
    with ExitStack() as stack:
        bars: list[Progress] = []

        def tell(done: int, total: int | None) -> None:
            if not bars and console.is_terminal and time.monotonic() - started >= PATIENCE_SECONDS:
                bars.append(stack.enter_context(Progress(console=console, transient=True)))
                bars[0].add_task(what, total=total)
            for bar in bars:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield tell
