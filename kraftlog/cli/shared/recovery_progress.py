"""A progress bar for a broker that recovers its logs for longer than a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftlog.cli.shared.progress import late_progress

if TYPE_CHECKING:
    from kraftlog.storage.loading import RecoveryProgress


@contextmanager
def recovery_progress() -> Iterator[Callable[[RecoveryProgress], None]]:
    """Yield a function to call with the progress of a partition's recovery."""
    with late_progress("Recovering logs") as tell:

        def on_progress(progress: RecoveryProgress) -> None:
            tell(progress.segments_read, progress.segments_to_read)

        yield on_progress
