"""The log directory as a partition's log sees it, and slices of log files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kraftbase.errors import ApiError, CorruptLog
from kraftbase.partition import TopicPartition

if TYPE_CHECKING:
    from kraftlog.storage.batch_records import InflationMemory
    from kraftlog.storage.directory_records import DirectoryRecords, RecordedLog
    from kraftlog.storage.full_disk import FullDisk
    from kraftlog.storage.plain_records import PlainRecords


OnDurable = Callable[[ApiError | None], None]
"""Called once: with None when the append is durable, else with the error to answer."""


class LogHost(Protocol):
    """The log directory as a log in it sees it."""

    @property
    def offline_reason(self) -> str:
        """Why the directory is offline; empty if it is online."""
        ...

    def check_online(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the directory is offline."""
        ...

    def acknowledge(self, log: RecordedLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when an append that ends at `end_offset` is as durable as its config requires."""
        ...

    def refusal(self, error: BaseException) -> ApiError:
        """Apply the consequences of a file error; return the ApiError to raise.

        The directory goes offline, except for a lack of room.
        """
        ...

    def partition_damaged(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Take a partition with a damaged log offline, and only that one."""
        ...

    @property
    def full_disk(self) -> FullDisk:
        """The free room of the directory."""
        ...

    @property
    def inflation(self) -> InflationMemory:
        """The memory of the batches that the broker is reading."""
        ...

    @property
    def plain(self) -> PlainRecords:
        """Reads small batches that are not compressed."""
        ...

    def wall_clock_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        ...

    @property
    def records(self) -> DirectoryRecords:
        """The directory's records of its logs; they change before a log's own files do."""
        ...

    def record_files(self, log: RecordedLog) -> None:
        """Record the durable state of a log in the inventory. An error of the disk takes the directory offline."""
        ...


class LogSlice(NamedTuple):
    """A range of bytes in a segment's `.log`; it begins with a whole batch, and may end within a later one.

    `sendfile` can send the bytes as they are. A slice is valid for one turn of the loop: later another file may have
    the path.
    """

    path: str
    position: int
    byte_count: int
    is_older_segment: bool = False
    """Whether the readable records continue in a later segment."""
