"""One log directory of a broker (`log.dirs`): its lock and identity, whether it is online, and the logs in it.

    DIR/.lock                               held while a broker uses it
    DIR/meta.properties                     cluster, broker and directory id
    DIR/.kafka_cleanshutdown                exists while the broker is down after a clean shutdown
    DIR/kraftlog-inventory                  the state of each log, to check it at startup; our own
    DIR/recovery-point-offset-checkpoint    recovery point of each log
    DIR/log-start-offset-checkpoint         log start offset of each log
    DIR/replication-offset-checkpoint       high watermark of each log
    DIR/TOPIC-PARTITION/                    one log

A directory whose disk fails is offline until the broker restarts: it is no longer read or written, and every request
for its partitions gets KAFKA_STORAGE_ERROR. A full directory refuses appends until there is room. `DirectoryRecords`
keeps the recorded state of the logs, `DirectoryFindings` decides which logs are damaged, and `LogRemoval` deletes logs
or sets them aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, CorruptLog, DirectoryError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, Lock, Space, join
from kraftbase.partition import TopicPartition
from kraftbase.runtime import Runtime
from kraftlog.storage.batch_records import InflationMemory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.damage import DamagedSegment, set_segment_aside
from kraftlog.storage.directory_findings import DirectoryFindings
from kraftlog.storage.directory_identity import identify
from kraftlog.storage.directory_records import DirectoryRecords, RecordedLog
from kraftlog.storage.due_flushes import DueFlushes
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Known
from kraftlog.storage.formats.checkpoints import encode_partition_metadata
from kraftlog.storage.formats.inventory import new_entry
from kraftlog.storage.formats.names import LOCK_NAME, PARTITION_METADATA_NAME, directory_name, partition_in_name
from kraftlog.storage.full_disk import FullDisk
from kraftlog.storage.group_commit import GroupCommit
from kraftlog.storage.loading import Loader, RecoveryProgress
from kraftlog.storage.log_folders import LogFolders
from kraftlog.storage.log_host import OnDurable
from kraftlog.storage.log_removal import LogRemoval
from kraftlog.storage.moved_logs import MovedLog, take_over
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.plain_records import PlainRecords
from kraftlog.storage.slices import SLICE_LINES, Steps, run_at_once, slices

logger = structlog.get_logger(__name__)


def _no_progress(_: RecoveryProgress) -> None:
    """Report no progress."""


class LogDirectory:
    """One log directory. For one thread."""

    def __init__(
        self, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, lock: Lock, directory_id: UUID,
        records: DirectoryRecords, inflation: InflationMemory,
    ) -> None:  # fmt: skip
        """Call `open` instead."""
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, PartitionLog] = {}  # the online logs
        self.inflation = inflation
        """The memory of the batches that the broker is reading."""
        self.plain = PlainRecords()
        self.records = records
        """The recorded state of its logs."""
        self.moved_here: Mapping[TopicPartition, MovedLog] = {}
        """The logs that were moved here by hand from another directory of the broker; set before `load`."""
        self.offline_reason = ""
        """Why the directory is offline; empty if it is online."""
        self.on_lost: Callable[[], object] = lambda: None
        """Called when the directory, or a partition in it, has gone offline."""
        self.expected: set[TopicPartition] = set()
        """The partitions whose logs are about to be created here."""
        self.full_disk = FullDisk(path, self.space)
        self.commits = GroupCommit(runtime, self.refusal, self.record_files_of)
        self._due_flushes = DueFlushes(runtime, self.commits)
        self._folders = LogFolders(handles, path, records)
        self.removal = LogRemoval(self, files, path, self._folders, self.retire)
        """Deletes logs, or sets them aside."""
        self.findings = DirectoryFindings(self, handles, path, records, self._folders, self.logs, self._open_log)
        """Which logs are damaged, missing or strays."""
        self.damaged: Mapping[TopicPartition, str] = self.findings.damaged
        """The partitions that are offline because of damage, with the reason for each."""
        self._files = files
        self._handles = handles
        self._runtime = runtime
        self._lock = lock

    @classmethod
    def open(
        cls, files: FileSystem, path: str, handles: FileHandles, runtime: Runtime, *, cluster_id: str, node_id: int,
        new_directory_id: UUID, inflation: InflationMemory | None = None,
    ) -> LogDirectory:  # fmt: skip
        """Lock the directory and read its identity; one without `meta.properties` is assigned to this broker.

        Raises StorageError, and DirectoryError if another process uses the directory, or if it belongs to another
        cluster or broker.
        """
        files.make_directories(path)
        lock = files.try_lock(join(path, LOCK_NAME))
        if lock is None:
            raise DirectoryError(f"{path} is in use by another process; stop that process first")
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
        """Open every log of the directory; a damaged one stays offline. Raises StorageError, FlushFailed."""
        self.records.start()
        names = self._files.list_directory(self.path)
        self._folders.name_strays(names)
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
            return  # it was being created, or deleted
        try:
            known = take_over(self.records, self.records.known(partition, names), self.moved_here.get(partition))
            log = self._open_log(partition, known, config, now_ms, on_progress)
            if log.log_end_offset > 0:
                log.establish()  # its records are durable by now, but not the name of its directory
        except CorruptLog as error:
            self.findings.damaged_at_start(partition, error)

    def _open_log(
        self, partition: TopicPartition, known: Known, config: PartitionLogConfig, now_ms: int,
        on_progress: Callable[[RecoveryProgress], None] = _no_progress,
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
        """Create a partition's log, which survives a crash since the inventory has it (DB-95).

        Remains of a log whose deletion failed are renamed for deletion first, under a name with `unique`. Raises
        ApiError(KAFKA_STORAGE_ERROR).
        """
        self.check_online()
        try:
            self.records.write_outdated_checkpoints()  # of a deleted log, if there was no room for that then
            is_expected = self._expect(partition, topic_id)
            self._folders.make_way(partition, unique)
            metadata_path = join(join(self.path, directory_name(partition)), PARTITION_METADATA_NAME)
            self._handles.create(metadata_path).write_at(0, encode_partition_metadata(topic_id))
            entry = self.records.entry(partition) if is_expected else new_entry(topic_id)
            log = self._open_log(partition, Known(entry=entry), config, now_ms)
            self.records.made(log, topic_id)
            if not is_expected:
                log.durability.sync_names()
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error
        self.expected.discard(partition)
        return log

    def _expect(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Ensure that the inventory expects a log, durably; return whether there was room for that."""
        if not self.records.is_expected(partition, topic_id):
            try:
                self.records.expect({partition: topic_id})
            except OutOfSpace:
                return False  # its own files are synced instead, and the next checkpoint records it
        return True

    def expect(self, topic_ids: Mapping[TopicPartition, UUID]) -> Steps:
        """Record in the inventory that logs are expected, with one sync (DB-95).

        Without room for that each log is made durable by itself. An error of the disk takes the directory offline.
        """
        try:
            for some in slices(list(topic_ids), SLICE_LINES):
                self.records.expect({partition: topic_ids[partition] for partition in some}, is_synced=False)
                yield None
            yield self.records.sync
        except OutOfSpace as error:
            logger.warning("no room to record new logs in an inventory", path=self.path, reason=str(error))
        except (StorageError, FlushFailed) as error:
            self.refusal(error)
        else:
            self.expected |= topic_ids.keys()

    def retire(self, partition: TopicPartition, reason: ApiError) -> None:
        """Stop using a log; its files remain. Waiting appends fail with `reason`."""
        self.findings.remove(partition)
        self._take_out(partition, reason, f"{join(self.path, directory_name(partition))} was deleted")

    def _take_out(self, partition: TopicPartition, error: ApiError, reason: str) -> None:
        log = self.logs.pop(partition, None)
        if log is not None:
            self.commits.fail(log, error)
            self._due_flushes.remove(log)
            log.retire(reason)

    def acknowledge(self, log: RecordedLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when an append that ends at `end_offset` is as durable as its config requires."""
        used = self.logs.get(log.partition)
        if used is not log or used is None:
            # Consider damage that was found in this turn of the loop: the log is gone, and its owner not yet notified.
            on_durable(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} no longer uses that log"))
            return
        is_due = used.durability.unflushed_count >= used.config.flush_messages
        if used.config.flush_before_ack or is_due:
            self.commits.wait(used, end_offset, on_durable)
        else:
            self._due_flushes.appended(used)
            on_durable(None)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Steps:
        """Write the recovery point and the log start offset of each log. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        yield from self._written(self.records.write_checkpoints(self.logs))

    def checkpoint_high_watermarks(self) -> Steps:
        """Write the high watermark of each log (DB-24). Raises ApiError(KAFKA_STORAGE_ERROR)."""
        yield from self._written(self.records.write_high_watermarks(self.logs))

    def _written(self, steps: Steps) -> Steps:
        self.check_online()
        try:
            yield from steps
        except (StorageError, FlushFailed) as error:
            raise self.refusal(error) from error

    def space(self) -> Space:
        """Return the room on its file system; callable from any thread. Raises StorageError."""
        return self._files.space(self.path)

    def wall_clock_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._runtime.wall_clock_ms()

    def record_files(self, log: RecordedLog) -> None:
        """Record the durable state of a log in the inventory. An error of the disk takes the directory offline."""
        self.record_files_of([log])

    def record_files_of(self, logs: Sequence[RecordedLog]) -> None:
        """Like `record_files`, with one sync for all logs."""
        try:
            self.records.record([log for log in logs if self.logs.get(log.partition) is log])
        except (StorageError, FlushFailed) as error:
            self.refusal(error)

    def note_registration(self, broker_epoch: int) -> None:
        """Record the broker's registration in the inventory. Raises StorageError, FlushFailed."""
        self.records.note_registration(broker_epoch)

    # --- failing and ending -------------------------------------------------------------------------------------------

    def check_online(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the directory is offline."""
        if self.offline_reason:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def fail(self, error: BaseException) -> None:
        """Take the directory offline, with all of its logs: the disk has failed."""
        if not self.offline_reason:
            self.offline_reason = (
                f"the log directory {self.path} is offline: {error}. Repair or replace the disk, and restart the broker"
            )
            logger.error("a log directory is offline", path=self.path, reason=str(error))
            self._due_flushes.stop()
            self.commits.fail_all(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason))
            self.on_lost()

    def partition_damaged(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Take a partition with a damaged log offline, and set its damaged segment aside; other logs stay online."""
        logger.error("a partition is offline", partition=directory_name(partition), reason=str(error))
        self.findings.note_damage(partition, str(error))
        self._take_out(partition, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)), str(error))
        if isinstance(error, DamagedSegment):
            try:
                set_segment_aside(self._handles, error.path)
            except (StorageError, FlushFailed) as failure:
                self.fail(failure)
        self.on_lost()

    def refusal(self, error: BaseException) -> ApiError:
        """Apply the consequences of a disk error; return the ApiError to raise.

        The directory goes offline, except for a lack of room.
        """
        if isinstance(error, OutOfSpace):
            self.full_disk.refused(error)
        else:
            self.fail(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def close(self, broker_epoch: int) -> None:
        """Make all logs durable, record a clean shutdown, and release the lock. An offline directory is only released.

        Raises StorageError, FlushFailed; then the next startup recovers the logs.
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
        """Begin no more flushes by `flush.ms`."""
        self._due_flushes.stop()

    def release(self) -> None:
        """Release the lock without any writes, as if the process had died."""
        self.records.release()
        self._lock.close()
