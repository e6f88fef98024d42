"""Several publishers as one, called in a fixed order. None may fail, because a broker that misses a change is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from kraftbase.types import Offset
from statemachine.apply.publishers import MetadataPublisher
from statemachine.replay.deltas import MetadataDelta


class InOrder:
    """A publisher of the broker's state machine that calls others."""

    def __init__(
        self,
        parts: Sequence[MetadataPublisher],
        on_changed: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_changed` is called after each change that all have applied; `on_failed` with the error of one."""
        self._parts = tuple(parts)
        self._on_changed = on_changed
        self._on_failed = on_failed

    def stop(self) -> None:
        """Call no publisher from now on."""
        self._parts = ()

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Pass on a complete state, from which publishers start again."""
        self._each(lambda part: part.on_snapshot(end_offset, metadata))

    def on_delta(self, delta: MetadataDelta) -> None:
        """Pass on a change."""
        self._each(lambda part: part.on_delta(delta))

    def _each(self, tell: Callable[[MetadataPublisher], None]) -> None:
        try:
            for part in self._parts:
                tell(part)
            self._on_changed()
        except Exception as error:
            self._on_failed(error)
            raise
