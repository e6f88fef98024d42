"""Reads the disks of a stopped broker into a report, without changing them.

Each log is read from its recovery point on, as by a start after a crash: only a start may truncate a torn tail, but
both find the same log end offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from kraftbase.errors import CorruptLog, DirectoryError
from kraftbase.files.files import FileSystem, join, read_whole
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.offline.adoption.broker_report import BrokerReport, ReportedLog
from kraftlog.storage.directory_checkpoints import DirectoryCheckpoints
from kraftlog.storage.epoch_file import read_epochs
from kraftlog.storage.findings import Known, lost_end, missing_segments
from kraftlog.storage.formats.checkpoints import decode_meta, decode_partition_metadata
from kraftlog.storage.formats.inventory import LogEntry
from kraftlog.storage.formats.names import (
    DAMAGED_SUFFIX,
    LOCK_NAME,
    LOG_SUFFIX,
    META_NAME,
    PARTITION_METADATA_NAME,
    directory_name,
    file_name,
    partition_in_name,
)
from kraftlog.storage.inventory import Inventory
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.loading import segment_offsets
from kraftlog.storage.recovery import SegmentScan
from kraftlog.storage.registered_epoch import registered_epoch
from raft.storage.directory import METADATA_DATABASE_NAME, DataDirectory, DirectoryIdentity
from statemachine.tables.database import DamagedDatabase, open_reader

NO_METADATA: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class LogDirectoryIdentity:
    """The owner of a log directory."""

    path: str
    cluster_id: str
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class StoppedBroker:
    """A broker's directories, locked."""

    files: FileSystem
    path: str
    identity: DirectoryIdentity
    log_directories: tuple[LogDirectoryIdentity, ...]


@contextmanager
def stopped_broker(files: FileSystem, path: str, log_paths: Sequence[str]) -> Iterator[StoppedBroker]:
    """The broker with its own directory at `path`, which cannot start within the block.

    Raises DirectoryError if a process uses one of the directories, or a directory is not this broker's; StorageError.
    """
    with ExitStack() as locks:
        own = locks.enter_context(DataDirectory.open(files, path))
        found = []
        for log_path in log_paths:
            if not files.exists(join(log_path, META_NAME)):
                raise DirectoryError(
                    f"{log_path} is not a log directory of a broker: it has no {META_NAME}; name the directories of"
                    " `brokers run` --log-dir"
                )
            lock = files.try_lock(join(log_path, LOCK_NAME))
            if lock is None:
                raise DirectoryError(f"{log_path} is in use by another process; stop the broker first")
            locks.enter_context(closing(lock))
            found.append(_identity(files, log_path, own.identity))
        yield StoppedBroker(files, path, own.identity, tuple(found))


def _identity(files: FileSystem, path: str, owner: DirectoryIdentity) -> LogDirectoryIdentity:
    meta_path = join(path, META_NAME)
    try:
        cluster_id, broker_id, directory_id = decode_meta(read_whole(files, meta_path), meta_path)
    except MalformedBytes as error:
        raise DirectoryError(f"{error}. Restore the file: it identifies the owner of the data in {path}") from None
    if broker_id != owner.node_id:
        raise DirectoryError(f"{path} is of broker {broker_id}, not of broker {owner.node_id}")
    return LogDirectoryIdentity(path, cluster_id, directory_id)


def read_broker(broker: StoppedBroker) -> BrokerReport:
    """Raises StorageError for a file that cannot be read, CorruptLog for a log of which the topic is not known."""
    end_offset, epoch = _applied(Path(broker.path) / METADATA_DATABASE_NAME)
    logs: list[ReportedLog] = []
    for directory in broker.log_directories:
        end_offset = max(end_offset, registered_epoch(broker.files, directory.path) + 1)
        logs += _logs(broker.files, directory)
    return BrokerReport(
        broker_id=broker.identity.node_id,
        cluster_id=broker.identity.cluster_id,
        metadata_end_offset=end_offset,
        metadata_epoch=epoch,
        directory_ids=tuple(directory.directory_id for directory in broker.log_directories),
        logs=tuple(logs),
    )


def _applied(path: Path) -> tuple[int, int]:
    """End offset and epoch of the metadata in a broker's database. A broker without a database has seen nothing. If the
    database is corrupt, the broker's last registration is enough: far more offsets are skipped than can follow it.
    """
    if not path.exists():
        return NO_METADATA
    try:
        with closing(open_reader(path)) as metadata:
            end_offset, epoch = metadata.execute("SELECT end_offset, epoch FROM applied").fetchone() or NO_METADATA
            return int(end_offset), int(epoch)
    except DamagedDatabase:
        return NO_METADATA


def _logs(files: FileSystem, directory: LogDirectoryIdentity) -> Iterator[ReportedLog]:
    inventory = Inventory.read(files, directory.path, directory.directory_id)
    checkpoints = DirectoryCheckpoints(files, directory.path)
    checkpoints.read(has_inventory=bool(inventory.entries))
    for name in files.list_directory(directory.path):
        partition = partition_in_name(name)
        if partition is None:
            continue
        entry = inventory.entries.get(partition)
        known = Known(
            recovery_point=checkpoints.recovery_points.get(partition, 0),
            log_start_offset=checkpoints.log_starts.get(partition, 0),
        )
        topic_id = _topic_id(files, directory.path, partition, entry)
        if entry is not None and entry.topic_id == topic_id:
            known = Known(
                recovery_point=max(0, entry.recovery_point), log_start_offset=entry.log_start_offset, entry=entry
            )
        if topic_id is not None:
            yield _LogScan(files, directory, partition, known).report(topic_id)
    yield from _missing_logs(files, directory, inventory)


