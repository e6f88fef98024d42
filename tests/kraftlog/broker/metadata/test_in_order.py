"""Publishers as one, which a broker stops before it closes its logs."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from kraftbase.types import Offset
from kraftlog.broker.metadata.in_order import InOrder
from statemachine.replay.deltas import MetadataDelta


class Noting:
    """Notes up to where it was told."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        self.seen.append(end_offset)

    def on_delta(self, delta: MetadataDelta) -> None:
        raise NotImplementedError


def test_one_that_is_stopped_tells_nobody_anything() -> None:
    failures: list[Exception] = []
    part = Noting()
    both = InOrder((part, part), lambda: None, failures.append)
    with closing(sqlite3.connect(":memory:")) as metadata:
        both.on_snapshot(Offset(1), metadata)
        both.stop()
        both.on_snapshot(Offset(2), metadata)
    assert (part.seen, failures) == ([1, 1], [])
