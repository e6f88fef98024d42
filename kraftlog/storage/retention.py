"""Which segments a log may delete, and by which clock (KIP-405, KIP-950)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from kraftlog.storage.config import UNLIMITED_RETENTION, PartitionLogConfig

CLOCK_TOLERANCE_MS: Final = 60_000
"""A clock that is off by less has not jumped."""

CLOCK_TRIAL_MS: Final = 3_600_000
"""A clock that has jumped ahead is believed when it has gone on evenly for that long."""


class Reason(Enum):
    """Why a segment is deleted, in the order in which reasons are looked for (DB-81)."""

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
    """The largest of its batches; if they have none, the time since when this process knows the segment."""


class Deletable(NamedTuple):
    """The oldest segments that may go, and why the last of them may."""

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
    """The oldest segments that may go. The last segment is among them only if it has records; it is rolled first.

    Nothing beyond the high watermark goes (DB-80). Consider segments of 40, 30 and 30 bytes and retention.bytes 60: the
    log has 40 bytes too many, so the first one goes; with 61 none does, since then less than that would be left.
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
    """The time by which retention deletes: the machine's clock, but not if that has just jumped ahead.

    Kafka deletes by the machine's clock as it is: a clock that is set to next year by mistake empties every topic at
    its next look. Here a jump ahead counts only when the clock has kept to it for an hour, and a jump back counts at
    once, since it deletes nothing. Within a run jumps are told by the monotonic clock. A clock that is wrong before the
    broker starts cannot be told from one that is right.
    """

    def __init__(self, wall_clock_ms: int, monotonic_ms: float) -> None:
        self._offset_ms = wall_clock_ms - monotonic_ms
        self._on_trial_ms: float | None = None  # another offset
        self._trial_began_ms = 0.0

    @property
    def is_on_trial(self) -> bool:
        """Whether the machine's clock has jumped ahead and is not believed yet."""
        return self._on_trial_ms is not None

    def now_ms(self, wall_clock_ms: int, monotonic_ms: float) -> int:
        """The time to delete by, given both clocks."""
        offset_ms = wall_clock_ms - monotonic_ms
        if offset_ms <= self._offset_ms + CLOCK_TOLERANCE_MS:
            self._offset_ms, self._on_trial_ms = offset_ms, None
        elif self._on_trial_ms is None or abs(offset_ms - self._on_trial_ms) > CLOCK_TOLERANCE_MS:
            self._on_trial_ms, self._trial_began_ms = offset_ms, monotonic_ms
        elif monotonic_ms - self._trial_began_ms >= CLOCK_TRIAL_MS:
            self._offset_ms, self._on_trial_ms = offset_ms, None
        return int(self._offset_ms + monotonic_ms)