# Consider a log directory from which one log was removed by hand. The broker's start finds the log damaged (DB-89): it
# is not a replica that never had records.
def _missing_logs(files: FileSystem, directory: LogDirectoryIdentity, inventory: Inventory) -> Iterator[ReportedLog]:
    """The logs that were flushed here, and whose directories no longer exist."""
    found = set(map(partition_in_name, files.list_directory(directory.path)))
    for partition, entry in inventory.entries.items():
        if partition not in found and not entry.is_new:
            yield ReportedLog(
                topic=partition.topic,
                partition_id=partition.partition_id,
                topic_id=entry.topic_id,
                directory_id=directory.directory_id,
                log_start_offset=entry.log_start_offset,
                log_end_offset=entry.recovery_point,
                last_epoch=UNKNOWN_EPOCH,
                latest_epoch=UNKNOWN_EPOCH,
                is_damaged=True,
            )


def _topic_id(files: FileSystem, directory: str, partition: TopicPartition, entry: LogEntry | None) -> UUID | None:
    """The id of a log's topic; None if the log was being made, or deleted. Raises CorruptLog."""
    path = join(join(directory, directory_name(partition)), PARTITION_METADATA_NAME)
    if files.exists(path):
        try:
            return decode_partition_metadata(read_whole(files, path), path)
        except MalformedBytes as error:
            if entry is None:
                raise CorruptLog(f"{error}. Restore the file: it identifies the topic of these records") from None
    return None if entry is None else entry.topic_id


class _LogScan:
    """Reads one log."""

    def __init__(
        self, files: FileSystem, directory: LogDirectoryIdentity, partition: TopicPartition, known: Known
    ) -> None:
        self._files = files
        self._directory = directory
        self._partition = partition
        self._known = known
        self._path = join(directory.path, directory_name(partition))

    def report(self, topic_id: UUID) -> ReportedLog:
        names = self._files.list_directory(self._path)
        base_offsets = segment_offsets(names)
        entries = read_epochs(self._files, self._path)
        epochs, noted = LeaderEpochs(entries or ()), LeaderEpochs(entries or ())
        first = 0
        if entries is not None:
            first = max(0, sum(base <= self._known.recovery_point for base in base_offsets) - 1)
        # As a start does: the file may lack the last appends, and still have records that were truncated earlier.
        epochs.truncate_end(base_offsets[first] if base_offsets else 0)
        reason = self._missing(names, base_offsets)
        end_offset = self._known.log_start_offset
        try:
            for index in range(first, len(base_offsets)):
                scan = self._scan(base_offsets, index, epochs)
                end_offset = max(end_offset, scan.end_offset)
                if scan.end_position < scan.file_bytes:
                    break  # a start truncates the log there
        except CorruptLog as error:
            reason = reason or str(error)
        start_offset = max(self._known.log_start_offset, base_offsets[0] if base_offsets else 0)
        last_epoch = epochs.epoch_of(end_offset - 1)
        is_damaged = bool(reason or lost_end(self._known, end_offset))
        if is_damaged:  # the last known log end offset: the log may have had records that no other log has
            end_offset = max(end_offset, self._known.recovery_point, base_offsets[-1] if base_offsets else 0)
            last_epoch = max(last_epoch, noted.epoch_of(end_offset - 1))
        elif start_offset == end_offset:
            last_epoch = max(last_epoch, noted.epoch_of(end_offset))  # retention deleted its last record
        return ReportedLog(
            topic=self._partition.topic,
            partition_id=self._partition.partition_id,
            topic_id=topic_id,
            directory_id=self._directory.directory_id,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            last_epoch=last_epoch,
            latest_epoch=max(noted.latest, epochs.latest),
            is_damaged=is_damaged,
        )

    def _scan(self, base_offsets: Sequence[int], index: int, epochs: LeaderEpochs) -> SegmentScan:
        """Read a segment, and note its epochs. Raises CorruptLog if it is damaged."""
        scan = SegmentScan(self._files, self._segment_path(base_offsets[index]), base_offsets[index])
        for place in scan.batches():
            if place.header.leader_epoch > epochs.latest:
                epochs.assign(place.header.leader_epoch, place.header.base_offset)
        later = base_offsets[index + 1 :]
        scan.check_tail(
            self._known.recovery_point,
            is_last=not later,
            has_valid_successor=any(map(self._has_valid_batch, later)),
        )
        return scan

    def _has_valid_batch(self, base_offset: int) -> bool:
        scan = SegmentScan(self._files, self._segment_path(base_offset), base_offset)
        return next(scan.batches(), None) is not None

    def _missing(self, names: Sequence[str], base_offsets: Sequence[int]) -> str:
        if any(name.endswith(DAMAGED_SUFFIX) for name in names):
            return "a segment was set aside"
        if self._known.entry is None:
            return ""
        return missing_segments(self._known.entry, {base: self._size_of(base) for base in base_offsets})

    def _size_of(self, base_offset: int) -> int:
        with closing(self._files.open_to_read(self._segment_path(base_offset))) as file:
            return file.size()

    def _segment_path(self, base_offset: int) -> str:
        return join(self._path, file_name(base_offset, LOG_SUFFIX))
