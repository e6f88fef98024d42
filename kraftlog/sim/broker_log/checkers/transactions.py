"""The last stable offset of a log, by a scan of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftlog.sim.broker_log.checkers.batches import Batch
from kraftlog.sim.broker_log.checkers.rules import DECIDED
from kraftlog.sim.engine.violation import Violation


class StableView(NamedTuple):
    """What a broker reports about a log."""

    log_start: int
    high_watermark: int
    last_stable: int


def check_last_stable(name: str, batches: Sequence[Batch], view: StableView) -> None:
    """Check that the last stable offset passes no undecided transaction and waits for no other.

    A transaction is undecided if it is open or its marker is not committed. If records were deleted, one of them may
    have belonged to an open transaction; then the last stable offset may be the log's start. Raises Violation.
    """
    begun: dict[int, int] = {}  # producers to first offsets
    undecided: list[int] = []
    for batch in batches:
        if batch.is_of_transaction:
            begun.setdefault(batch.producer_id, batch.base_offset)
        elif batch.is_marker:
            first_offset = begun.pop(batch.producer_id, None)
            if first_offset is not None and batch.base_offset >= view.high_watermark:
                undecided.append(first_offset)
    undecided += begun.values()
    found = min(max(view.log_start, min(undecided, default=view.high_watermark)), view.high_watermark)
    is_deleted = not batches or batches[0].base_offset > 0
    if view.last_stable != found and not (is_deleted and view.last_stable == view.log_start < found):
        raise Violation(
            f"{DECIDED}: {name}: its last stable offset is {view.last_stable}, a scan finds {found}; the log starts at"
            f" {view.log_start}, the high watermark is {view.high_watermark}, undecided from {sorted(undecided)}"
        )
