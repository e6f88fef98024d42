"""What is lost of a damaged log of a stopped broker, and how the log continues without it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.files.files import read_whole
from kraftbase.files.posix import PosixFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.runtime import AsyncioRuntime
from kraftbase.uuids import random_uuid
from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.offline.broker_verification import is_log_directory
from kraftlog.storage.accepted_loss import LostOffsets
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.checkpoints import decode_meta
from kraftlog.storage.formats.names import META_NAME, directory_name, partition_in_name
from kraftlog.storage.log_directory import LogDirectory

COLUMNS: Final = ("Partition", "LogDir", "LogStartOffset", "LogEndOffset", "FlushedUpTo", "LostOffsets", "Damage")


@dataclass(frozen=True, slots=True)
class DamagedLogReport:
    """A log, and its lost offsets."""

    partition: TopicPartition
    path: str
    log_start_offset: int
    log_end_offset: int
    flushed_up_to: int
    lost: tuple[LostOffsets, ...]
    damage: str
    """What is damaged; empty if nothing is."""

    @property
    def lost_count(self) -> int:
        """How many offsets are lost."""
        return sum(one.end_offset - one.start_offset for one in self.lost)

    def row(self) -> dict[str, Any]:
        """For a table."""
        lost = ", ".join(f"{one.start_offset} to {one.end_offset - 1}" for one in self.lost)
        values = (
            directory_name(self.partition), self.path, self.log_start_offset, self.log_end_offset, self.flushed_up_to,
            lost, self.damage,
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


def partition_named(name: str) -> TopicPartition:
    """The partition of a name such as orders-0. Raises ConfigurationError."""
    partition = partition_in_name(name)
    if partition is None:
        raise ConfigurationError(f"{name!r} is not a partition; give the topic and the number, such as orders-0")
    return partition


async def examine(directory: Path, partition: TopicPartition) -> DamagedLogReport:
    """What is lost of a partition's log. `directory` is a stopped broker's, or one of its log directories. Changes
    nothing. Raises DirectoryError if a broker uses the directory or it is not a broker's; ConfigurationError if it does
    not have the partition; StorageError.
    """
    with _opened(directory) as log_directory:
        return _report(log_directory, partition)


async def accept_loss(directory: Path, partition: TopicPartition) -> DamagedLogReport:
    """Let a damaged log continue without the lost offsets; the report describes the log before that. Raises as
    `examine`.
    """
    with _opened(directory) as log_directory:
        report = _report(log_directory, partition)
        if report.damage:
            log = log_directory.findings.accept_loss(partition, PartitionLogConfig(), time.time_ns() // 1_000_000)
            log.close()
            log_directory.records.record([log])
        return report


@contextmanager
def _opened(directory: Path) -> Iterator[LogDirectory]:
    """The log directory, locked, without its logs."""
    path = directory / PARTITIONS_NAME if (directory / PARTITIONS_NAME).is_dir() else directory
    if not is_log_directory(path) or not (path / META_NAME).exists():
        raise DirectoryError(
            f"{directory} is not a log directory; name a broker's directory, or the one of its log directories that has"
            " the partition"
        )
    files = PosixFileSystem()
    cluster_id, node_id, _ = decode_meta(read_whole(files, str(path / META_NAME)), str(path / META_NAME))
    with ThreadPoolExecutor(1) as executor:
        log_directory = LogDirectory.open(
            files, str(path), FileHandles(files), AsyncioRuntime(executor), cluster_id=cluster_id, node_id=node_id,
            new_directory_id=random_uuid(),
        )  # fmt: skip
        try:
            yield log_directory
        finally:
            log_directory.release()


def _report(log_directory: LogDirectory, partition: TopicPartition) -> DamagedLogReport:
    found, entry = log_directory.findings.damaged_files(partition), log_directory.records.entry(partition)
    if entry is None and not found.base_offsets:
        raise ConfigurationError(
            f"{log_directory.path} has no log of {directory_name(partition)}, and its inventory lists none"
        )
    lost = tuple(found.losses())
    return DamagedLogReport(
        partition, log_directory.path, 0 if entry is None else entry.log_start_offset, found.end_offset,
        0 if entry is None else entry.recovery_point, lost, found.damage,
    )  # fmt: skip
