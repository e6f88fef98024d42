"""What a partition's log is given, and what it gives: the directory that it is in, and slices of its files."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kraftbase.errors import ApiError, CorruptLog
from statemachine.query.partition_descriptions import TopicPartition


class LogHost(Protocol):
    """The log directory that a log is in, as the log sees it."""

    @property
    def offline_reason(self) -> str:
        """Why the directory is not used any more; empty if it is."""
        ...

    def refusal(self, error: BaseException) -> ApiError:
        """What to answer when a file could not be read or written; the directory is offline then, unless it is full."""
        ...

    def partition_damaged(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Bytes of the log have changed on the disk: the partition is offline from now on, and nothing else."""
        ...

    def wall_clock_ms(self) -> int:
        """The machine's clock."""
        ...

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Make durable that the log is known to be flushed up to here only. Raises StorageError."""
        ...

    def save_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Make the log's start durable. Raises StorageError."""
        ...


class LogSlice(NamedTuple):
    """Bytes of a segment's log, with whole batches but perhaps the last one of several.

    `sendfile` can send them as they are.
    """

    path: str
    position: int
    byte_count: int
    is_older_segment: bool = False
    """Whether what may be read goes on in a later segment."""
