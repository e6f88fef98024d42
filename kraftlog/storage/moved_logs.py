"""Logs that were moved by hand from one log directory of a broker to another one, while the broker was down (DB-89).

The inventory of the log's previous directory still has its entry. A startup that opens the log in its new directory
checks the log against that entry, and adds the entry to the new directory's inventory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from kraftbase.errors import FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join
from kraftbase.partition import TopicPartition
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.findings import Known
from kraftlog.storage.formats.inventory import LogEntry
from kraftlog.storage.formats.names import LOG_SUFFIX, directory_name


class InventoriedDirectory(Protocol):
    """A log directory (`kraftlog.storage.log_directory.LogDirectory`)."""

    path: str
    records: DirectoryRecords
    offline_reason: str

    def fail(self, error: BaseException) -> None:
        """Take the directory offline: its disk has failed."""
        ...


@dataclass(slots=True)
class MovedLog:
    """A moved log by the inventory of its previous directory; a `directory_records.RecordedLog`."""

    partition: TopicPartition
    log_start_offset: int
    entry: LogEntry
    was_shut_down_cleanly: bool
    """Whether the previous directory was."""
    high_watermark: int = 0

    @property
    def log_end_offset(self) -> int:
        """The known part of the log ends at its recovery point."""
        return self.recovery_point_to_save

    @property
    def recovery_point_to_save(self) -> int:
        """The offset from which a startup must read the log."""
        return max(0, self.entry.recovery_point)

    @property
    def inventory_key(self) -> tuple[int, ...]:
        """An empty key, which no open log has."""
        return ()

    def inventory_entry(self, topic_id: UUID) -> LogEntry:
        """The entry of the previous inventory."""
        return replace(self.entry, topic_id=topic_id)


def find_moved_logs(
    files: FileSystem, path: str, others: Iterable[tuple[InventoriedDirectory, bool]]
) -> dict[TopicPartition, MovedLog]:
    """Return the logs in the directory at `path` that only the inventories of other directories have.

    `others` are the other directories, each with whether it was shut down cleanly. An unreadable one goes offline.
    Raises StorageError if the directory at `path` is unreadable.
    """
    here = set(files.list_directory(path))
    found: dict[TopicPartition, MovedLog] = {}
    for other, was_shut_down_cleanly in others:
        try:
            for partition in other.records.partitions:
                entry = other.records.entry(partition)
                if entry is None or directory_name(partition) not in here or _has_log(files, other.path, partition):
                    continue
                if partition not in found or found[partition].entry.recovery_point < entry.recovery_point:
                    found[partition] = MovedLog(partition, entry.log_start_offset, entry, was_shut_down_cleanly)
        except (StorageError, FlushFailed) as error:
            other.fail(error)
    return found


def _has_log(files: FileSystem, directory: str, partition: TopicPartition) -> bool:
    path = join(directory, directory_name(partition))
    return files.exists(path) and any(LOG_SUFFIX in name for name in files.list_directory(path))


def take_over(records: DirectoryRecords, known: Known, moved: MovedLog | None) -> Known:
    """Return the recorded state of a log that may have been moved here, before its files are read.

    `records` are those of the log's present directory, and `known` is the state by them. Their inventory overrides the
    previous one; if it has no entry, it gets the previous one, unless the disk is full. Raises StorageError,
    FlushFailed.
    """
    if moved is None or known.entry is not None:
        return known
    if moved.partition not in records.topic_ids:
        records.write_topic_id(moved.partition, moved.entry.topic_id)
    if records.topic_ids[moved.partition] != moved.entry.topic_id:
        return known  # it is of another topic of that name
    with contextlib.suppress(OutOfSpace):  # then only the other inventory has it
        records.record([moved])
    return replace(
        known, entry=moved.entry, recovery_point=moved.recovery_point_to_save,
        log_start_offset=moved.entry.log_start_offset,
        was_shut_down_cleanly=known.was_shut_down_cleanly and moved.was_shut_down_cleanly,
    )  # fmt: skip
