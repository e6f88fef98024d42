"""The progress of a broker that recovers its logs, above a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftlog.cli.shared.progress import late_progress

if TYPE_CHECKING:
    from kraftlog.storage.loading import RecoveryProgress


@contextmanager
def recovery_progress() -> Iterator[Callable[[RecoveryProgress], None]]:
    """Yields a function to call with how far the recovery of a partition is."""
    with late_progress("Recovering logs") as tell:

        def on_progress(progress: RecoveryProgress) -> None:
            tell(progress.segments_read, progress.segments_to_read)

        yield on_progress
