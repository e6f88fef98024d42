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

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, CorruptLog, DirectoryError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, Lock, Space, join
from kraftbase.partition import TopicPartition
from kraftbase.runtime import Runtime
from kraftlog.storage.accepted_loss import DamagedFiles
from kraftlog.storage.batch_records import InflationMemory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.damage import DamagedLog, DamagedSegment, set_segment_aside
from kraftlog.storage.directory_identity import identify
from kraftlog.storage.directory_records import DirectoryRecords, RecordedLog
from kraftlog.storage.due_flushes import DueFlushes
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Finding, Known, LogFiles, assess
from kraftlog.storage.formats.checkpoints import encode_partition_metadata
from kraftlog.storage.formats.inventory import new_entry
from kraftlog.storage.formats.names import (
    LOCK_NAME,
    PARTITION_METADATA_NAME,
    deleted_directory_name,
    directory_name,
    is_any_stray_directory,
    is_stray_directory,
    partition_in_name,
    stray_directory_name,
)
from kraftlog.storage.full_disk import FullDisk
from kraftlog.storage.group_commit import GroupCommit
from kraftlog.storage.loading import Loader, RecoveryProgress
from kraftlog.storage.log_folders import LogFolders
from kraftlog.storage.log_host import OnDurable
from kraftlog.storage.moved_logs import MovedLog, take_over
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.plain_records import PlainRecords
from kraftlog.storage.slices import SLICE_LINES, Steps, run_at_once, slices

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
        self.logs: dict[TopicPartition, PartitionLog] = {}  # those that are online
        self.inflation = inflation
        """The memory of the batches that the broker is reading."""
        self.plain = PlainRecords()
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
        self.expected: set[TopicPartition] = set()
        """The partitions whose logs are about to be made here."""
        self._is_removing = False
        self.full_disk = FullDisk(path, self.space)
        self.commits = GroupCommit(runtime, self.refusal, self.note_all)
        self._due_flushes = DueFlushes(runtime, self.commits)
        self._folders = LogFolders(handles, path, records)
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
            directory_id = identify(files, path, cluster_id, node_id, new_directory_id)
            records = DirectoryRecords.read(files, path, directory_id)
        except BaseException:
            lock.close()
            raise
        return cls(files, path, handles, runtime, lock, directory_id, records, inflation or InflationMemory())

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
        self.records.lower_high_watermarks(self.logs, self.damaged)
        self.records.begin(self.logs)

    def _load_one(
        self, partition: TopicPartition, config: PartitionLogConfig, now_ms: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> None:  # fmt: skip
        path = join(self.path, directory_name(partition))
        names = self._files.list_directory(path)
        if self._folders.is_unfinished(partition, names):
            return  # it was being made, or deleted
        try:
            known = take_over(self.records, self.records.known(partition, names), self.moved_here.get(partition))
            log = self._open_log(partition, known, config, now_ms, on_progress)
            if log.log_end_offset > 0:
                log.establish()  # a start has made its records durable, but not the name of its directory
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
        """Make a partition's log: no crash takes it, as the inventory has it (DB-95). Raises KAFKA_STORAGE_ERROR.

        What is left of a log whose deletion has failed is deleted before, under a name with `unique`.
        """
        self.check_online()
        try:
            self.records.write_outdated_checkpoints()  # of a deleted log, if there was no room for that then
            is_expected = self._expect(partition, topic_id)
            self._folders.make_way(partition, unique)
            metadata_path = join(join(self.path, directory_name(partition)), PARTITION_METADATA_NAME)
            self._handles.create(metadata_path).write_at(0, encode_partition_metadata(topic_id))
            entry = self.records.entry(partition) if is_expected else new_entry(topic_id)
            log = self._open_log(partition, Known(entry=entry), config, now_ms, _no_progress)
            self.records.made(log, topic_id)
            if not is_expected:
                log.durability.sync_names()
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error
        self.expected.discard(partition)
        return log

    def _expect(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Have the inventory expect a log, durably, unless it does; returns whether there was room for that."""
        if not self.records.is_expected(partition, topic_id):
            try:
                self.records.expect({partition: topic_id})
            except OutOfSpace:
                return False  # its own files are synced instead, and the next checkpoint notes it
        return True

    def expect(self, topic_ids: Mapping[TopicPartition, UUID]) -> Steps:
        """Have the inventory expect logs, all with one sync (DB-95). An error of the disk takes the directory offline.

        Without room for that each log is made durable by itself.
        """
        try:
            for some in slices(list(topic_ids), SLICE_LINES):
                self.records.expect({partition: topic_ids[partition] for partition in some}, is_synced=False)
                yield None
            yield self.records.sync
        except OutOfSpace as error:
            logger.warning("an inventory has no room for new logs", path=self.path, reason=str(error))
        except (StorageError, FlushFailed) as error:
            self.refusal(error)
        else:
            self.expected |= topic_ids.keys()

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
        self.retire(partition, reason)
        run_at_once(self._rename_all([partition], lambda _: new_name))

    def delete_logs(self, partitions: Sequence[TopicPartition], new_id: Callable[[], UUID]) -> Steps:
        """Take the files of retired logs away, all with a few syncs (DB-95); `remove_deleted` removes them later.

        Durable at its end: from then on no crash brings a log back. Raises ApiError(KAFKA_STORAGE_ERROR), and then the
        files are strays of the next start that finds them.
        """
        yield from self._rename_all(partitions, lambda partition: deleted_directory_name(partition, new_id()))

    def retire(self, partition: TopicPartition, reason: ApiError) -> None:
        """Have no such log from now on; its files are still there. Who waits for its appends gets `reason`."""
        log = self.logs.pop(partition, None)
        self.damaged.pop(partition, None)
        self._damaged_at_start.discard(partition)
        if log is not None:
            self.commits.forget(log, reason)
            self._due_flushes.forget(log)
            log.retire(f"{log.directory} was deleted")

    def _rename_all(self, partitions: Sequence[TopicPartition], new_name: Callable[[TopicPartition], str]) -> Steps:
        """As `LogFolders.rename_all`. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self.check_online()
        try:
            yield from self._folders.rename_all(partitions, new_name)
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def remove_deleted(self) -> Steps:
        """Remove the files of deleted partitions, one after the other, in the disk's thread. Does not raise.

        That need not be durable: the next start removes what comes back. Nothing of them is open.
        """
        if self.offline_reason or self._is_removing:
            return
        self._is_removing = True
        try:
            yield from self._folders.remove_deleted()
        except (StorageError, FlushFailed) as error:
            self.refusal(error)
        finally:
            self._is_removing = False

    def acknowledge(self, log: RecordedLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call back when an append that ends at `end_offset` may be acknowledged, as far as this disk is concerned."""
        used = self.logs.get(log.partition)
        if used is not log or used is None:
            # Consider damage that was found in this turn of the loop: the log is gone, and its owner not told yet.
            on_durable(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} does not use that log any more"))
            return
        is_due = used.durability.unflushed_count >= used.config.flush_messages
        if used.config.flush_before_ack or is_due:
            self.commits.wait(used, end_offset, on_durable)
        else:
            self._due_flushes.appended(used)
            on_durable(None)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Steps:
        """Write how far each log is flushed, and where it starts. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        yield from self._written(self.records.write_checkpoints(self.logs))

    def checkpoint_high_watermarks(self) -> Steps:
        """Write what of each log is committed (DB-24). Raises ApiError(KAFKA_STORAGE_ERROR)."""
        yield from self._written(self.records.write_high_watermarks(self.logs))

    def _written(self, steps: Steps) -> Steps:
        self.check_online()
        try:
            yield from steps
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def space(self) -> Space:
        """The room on its file system: for any thread. Raises StorageError."""
        return self._files.space(self.path)

    def wall_clock_ms(self) -> int:
        """The machine's clock."""
        return self._runtime.wall_clock_ms()

    def note(self, log: RecordedLog) -> None:
        """The log's files are as they shall be: note which they are. Deals with an error of the disk."""
        self.note_all([log])

    def note_all(self, logs: Sequence[RecordedLog]) -> None:
        """As `note`, with one sync for all."""
        try:
            self.records.note([log for log in logs if self.logs.get(log.partition) is log])
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
        elif topic_id is None or not self.records.is_expected(partition, topic_id):
            self.forget_missing([partition])
        return finding

    def forget_missing(self, partitions: Sequence[TopicPartition]) -> None:
        """The inventory need not have logs that are not here. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        run_at_once(self.forget_all_missing(partitions))

    def forget_all_missing(self, partitions: Sequence[TopicPartition]) -> Steps:
        """As `forget_missing`, with a few syncs for all of them."""
        try:
            yield from self._folders.forget_all(partitions)
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
            if entry is not None and entry.is_new:
                log.durability.sync_names()
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
            self.full_disk.refused(error)
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
                run_at_once(self.records.write_checkpoints(self.logs))
                run_at_once(self.records.write_high_watermarks(self.logs))
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
