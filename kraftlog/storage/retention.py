"""Decides which segments a log may delete, and by which clock (KIP-405, KIP-950)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from kraftlog.storage.config import UNLIMITED_RETENTION, PartitionLogConfig

CLOCK_TOLERANCE_MS: Final = 60_000
"""A smaller change between the two clocks is not a jump."""

CLOCK_TRIAL_MS: Final = 3_600_000
"""A clock that has jumped ahead is trusted when it has then run steadily for this long."""


class Reason(Enum):
    """Why a segment is deleted, in the order in which the reasons are checked (DB-81)."""

    LOG_START = "it is below the log's start"
    SIZE = "the log is larger than retention.bytes"
    TIME = "it is older than retention.ms"


class SegmentFacts(NamedTuple):
    """A segment, as retention sees it."""

    base_offset: int
    end_offset: int
    """The first offset of the next segment, or the log's end."""
    size_bytes: int
    largest_timestamp_ms: int
    """The largest timestamp of its batches; if they have none, the time at which this process opened the segment."""


class Deletable(NamedTuple):
    """The number of oldest segments that may be deleted, and the reason for the last of them."""

    segment_count: int
    reason: Reason | None


NOTHING: Final = Deletable(0, None)


def deletable(
    segments: Sequence[SegmentFacts],
    config: PartitionLogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Deletable:
    """Return the oldest segments that may be deleted.

    The last segment of the log is among them only if it has records; the caller rolls it first. No segment beyond the
    high watermark is deleted (DB-80). Consider segments of 40, 30 and 30 bytes and retention.bytes 60: the log has 40
    bytes too many, so the first segment is deleted; with 61 none is, since 60 bytes would be too few.
    """
    count, reason = 0, None
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    for segment in segments:
        if segment.end_offset > high_watermark or segment.size_bytes == 0:
            break
        is_last = segment is segments[-1]
        if segment.end_offset <= log_start_offset and not is_last:
            found = Reason.LOG_START
        elif not config.is_deleted:
            break
        elif config.retention_bytes != UNLIMITED_RETENTION and excess_bytes >= segment.size_bytes:
            found = Reason.SIZE
        elif config.retention_ms != UNLIMITED_RETENTION and now_ms - segment.largest_timestamp_ms > config.retention_ms:
            found = Reason.TIME
        else:
            break
        count, reason = count + 1, found
        excess_bytes -= segment.size_bytes
    return Deletable(count, reason)


class RetentionClock:
    """The clock for retention: the machine's wall clock, except just after a jump ahead.

    Kafka uses the wall clock as it is: a clock that is set to next year by mistake empties every topic at the next
    check. Here a jump ahead counts only when the clock has run steadily for an hour after it; a jump back counts at
    once, since it deletes nothing. Jumps are detected by comparison with the monotonic clock, so a clock that is wrong
    before the broker starts is not detected.
    """

    def __init__(self, wall_clock_ms: int, monotonic_ms: float) -> None:
        self._offset_ms = wall_clock_ms - monotonic_ms
        self._on_trial_ms: float | None = None  # the offset after a jump ahead
        self._trial_began_ms = 0.0

    @property
    def is_on_trial(self) -> bool:
        """Whether the wall clock has jumped ahead and is not yet trusted."""
        return self._on_trial_ms is not None

    def now_ms(self, wall_clock_ms: int, monotonic_ms: float) -> int:
        """Return the wall clock time for retention, in milliseconds, given both clocks."""
        offset_ms = wall_clock_ms - monotonic_ms
        if offset_ms <= self._offset_ms + CLOCK_TOLERANCE_MS:
            self._offset_ms, self._on_trial_ms = offset_ms, None
        elif self._on_trial_ms is None or abs(offset_ms - self._on_trial_ms) > CLOCK_TOLERANCE_MS:
            self._on_trial_ms, self._trial_began_ms = offset_ms, monotonic_ms
        elif monotonic_ms - self._trial_began_ms >= CLOCK_TRIAL_MS:
            self._offset_ms, self._on_trial_ms = offset_ms, None
        return int(self._offset_ms + monotonic_ms)
