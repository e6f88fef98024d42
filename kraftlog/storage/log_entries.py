"""Makes the inventory's entry of a log: the durable part of the log (DB-89)."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from kraftlog.storage.durability import Durability
from kraftlog.storage.formats.inventory import ClosedSegment, LogEntry, new_entry
from kraftlog.storage.producer_history import ProducerHistory
from kraftlog.storage.segment_list import SegmentList


def inventory_entry(
    topic_id: UUID, log_start_offset: int, durability: Durability, segments: SegmentList, producers: ProducerHistory
) -> LogEntry:
    """Return the entry of a log with these parts."""
    if durability.is_new:
        return new_entry(topic_id)
    last_base_offset = durability.durable_base_offset
    closed = tuple(
        ClosedSegment(
            segment.base_offset,
            following.base_offset,
            segment.size_bytes,
            producers.aborted_checksum(segment),
            producers.snapshot_checksum(following.base_offset),
        )
        for segment, following in pairwise(segments.from_offset(log_start_offset))
        if segment.base_offset < last_base_offset
    )
    recovery_point, last = durability.recovery_point_to_save, segments.last
    return LogEntry(
        topic_id, recovery_point, log_start_offset, last_base_offset, closed,
        producers.aborted_checksum(last), last.last_checksum if recovery_point == last.end_offset else 0,
        producers.snapshot_checksum(recovery_point),
    )  # fmt: skip
