"""One log directory of a broker (`log.dirs`): its lock and identity, its checkpoints, and the logs in it.

    DIR/.lock                               held while a broker uses it
    DIR/meta.properties                     cluster, broker and directory id
    DIR/.kafka_cleanshutdown                there while the broker is down after a clean shutdown
    DIR/kraftlog-inventory                  what a start compares the logs with; our own
    DIR/recovery-point-offset-checkpoint    how far each log is known to be flushed
    DIR/log-start-offset-checkpoint         where each log starts
    DIR/replication-offset-checkpoint       what of each log is committed
    DIR/TOPIC-PARTITION/                    one log

A directory whose disk fails is offline until the broker is started again: nothing of it is read or written any more,
and every request for its partitions is KAFKA_STORAGE_ERROR. One that is full refuses appends, and takes them when there
is room.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, CorruptLog, DirectoryError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, Lock, join, read_whole, write_new_file
from kraftlog.broker.log.accepted_loss import DamagedFiles
from kraftlog.broker.log.batch_records import InflationMemory
from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log.damage import DamagedLog, DamagedSegment, set_segment_aside
from kraftlog.broker.log.directory_records import DirectoryRecords, RecordedLog
from kraftlog.broker.log.due_flushes import DueFlushes
from kraftlog.broker.log.file_handles import FileHandles
from kraftlog.broker.log.findings import Finding, Known, LogFiles, assess
from kraftlog.broker.log.formats.checkpoints import decode_meta, encode_meta, encode_partition_metadata
from kraftlog.broker.log.formats.names import (
    CLEAN_SHUTDOWN_NAME,
    LOCK_NAME,
    LOG_SUFFIX,
    META_NAME,
    PARTITION_METADATA_NAME,
    deleted_directory_name,
    directory_name,
    is_any_stray_directory,
    is_deleted_directory,
    is_stray_directory,
    partition_in_name,
    stray_directory_name,
)
from kraftlog.broker.log.full_disk import FullDisk
from kraftlog.broker.log.group_commit import GroupCommit, OnDurable
from kraftlog.broker.log.inventory import decode_clean_shutdown
from kraftlog.broker.log.loading import Loader, RecoveryProgress
from kraftlog.broker.log.moved_logs import MovedLog, take_over
from kraftlog.broker.log.partition_log import PartitionLog
from kraftlog.kafka.errors import MalformedBytes
from raft.shell.runtime import Runtime
from statemachine.query.partition_descriptions import TopicPartition

logger = structlog.get_logger(__name__)


STRAYS_NAMED: Final = 5


def _no_progress(_: RecoveryProgress) -> None:
    """Nobody looks."""


class LogDirectory:
    """One directory. For one thread; use `open`."""

    def __init__(
        self, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, lock: Lock, directory_id: UUID,
        records: DirectoryRecords, inflation: InflationMemory,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The logs that are online."""
        self.inflation = inflation
        """The memory of the batches that the broker is reading."""
        self.records = records
        """What its own files say of its logs."""
        self.damaged: dict[TopicPartition, str] = {}
        """The partitions that are offline because of damage, and what was found."""
        self._damaged_at_start: set[TopicPartition] = set()
        self.moved_here: Mapping[TopicPartition, MovedLog] = {}
        """The logs here that were in another directory of the broker before; to be set before `load`."""
        self.offline_reason = ""
        """Why nothing of the directory is used any more; empty if it is."""
        self.on_lost: Callable[[], object] = lambda: None
        """Called when the directory, or a partition in it, has gone offline."""
        self._full_disk = FullDisk(path)
        self.commits = GroupCommit(runtime, self.refusal, self.note)
        self._due_flushes = DueFlushes(runtime, self.commits)
        self._files = files
        self._handles = handles
        self._runtime = runtime
        self._lock = lock

    @classmethod
    def open(
        cls, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, *, cluster_id: str, node_id: int,
        new_directory_id: UUID, inflation: InflationMemory | None = None,
    ) -> LogDirectory:  # fmt: skip
        """Lock it and read what it is; a directory without `meta.properties` becomes this broker's.

        Raises DirectoryError if another process uses it, or it is another cluster's or broker's; StorageError.
        """
        files.make_directories(path)
        lock = files.try_lock(join(path, LOCK_NAME))
        if lock is None:
            raise DirectoryError(f"{path} is in use by another process; stop that one first")
        try:
            directory_id = _identify(files, path, cluster_id, node_id, new_directory_id)
            records = DirectoryRecords.read(files, path, directory_id)
        except BaseException:
            lock.close()
            raise
        return cls(files, path, handles, runtime, lock, directory_id, records, inflation or InflationMemory())

    @property
    def clean_broker_epoch(self) -> int | None:
        """The broker's epoch at its clean shutdown, if that was the last one; to be read before `load` (KIP-966)."""
        path = join(self.path, CLEAN_SHUTDOWN_NAME)
        if not self._files.exists(path):
            return None
        return decode_clean_shutdown(read_whole(self._files, path))

    # --- logs ---------------------------------------------------------------------------------------------------------

    def load(
        self,
        config_of: Callable[[TopicPartition], PartitionLogConfig],
        now_ms: int,
        on_progress: Callable[[RecoveryProgress], None] = _no_progress,
    ) -> None:
        """Open every log that is there. One that is damaged is left offline. Raises StorageError, FlushFailed."""
        self.records.start()
        names = self._files.list_directory(self.path)
        strays = [name for name in names if is_any_stray_directory(name)]
        if strays:
            logger.warning(
                "logs that were set aside are kept: delete those that are not needed", path=self.path,
                count=len(strays), first=strays[:STRAYS_NAMED],
            )  # fmt: skip
        for name in names:
            partition = partition_in_name(name)
            if partition is not None:
                self._load_one(partition, config_of(partition), now_ms, on_progress)
        self._lower_high_watermarks()
        self.records.begin(self.logs)

    def _lower_high_watermarks(self) -> None:
        """Take what a crash has taken from the logs from the checkpoint, too (DB-24).

        Consider one of 10, and a log that ends at 6 after the power was lost: it gets two other records, and the power
        is lost again. These are not committed.
        """
        kept = {}
        for partition, offset in self.records.high_watermarks.items():
            log = self.logs.get(partition)
            if log is not None or partition in self.damaged:
                kept[partition] = offset if log is None else min(offset, log.log_end_offset)
        with contextlib.suppress(OutOfSpace):  # nor is there room for other records, and then for a checkpoint
            self.records.save_high_watermarks(kept)

    def _load_one(
        self, partition: TopicPartition, config: PartitionLogConfig, now_ms: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> None:  # fmt: skip
        path = join(self.path, directory_name(partition))
        names = self._files.list_directory(path)
        if PARTITION_METADATA_NAME not in names and not any(name.endswith(LOG_SUFFIX) for name in names):
            return  # it was being made, or deleted
        try:
            known = take_over(self.records, self.records.known(partition, names), self.moved_here.get(partition))
            self._open_log(partition, known, config, now_ms, on_progress)
        except CorruptLog as error:
            self.partition_damaged(partition, error)
            self._damaged_at_start.add(partition)

    def _open_log(
        self, partition: TopicPartition, known: Known, config: PartitionLogConfig, now_ms: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> PartitionLog:  # fmt: skip
        path = join(self.path, directory_name(partition))
        about_to_start_over = partial(self.records.about_to_start_over, partition)
        loaded = Loader(self._handles, path, config, known, now_ms, on_progress, about_to_start_over).load()
        log = PartitionLog(self._handles, path, partition, config, loaded, self)
        self.logs[partition] = log
        return log

    def create_log(
        self, partition: TopicPartition, topic_id: UUID, config: PartitionLogConfig, now_ms: int, unique: UUID
    ) -> PartitionLog:
        """Make a partition's log, durably. Raises ApiError(KAFKA_STORAGE_ERROR).

        What is left of a log whose deletion has failed is deleted before, under a name with `unique`.
        """
        self.check_online()
        path = join(self.path, directory_name(partition))
        try:
            self._rename(partition, deleted_directory_name(partition, unique))
            self._files.make_directories(path)
            write_new_file(self._files, join(path, PARTITION_METADATA_NAME), encode_partition_metadata(topic_id))
            self.records.topic_ids[partition] = topic_id
            log = self._open_log(partition, Known(), config, now_ms, _no_progress)
            with contextlib.suppress(OutOfSpace):  # the log is there, and the next checkpoint notes it
                self.records.note([log])
            return log
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def delete_log(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> None:
        """Take a partition's log away, durably; its files are removed by `remove_deleted`, later.

        Who waits for its appends gets `reason`. `unique` makes the name of what is left one of its own. Raises
        ApiError(KAFKA_STORAGE_ERROR). The directory has no such log then either: consider a topic whose log is on a
        disk that has failed. Another topic with its name must not find that log. The files are a stray of the next
        start that finds them.
        """
        self._take_away(partition, deleted_directory_name(partition, unique), reason)

    def set_stray_aside(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> str:
        """As `delete_log`, but the files stay, under a name of their own, which is returned."""
        name = stray_directory_name(partition, unique)
        self._take_away(partition, name, reason)
        return name

    def has_stray(self, partition: TopicPartition) -> bool:
        """Whether files of a log of a partition were set aside. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self.check_online()
        try:
            return any(is_stray_directory(name, partition) for name in self._files.list_directory(self.path))
        except StorageError as error:
            raise self.refusal(error) from error

    def _take_away(self, partition: TopicPartition, new_name: str, reason: ApiError) -> None:
        log = self.logs.pop(partition, None)
        self.damaged.pop(partition, None)
        self._damaged_at_start.discard(partition)
        if log is not None:
            self.commits.forget(log, reason)
            self._due_flushes.forget(log)
            log.retire(f"{log.directory} was deleted")
        self.check_online()
        try:
            self.records.about_to_go(partition)
            self._rename(partition, new_name)
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def _rename(self, partition: TopicPartition, new_name: str) -> None:
        path = join(self.path, directory_name(partition))
        if self._files.exists(path):
            for name in self._files.list_directory(path):
                self._handles.drop(join(path, name))
            self._files.rename_directory(path, join(self.path, new_name))
        self.forget(partition)

    def remove_deleted(self) -> int:
        """Remove the files of deleted partitions; returns how many partitions it were. Raises KAFKA_STORAGE_ERROR."""
        self.check_online()
        try:
            names = [name for name in self._files.list_directory(self.path) if is_deleted_directory(name)]
            for name in names:
                path = join(self.path, name)
                for file_name in self._files.list_directory(path):
                    self._handles.remove(join(path, file_name))
                self._files.remove_directory(path)
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error
        return len(names)

    def forget(self, partition: TopicPartition) -> None:
        """Remove the checkpoints of a partition that is not there, or not any more. Raises StorageError."""
        self.records.forget_checkpoints(partition)

    def acknowledge(self, log: PartitionLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call back when an append that ends at `end_offset` may be acknowledged, as far as this disk is concerned."""
        if self.logs.get(log.partition) is not log:
            # Consider damage that was found in this turn of the loop: the log is gone, and its owner not told yet.
            on_durable(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log in {log.directory} is not used any more"))
            return
        is_due = log.durability.unflushed_count >= log.config.flush_messages
        if log.config.flush_before_ack or is_due:
            self.commits.wait(log, end_offset, on_durable)
        else:
            self._due_flushes.appended(log)
            on_durable(None)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write how far each log is flushed, and where it starts. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self.check_online()
        try:
            self.records.write_checkpoints(self.logs)
            self._full_disk.checkpoint_written()
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def checkpoint_high_watermarks(self) -> None:
        """Write what of each log is committed (DB-24). Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self.check_online()
        try:
            self.records.write_high_watermarks(self.logs)
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def wall_clock_ms(self) -> int:
        """The machine's clock."""
        return self._runtime.wall_clock_ms()

    def note(self, log: RecordedLog) -> None:
        """The log's files are as they shall be: note which they are. Deals with an error of the disk."""
        try:
            if self.logs.get(log.partition) is log:
                self.records.note([log])
        except (StorageError, FlushFailed) as error:
            self.refusal(error)

    def note_registration(self, broker_epoch: int) -> None:
        """Note a registration with the directory. Raises StorageError, FlushFailed."""
        self.records.note_registration(broker_epoch)

    # --- failing and ending -------------------------------------------------------------------------------------------

    def check_online(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the directory is offline."""
        if self.offline_reason:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def fail(self, error: BaseException) -> None:
        """The disk has failed: the directory is offline from now on, with all of its logs."""
        if not self.offline_reason:
            self.offline_reason = (
                f"the log directory {self.path} is offline: {error}. Repair or replace the disk, and restart the broker"
            )
            logger.error("a log directory is offline", path=self.path, reason=str(error))
            self._due_flushes.stop()
            self.commits.fail_all(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason))
            self.on_lost()

    def partition_damaged(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Bytes of a log have changed on the disk: the partition is offline from now on, and nothing else."""
        logger.error("a partition is offline", partition=directory_name(partition), reason=str(error))
        self.damaged[partition] = str(error)
        log = self.logs.pop(partition, None)
        if log is not None:
            self.commits.forget(log, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            self._due_flushes.forget(log)
            log.retire(str(error))
        if isinstance(error, DamagedSegment):
            try:
                set_segment_aside(self._handles, error.path)
            except (StorageError, FlushFailed) as failure:
                self.fail(failure)
        self.on_lost()

    def assess(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """What a log here is, by the id that the partition's topic has in the metadata; None: this is no replica of it.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        log = self.logs.get(partition)
        segments = None if log is None else log.segment_bytes
        try:
            if topic_id is not None:
                self.records.settle_dispute(partition, topic_id, segments, 0 if log is None else log.log_end_offset)
        except DamagedLog as error:
            self._damaged_at_start.add(partition)
            self.partition_damaged(partition, error)
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error
        if partition in self.damaged:
            # Which segments are missing is known; the question is whose log it is.
            entry = self.records.entry(partition)
            found_id = self.records.topic_ids.get(partition) or (entry and entry.topic_id)
            return Finding.DAMAGED if topic_id is not None and found_id in (None, topic_id) else Finding.STRAY
        files = LogFiles(self.records.topic_ids.get(partition), segments or {})
        return assess(topic_id, self.records.entry(partition), files)[0]

    def assess_missing(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """What a log is that no directory has, by the inventory of this one. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        finding, reason = assess(topic_id, self.records.entry(partition), None)
        if finding is Finding.DAMAGED:
            self._damaged_at_start.add(partition)
            self.partition_damaged(partition, DamagedLog(join(self.path, directory_name(partition)), reason))
        else:
            self.forget_missing(partition)
        return finding

    def forget_missing(self, partition: TopicPartition) -> None:
        """The inventory need not have a log that is not here. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        if self.records.entry(partition) is not None:
            try:
                self.records.about_to_go(partition)
                with contextlib.suppress(OutOfSpace):  # a line too many does no harm
                    self.forget(partition)
            except (StorageError, FlushFailed) as error:
                raise self.refusal(error) from error

    # --- going on without what is lost --------------------------------------------------------------------------------

    def damaged_files(self, partition: TopicPartition) -> DamagedFiles:
        """The files of a partition's log. Raises StorageError."""
        path = join(self.path, directory_name(partition))
        return DamagedFiles(self._handles, path, self.records.entry(partition))

    def accept_loss(self, partition: TopicPartition, config: PartitionLogConfig, now_ms: int) -> PartitionLog:
        """Have a damaged log go on with what is left of it; durable. It is said what is lost.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self.check_online()
        path = join(self.path, directory_name(partition))
        try:
            found, entry = self.damaged_files(partition), self.records.entry(partition)
            losses = found.losses()
            found.mend()
            known = self.records.accepted(partition, found.end_offset, max(found.base_offsets, default=None))
            log = self._open_log(partition, known, config, now_ms, _no_progress)
            log.flush()
            self.records.note([log])
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error
        self.damaged.pop(partition, None)
        self._damaged_at_start.discard(partition)
        logger.error(
            "a damaged log goes on without what is lost", log=path, log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset, was_flushed_up_to=None if entry is None else entry.recovery_point,
            lost=[f"{one.start_offset} to {one.end_offset - 1}" for one in losses],
        )  # fmt: skip
        return log

    def was_damaged_at_start(self, partition: TopicPartition) -> bool:
        """Whether a log is damaged, and was so already when the directory was opened."""
        return partition in self._damaged_at_start

    def refusal(self, error: BaseException) -> ApiError:
        """What to answer after an error of the disk; it takes the directory offline unless there is just no room."""
        if isinstance(error, OutOfSpace):
            self._full_disk.refused(error)
        else:
            self.fail(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def close(self, broker_epoch: int) -> None:
        """Make all of it durable, and note that the shutdown was clean. Does nothing durable if it is offline.

        Raises StorageError, FlushFailed; then the next start recovers.
        """
        try:
            if not self.offline_reason:
                for log in self.logs.values():
                    log.close()
                self.records.write_checkpoints(self.logs)
                self.records.write_high_watermarks(self.logs)
                self.records.end(broker_epoch)
        finally:
            self.release()

    def stop_due_flushes(self) -> None:
        """Begin no flush any more because `flush.ms` is over."""
        self._due_flushes.stop()

    def release(self) -> None:
        """Release the lock, and nothing else: as if the process had died."""
        self.records.release()
        self._lock.close()


def _identify(files: FileSystem, directory: str, cluster_id: str, node_id: int, new_directory_id: UUID) -> UUID:
    """The id of a directory, which becomes this broker's if it is new. Raises DirectoryError if it is another's."""
    path = join(directory, META_NAME)
    if not files.exists(path):
        write_new_file(files, path, encode_meta(cluster_id, node_id, new_directory_id))
    try:
        found_cluster, found_node, directory_id = decode_meta(read_whole(files, path), path)
    except MalformedBytes as error:
        raise DirectoryError(f"{error}. Put the file back as it was: it says whose data is in {directory}") from None
    if found_cluster != cluster_id:
        raise DirectoryError(
            f"{directory} is of cluster {found_cluster}, and this broker is of cluster {cluster_id}",
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )
    if found_node != node_id:
        raise DirectoryError(f"{directory} is of broker {found_node}, and this is broker {node_id}")
    return directory_id
