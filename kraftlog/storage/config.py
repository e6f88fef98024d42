"""The settings of one partition's log: the topic's configs, with the broker's values as defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ConfigurationError

NO_LIMIT: Final = 2**63 - 1
UNLIMITED_RETENTION: Final = -1
DAY_MS: Final = 86_400_000
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLogConfig:
    """Kafka's keys and defaults; the last two keys are our own. Raises ConfigurationError if one is out of range."""

    segment_bytes: int = 1024**3
    """`segment.bytes`: the size at which the log rolls to a new segment. One append goes into one segment."""
    segment_ms: int = 7 * DAY_MS
    """`segment.ms`: the span of timestamps in a segment at which the log rolls."""
    segment_jitter_ms: int = 0
    """`segment.jitter.ms`: the most by which `segment_ms` is reduced, at random for each segment."""
    segment_index_bytes: int = 10 * 1024**2
    """`segment.index.bytes`: an index of this size is full, and the log rolls."""
    index_interval_bytes: int = 4096
    """`index.interval.bytes`: the indexes get about one entry for this many bytes of the log."""
    max_message_bytes: int = 1024**2 + 12
    """`max.message.bytes`: the largest batch that a client may append."""
    has_log_append_time: bool = False
    """`message.timestamp.type` is LogAppendTime: batches of clients get the broker's time."""
    timestamp_before_max_ms: int = NO_LIMIT
    """`message.timestamp.before.max.ms`: how far behind the broker's clock a client's timestamp may be."""
    timestamp_after_max_ms: int = 3_600_000
    """`message.timestamp.after.max.ms`: how far ahead of the broker's clock a client's timestamp may be."""
    retention_ms: int = 7 * DAY_MS
    """`retention.ms`: segments whose timestamps are all older may be deleted; -1 keeps all."""
    retention_bytes: int = UNLIMITED_RETENTION
    """`retention.bytes`: the oldest segments are deleted while the rest is at least this large; -1 keeps all."""
    is_deleted: bool = True
    """`cleanup.policy` has `delete`: retention by time and size applies."""
    is_compacted: bool = False
    """`cleanup.policy` has `compact`: there may be gaps in the offsets between segments."""
    flush_messages: int = NO_LIMIT
    """`flush.messages`: flush after this many offsets."""
    flush_ms: int = NO_LIMIT
    """`flush.ms`: flush appends that are this old."""
    preallocates: bool = False
    """`preallocate`: a new segment's file gets its whole size at once; it is cut to its content when it is closed."""
    flush_before_ack: bool = True
    """`flush.before.ack`, by default the broker's `log.flush.before.ack`: appends are flushed before they are
    acknowledged."""
    validates_records: bool = True
    """`validate.records`, by default the broker's `log.validate.records`: clients' records are read before appends."""

    @property
    def is_flushed(self) -> bool:
        """Whether the broker flushes appends itself, instead of leaving that to the operating system."""
        return self.flush_before_ack or self.flush_messages != NO_LIMIT or self.flush_ms != NO_LIMIT

    def __post_init__(self) -> None:
        bounds = {
            "segment_bytes": (14, _INT32_MAX),
            "segment_ms": (1, NO_LIMIT),
            "segment_jitter_ms": (0, NO_LIMIT),
            "segment_index_bytes": (24, _INT32_MAX),
            "index_interval_bytes": (0, _INT32_MAX),
            "max_message_bytes": (0, _INT32_MAX),
            "timestamp_before_max_ms": (0, NO_LIMIT),
            "timestamp_after_max_ms": (0, NO_LIMIT),
            "retention_ms": (UNLIMITED_RETENTION, NO_LIMIT),
            "retention_bytes": (UNLIMITED_RETENTION, NO_LIMIT),
            "flush_messages": (1, NO_LIMIT),
            "flush_ms": (0, NO_LIMIT),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigurationError(f"{name} is {value}; it must be at least {low} and at most {high}")
