"""One log directory of a broker (`log.dirs`): its lock and identity, its checkpoints, and the logs in it.

    DIR/.lock                               held while a broker uses it
    DIR/meta.properties                     cluster, broker and directory id
    DIR/.kafka_cleanshutdown                there while the broker is down after a clean shutdown
    DIR/recovery-point-offset-checkpoint    how far each log is known to be flushed
    DIR/log-start-offset-checkpoint         where each log starts
    DIR/replication-offset-checkpoint       what of each log is committed
    DIR/TOPIC-PARTITION/                    one log

A directory whose disk fails is offline until the broker is started again: nothing of it is read or written any more,
and every request for its partitions is KAFKA_STORAGE_ERROR. One that is full refuses appends, and takes them when there
is room.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, CorruptLog, DirectoryError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, Lock, join, read_whole, write_new_file
from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log.damage import DamagedSegment, set_segment_aside
from kraftlog.broker.log.due_flushes import DueFlushes
from kraftlog.broker.log.file_handles import FileHandles
from kraftlog.broker.log.formats.checkpoints import (
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_meta,
    encode_offsets,
    encode_partition_metadata,
)
from kraftlog.broker.log.formats.names import (
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARKS_NAME,
    LOCK_NAME,
    LOG_STARTS_NAME,
    LOG_SUFFIX,
    META_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINTS_NAME,
    deleted_directory_name,
    directory_name,
    is_deleted_directory,
    is_stray_directory,
    partition_in_name,
    stray_directory_name,
)
from kraftlog.broker.log.full_disk import FullDisk
from kraftlog.broker.log.group_commit import GroupCommit, OnDurable
from kraftlog.broker.log.loading import FoundState, Loader, RecoveryProgress
from kraftlog.broker.log.partition_log import PartitionLog
from kraftlog.kafka.errors import MalformedBytes
from raft.shell.runtime import Runtime
from statemachine.query.partition_descriptions import TopicPartition

logger = structlog.get_logger(__name__)

_CLEAN_SHUTDOWN_VERSION = 0


def _without(offsets: dict[TopicPartition, int], partition: TopicPartition) -> dict[TopicPartition, int]:
    return {key: offset for key, offset in offsets.items() if key != partition}


def _no_progress(_: RecoveryProgress) -> None:
    """Nobody looks."""


class LogDirectory:
    """One directory. For one thread; use `open`."""

    def __init__(self, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, lock: Lock) -> None:
        """Use `open`."""
        self.path = path
        self.directory_id = UUID(int=0)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The logs that are online."""
        self.topic_ids: dict[TopicPartition, UUID] = {}
        """The topic's id of each partition in the directory, if its file is there."""
        self.damaged: dict[TopicPartition, str] = {}
        """The partitions that are offline because of damage, and what was found."""
        self._damaged_at_start: set[TopicPartition] = set()
        self.offline_reason = ""
        """Why nothing of the directory is used any more; empty if it is."""
        self.on_lost: Callable[[], object] = lambda: None
        """Called when the directory, or a partition in it, has gone offline."""
        self._full_disk = FullDisk(path)
        self.commits = GroupCommit(runtime, self.refusal)
        self._due_flushes = DueFlushes(runtime, self.commits)
        self._files = files
        self._handles = handles
        self._runtime = runtime
        self._lock = lock
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._was_shut_down_cleanly = False

    @classmethod
    def open(
        cls, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, *, cluster_id: str, node_id: int,
        new_directory_id: UUID,
    ) -> LogDirectory:  # fmt: skip
        """Lock it and read what it is; a directory without `meta.properties` becomes this broker's.

        Raises DirectoryError if another process uses it, or it is another cluster's or broker's; StorageError.
        """
        files.make_directories(path)
        lock = files.try_lock(join(path, LOCK_NAME))
        if lock is None:
            raise DirectoryError(f"{path} is in use by another process; stop that one first")
        directory = cls(files, path, handles, runtime, lock)
        try:
            directory._identify(cluster_id, node_id, new_directory_id)
            directory._read_checkpoints()
        except BaseException:
            lock.close()
            raise
        return directory

    def _identify(self, cluster_id: str, node_id: int, new_directory_id: UUID) -> None:
        path = join(self.path, META_NAME)
        if not self._files.exists(path):
            write_new_file(self._files, path, encode_meta(cluster_id, node_id, new_directory_id))
        try:
            found_cluster, found_node, self.directory_id = decode_meta(read_whole(self._files, path), path)
        except MalformedBytes as error:
            raise DirectoryError(
                f"{error}. Put the file back as it was: it says whose data is in {self.path}"
            ) from None
        if found_cluster != cluster_id:
            raise DirectoryError(
                f"{self.path} is of cluster {found_cluster}, and this broker is of cluster {cluster_id}",
                ErrorCode.INCONSISTENT_CLUSTER_ID,
            )
        if found_node != node_id:
            raise DirectoryError(f"{self.path} is of broker {found_node}, and this is broker {node_id}")

    def _read_checkpoints(self) -> None:
        try:
            self._recovery_points = self._read_offsets(RECOVERY_POINTS_NAME)
        except MalformedBytes as error:
            logger.warning("all segments are read: the recovery points are not known", reason=str(error))
        try:
            self._high_watermarks = self._read_offsets(HIGH_WATERMARKS_NAME)
        except MalformedBytes as error:
            logger.warning("leaders and followers find out again what is committed", reason=str(error))
        try:
            self._log_starts = self._read_offsets(LOG_STARTS_NAME)
        except MalformedBytes as error:
            raise StorageError(
                f"{error}. It says which records were deleted. Put the file back, or remove it if DeleteRecords was"
                " never used"
            ) from None
        path = join(self.path, CLEAN_SHUTDOWN_NAME)
        self._was_shut_down_cleanly = self._files.exists(path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = join(self.path, name)
        return decode_offsets(read_whole(self._files, path), path) if self._files.exists(path) else {}

    @property
    def clean_broker_epoch(self) -> int | None:
        """The broker's epoch at its clean shutdown, if that was the last one; to be read before `load` (KIP-966)."""
        path = join(self.path, CLEAN_SHUTDOWN_NAME)
        if not self._files.exists(path):
            return None
        try:
            epoch = json.loads(read_whole(self._files, path))["brokerEpoch"]
        except (ValueError, KeyError, TypeError):
            return None
        return epoch if isinstance(epoch, int) and epoch >= 0 else None

    # --- logs ---------------------------------------------------------------------------------------------------------

    def load(
        self,
        config_of: Callable[[TopicPartition], PartitionLogConfig],
        now_ms: int,
        on_progress: Callable[[RecoveryProgress], None] = _no_progress,
    ) -> None:
        """Open every log that is there. One that is damaged is left offline. Raises StorageError, FlushFailed."""
        path = join(self.path, CLEAN_SHUTDOWN_NAME)
        if self._files.exists(path):
            self._files.remove(path)  # before anything changes
            self._files.fsync_directory(self.path)
        for name in self._files.list_directory(self.path):
            partition = partition_in_name(name)
            if partition is not None:
                self._load_one(partition, config_of(partition), now_ms, on_progress)
        self._was_shut_down_cleanly = False
        self._restore_high_watermarks()

    def _restore_high_watermarks(self) -> None:
        """What was committed at the last checkpoint is committed, as far as the log has it still (DB-24).

        What a crash has taken is taken from the checkpoint at once. Consider one of 10, and a log that ends at 6 after
        the power was lost: it gets two other records, and the power is lost again. These are not committed.
        """
        kept = {}
        for partition, offset in self._high_watermarks.items():
            log = self.logs.get(partition)
            if log is not None:
                log.advance_high_watermark(min(offset, log.log_end_offset))
                kept[partition] = min(offset, log.log_end_offset)
        if kept != self._high_watermarks:
            self._save_high_watermarks(kept)

    def _load_one(
        self,
        partition: TopicPartition,
        config: PartitionLogConfig,
        now_ms: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> None:
        path = join(self.path, directory_name(partition))
        names = self._files.list_directory(path)
        if PARTITION_METADATA_NAME not in names and not any(name.endswith(LOG_SUFFIX) for name in names):
            return  # it was being made, or deleted
        try:
            if PARTITION_METADATA_NAME in names:
                self._read_topic_id(partition, join(path, PARTITION_METADATA_NAME))
            self._open_log(partition, config, now_ms, on_progress)
        except CorruptLog as error:
            self.partition_damaged(partition, error)
            self._damaged_at_start.add(partition)

    def _read_topic_id(self, partition: TopicPartition, path: str) -> None:
        try:
            self.topic_ids[partition] = decode_partition_metadata(read_whole(self._files, path), path)
        except MalformedBytes as error:
            raise CorruptLog(f"{error}. Put the file back as it was: it says which topic the records are of") from None

    def _open_log(
        self,
        partition: TopicPartition,
        config: PartitionLogConfig,
        now_ms: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> PartitionLog:
        found = FoundState(
            recovery_point=self._recovery_points.get(partition, 0),
            log_start_offset=self._log_starts.get(partition, 0),
            was_shut_down_cleanly=self._was_shut_down_cleanly,
        )
        path = join(self.path, directory_name(partition))
        loaded = Loader(self._handles, path, config, found, now_ms, on_progress).load()
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
            self.topic_ids[partition] = topic_id
            return self._open_log(partition, config, now_ms, _no_progress)
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
        self.topic_ids.pop(partition, None)
        if log is not None:
            self.commits.forget(log, reason)
            self._due_flushes.forget(log)
            log.retire(f"{log.directory} was deleted")
        self.check_online()
        try:
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
        if self._recovery_points.get(partition, 0):
            self._save_recovery_points(_without(self._recovery_points, partition))
        if self._log_starts.get(partition, 0):
            self._save_log_starts(_without(self._log_starts, partition))
        if self._high_watermarks.get(partition, 0):
            self._save_high_watermarks(_without(self._high_watermarks, partition))

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
            self._write_checkpoints()
            self._full_disk.checkpoint_written()
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def checkpoint_high_watermarks(self) -> None:
        """Write what of each log is committed (DB-24). Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self.check_online()
        try:
            self._write_high_watermarks()
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def _write_high_watermarks(self) -> None:
        high_watermarks = {key: log.high_watermark for key, log in self.logs.items() if log.high_watermark}
        if high_watermarks != self._high_watermarks:
            self._save_high_watermarks(high_watermarks)

    def _write_checkpoints(self) -> None:
        recovery_points = self._recovery_points | {
            key: log.durability.recovery_point_to_save for key, log in self.logs.items()
        }
        log_starts = self._log_starts | {key: log.log_start_offset for key, log in self.logs.items()}
        if recovery_points != self._recovery_points:
            self._save_recovery_points(recovery_points)
        if log_starts != self._log_starts:
            self._save_log_starts(log_starts)

    def wall_clock_ms(self) -> int:
        """The machine's clock."""
        return self._runtime.wall_clock_ms()

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Make durable that the log is known to be flushed, and committed, up to here only."""
        if self._recovery_points.get(partition, 0) > offset:
            self._save_recovery_points(self._recovery_points | {partition: offset})
        if self._high_watermarks.get(partition, 0) > offset:
            self._save_high_watermarks(self._high_watermarks | {partition: offset})

    def save_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Make the log's start durable."""
        if self._log_starts.get(partition, 0) != offset:
            self._save_log_starts(self._log_starts | {partition: offset})

    # What is in memory is what the files have: what could not be written, for want of room, is written the next time.

    def _save_recovery_points(self, offsets: dict[TopicPartition, int]) -> None:
        self._write_offsets(RECOVERY_POINTS_NAME, offsets)
        self._recovery_points = offsets

    def _save_log_starts(self, offsets: dict[TopicPartition, int]) -> None:
        self._write_offsets(LOG_STARTS_NAME, offsets)
        self._log_starts = offsets

    def _save_high_watermarks(self, offsets: dict[TopicPartition, int]) -> None:
        self._write_offsets(HIGH_WATERMARKS_NAME, offsets)
        self._high_watermarks = offsets

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        write_new_file(self._files, join(self.path, name), encode_offsets(offsets))

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
        topic, partition_id = partition
        logger.error("a partition is offline", topic=topic, partition=partition_id, reason=str(error))
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
                self._write_checkpoints()
                self._write_high_watermarks()
                content = json.dumps({"version": _CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch})
                write_new_file(self._files, join(self.path, CLEAN_SHUTDOWN_NAME), content.encode("ascii"))
        finally:
            self.release()

    def stop_due_flushes(self) -> None:
        """Begin no flush any more because `flush.ms` is over."""
        self._due_flushes.stop()

    def release(self) -> None:
        """Release the lock, and nothing else: as if the process had died."""
        self._lock.close()
