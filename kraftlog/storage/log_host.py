"""What a partition's log is given, and what it gives: the directory that it is in, and slices of its files."""

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
"""Called once: with None when the append is durable, else with what to answer."""


class LogHost(Protocol):
    """The log directory that a log is in, as the log sees it."""

    @property
    def offline_reason(self) -> str:
        """Why the directory is not used any more; empty if it is."""
        ...

    def check_online(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the directory is offline."""
        ...

    def acknowledge(self, log: RecordedLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call back when an append that ends at `end_offset` may be acknowledged, as far as this disk is concerned."""
        ...

    def refusal(self, error: BaseException) -> ApiError:
        """What to answer when a file could not be read or written; the directory is offline then, unless it is full."""
        ...

    def partition_damaged(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Bytes of the log have changed on the disk: the partition is offline from now on, and nothing else."""
        ...

    @property
    def full_disk(self) -> FullDisk:
        """How much room the directory has."""
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
        """The machine's clock."""
        ...

    @property
    def records(self) -> DirectoryRecords:
        """What the directory's files say of the log, which changes before the log's own files do."""
        ...

    def note(self, log: RecordedLog) -> None:
        """The log's files are as they shall be: note which they are. Deals with an error of the disk."""
        ...


class LogSlice(NamedTuple):
    """Bytes of a segment's log, with whole batches but perhaps the last one of several.

    `sendfile` can send them as they are. It holds for one turn of the loop: then another file may have the path.
    """

    path: str
    position: int
    byte_count: int
    is_older_segment: bool = False
    """Whether what may be read goes on in a later segment."""
