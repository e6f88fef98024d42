"""Several publishers as one, told in a fixed order, none of which may fail: a broker that misses a change is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from kraftbase.types import Offset
from statemachine.apply.publishers import MetadataPublisher
from statemachine.replay.deltas import MetadataDelta


class InOrder:
    """A publisher of the broker's state machine."""

    def __init__(
        self,
        parts: Sequence[MetadataPublisher],
        on_changed: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_changed` is called after each change that all have taken; `on_failed` with what one has raised."""
        self._parts = tuple(parts)
        self._on_changed = on_changed
        self._on_failed = on_failed

    def stop(self) -> None:
        """Tell nobody anything any more."""
        self._parts = ()

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Begin anew with a whole state."""
        self._each(lambda part: part.on_snapshot(end_offset, metadata))

    def on_delta(self, delta: MetadataDelta) -> None:
        """Take a change over."""
        self._each(lambda part: part.on_delta(delta))

    def _each(self, tell: Callable[[MetadataPublisher], None]) -> None:
        try:
            for part in self._parts:
                tell(part)
            self._on_changed()
        except Exception as error:
            self._on_failed(error)
            raise
