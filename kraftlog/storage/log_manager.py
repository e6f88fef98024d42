"""The log directories of a broker, and which directory each partition is in.

A directory that cannot be opened, or whose disk fails, is offline; the others continue. The caller ends a broker with
no online directory, and calls `maintain` and `checkpoint` periodically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, DirectoryError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.partition import TopicPartition
from kraftbase.runtime import Runtime
from kraftbase.uuids import random_uuid
from kraftlog.storage.batch_records import InflationMemory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import OPEN_FILES_MAX, FileHandles
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.names import directory_name
from kraftlog.storage.loading import RecoveryProgress
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.missing_logs import MissingLogs
from kraftlog.storage.moved_logs import find_moved_logs
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.registered_epoch import last_clean_epoch, registered_epoch
from kraftlog.storage.retention import RetentionClock
from kraftlog.storage.slices import SlicedWork, Steps

logger = structlog.get_logger(__name__)


class LogManager:
    """All log directories of one broker. For one thread."""

    def __init__(
        self, runtime: Runtime, directories: Sequence[LogDirectory], failed: Mapping[str, str],
        new_id: Callable[[], UUID], clean_broker_epoch: int | None = None,
    ) -> None:  # fmt: skip
        """Call `open` instead."""
        self.clean_broker_epoch = clean_broker_epoch
        """The broker's epoch at its last shutdown, if that was clean in every directory (KIP-966)."""
        self.directories = tuple(directories)
        """The directories that could be opened; those that have failed since have an `offline_reason`."""
        self.failed = dict(failed)
        """The reason for each directory that could not be opened, by path."""
        self.cordoned: frozenset[UUID] = frozenset()
        """The directories that get no new partitions (KIP-1066)."""
        self.missing = MissingLogs([*(directory.path for directory in directories), *failed])
        self.new_id = new_id
        """Makes the ids of directories, and the unique parts of names of logs that are deleted or set aside."""
        self.runtime = runtime
        """The runtime in which the work on the logs runs."""
        self._removing, self._checkpointing, self._saving_high_watermarks = (
            SlicedWork(runtime, self._has_failed) for _ in range(3)
        )
        self._clock = RetentionClock(runtime.wall_clock_ms(), runtime.now_ms())

    @classmethod
    def open(
        cls, files: FileSystem, paths: Sequence[str], runtime: Runtime, *, cluster_id: str, node_id: int,
        config_of: Callable[[TopicPartition], PartitionLogConfig],
        on_progress: Callable[[RecoveryProgress], None] = lambda progress: None,
        open_files_max: int = OPEN_FILES_MAX, new_id: Callable[[], UUID] = random_uuid,
    ) -> LogManager:  # fmt: skip
        """Open every directory and every log; a directory that fails is offline.

        Raises DirectoryError for a directory that must not be used, like `LogDirectory.open`; then all are released.
        """
        handles, inflation = FileHandles(files, open_files_max), InflationMemory()
        opened: list[LogDirectory] = []
        failed: dict[str, str] = {}
        for path in paths:
            try:
                directory = LogDirectory.open(
                    files, path, handles, runtime, cluster_id=cluster_id, node_id=node_id,
                    new_directory_id=new_id(), inflation=inflation,
                )  # fmt: skip
            except DirectoryError:
                for other in opened:
                    other.release()
                raise
            except (StorageError, FlushFailed) as error:
                logger.error("a log directory is offline", path=path, reason=str(error))
                failed[path] = str(error)
                continue
            opened.append(directory)
        epochs = {directory.path: _clean_epoch(directory) for directory in opened}
        for directory in opened:
            others = [(other, epochs[other.path] is not None) for other in opened if other is not directory]
            try:
                if not directory.offline_reason:
                    directory.moved_here = find_moved_logs(files, directory.path, others)
                    directory.load(config_of, runtime.wall_clock_ms(), on_progress)
            except (StorageError, FlushFailed) as error:
                directory.fail(error)
        registered = {directory.path: registered_epoch(files, directory.path) for directory in opened}
        clean_epoch = None if failed else last_clean_epoch([(epochs[path], registered[path]) for path in epochs])
        return cls(runtime, opened, failed, new_id, clean_epoch)

    @property
    def online(self) -> list[LogDirectory]:
        """The directories that are online."""
        return [directory for directory in self.directories if not directory.offline_reason]

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory that has a log of a partition, online or not; None if none has."""
        for directory in self.directories:
            if partition in directory.logs or partition in directory.damaged:
                return directory
        return None

    def directories_of(self, partition: TopicPartition) -> list[LogDirectory]:
        """Return the directories that have a log of a partition, online or not."""
        return [
            directory for directory in self.directories if partition in directory.logs or partition in directory.damaged
        ]

    def assess(self, partition: TopicPartition, topic_id: UUID) -> Finding:
        """Classify this broker's log of a partition; `topic_id` is the topic's id in the metadata (DB-89).

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        directory = self.directory_of(partition)
        others = [other for other in self.online if other is not directory]
        if directory is None:
            findings = [other.findings.assess_missing(partition, topic_id) for other in others]
            return Finding.DAMAGED if Finding.DAMAGED in findings else Finding.NEW
        finding = directory.findings.assess(partition, topic_id)
        if finding is not Finding.STRAY and directory.records.entry(partition) is not None:
            for other in others:
                # The log was moved by hand to this directory, whose inventory has it now.
                other.findings.forget_missing([partition])
        return finding

    def is_damaged(self, partition: TopicPartition) -> bool:
        """Whether a partition is offline because its log is damaged or missing."""
        directory = self.directory_of(partition)
        return partition in self.missing if directory is None else partition in directory.damaged

    def was_damaged_at_start(self, partition: TopicPartition) -> bool:
        """Whether a log is missing, or is damaged and was so when its directory was opened."""
        directory = self.directory_of(partition)
        return partition in self.missing if directory is None else directory.findings.was_damaged_at_start(partition)

    def log_of(self, partition: TopicPartition) -> PartitionLog:
        """Return a partition's log.

        Raises ApiError: KAFKA_STORAGE_ERROR if the log is offline, UNKNOWN_TOPIC_OR_PARTITION if there is none.
        """
        directory = self.directory_of(partition)
        if directory is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"none of this broker's log directories has {partition.topic}-{partition.partition_id}",
            )
        directory.check_online()
        if partition in directory.damaged:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, directory.damaged[partition])
        return directory.logs[partition]

    def create_log(
        self, partition: TopicPartition, topic_id: UUID, config: PartitionLogConfig, wanted_id: UUID | None = None
    ) -> PartitionLog:
        """Create a partition's log. Raises ApiError(KAFKA_STORAGE_ERROR).

        `wanted_id` is the directory that the controller has chosen (KIP-858). The log is created in a directory that
        `expect` has chosen for it, else in that one if it is online, else in one whose inventory expects the log
        (DB-95), else in the directory with the fewest logs that is not cordoned.
        """
        noted = self.expecting(partition, topic_id)
        expecting = [directory for directory in self.online if partition in directory.expected]
        directory = expecting[0] if expecting else self._home(wanted_id, noted)
        for other in noted:
            if other is not directory:  # `other` was offline for a while, in which the log was made in this one
                other.findings.forget_missing([partition])
        log = directory.create_log(partition, topic_id, config, self.runtime.wall_clock_ms(), self.new_id())
        self.missing.remove(partition)
        return log

    def expecting(self, partition: TopicPartition, topic_id: UUID) -> list[LogDirectory]:
        """Return the directories whose inventory has the log as one that was never flushed (DB-95)."""
        return [directory for directory in self.online if directory.records.is_expected(partition, topic_id)]

    def _home(self, wanted_id: UUID | None, expecting: list[LogDirectory]) -> LogDirectory:
        candidates = [directory for directory in self.online if directory.directory_id == wanted_id] or expecting
        if not candidates:
            candidates = [directory for directory in self.online if directory.directory_id not in self.cordoned]
        if not candidates:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"none of {len(self.directories) + len(self.failed)} log directories accepts a new partition: all are"
                " offline or cordoned",
            )
        return min(
            candidates, key=lambda directory: len(directory.logs) + len(directory.damaged) + len(directory.expected)
        )

    def forget_expected(self) -> None:
        """Forget the logs that were about to be created."""
        for directory in self.directories:
            directory.expected.clear()

    def retire_log(self, partition: TopicPartition, reason: ApiError) -> list[LogDirectory]:
        """Stop using a partition's log; return the directories with its files, for `LogManager.delete_logs`.

        Waiting appends fail with `reason`.
        """
        self.missing.remove(partition)
        found = self.directories_of(partition)
        for directory in found:
            directory.retire(partition, reason)
        return found

    def delete_logs(self, retired: Mapping[TopicPartition, Sequence[LogDirectory]]) -> Steps:
        """Delete retired logs, durably, with a few syncs for each directory; a failure is logged."""
        for directory in self.directories:
            partitions = [partition for partition, found in retired.items() if directory in found]
            if partitions:
                try:
                    yield from directory.removal.delete_logs(partitions, self.new_id)
                except ApiError as error:
                    logger.error(
                        "partitions were not deleted", path=directory.path, first=directory_name(partitions[0]),
                        count=len(partitions), reason=str(error),
                    )  # fmt: skip

    def accept_loss(self, partition: TopicPartition, topic_id: UUID, config: PartitionLogConfig) -> PartitionLog:
        """Repair a damaged log to continue with its remaining records; a missing log starts empty.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        directory = self.directory_of(partition)
        if directory is None and partition in self.missing:
            logger.error(
                "a partition starts with an empty log: its log is missing, and it was elected uncleanly",
                log=directory_name(partition), reason=self.missing.reason(partition),
            )  # fmt: skip
            return self.create_log(partition, topic_id, config)
        if directory is None or partition not in directory.damaged:
            return self.log_of(partition)
        return directory.findings.accept_loss(partition, config, self.runtime.wall_clock_ms())

    # --- periodic work ------------------------------------------------------------------------------------------------

    def maintain(self) -> int:
        """Apply retention, and flush logs that are due; return the number of deleted segments.

        Kafka does this every `log.retention.check.interval.ms`. An error of a disk takes its directory offline.
        """
        return sum(self.maintain_in_steps())

    def maintain_in_steps(self) -> Iterator[int]:
        """Like `maintain`, with one step for each log, which yields the number of its deleted segments.

        The steps are separate because a log that is emptied needs several syncs. Logs may be added and removed between
        two steps.
        """
        now_ms = self._retention_now_ms()
        if self._removing.is_idle:
            self._removing.start(self._remove_deleted(), is_small=False)
        for directory in self.online:
            for log in list(directory.logs.values()):
                if directory.offline_reason:
                    break
                if directory.logs.get(log.partition) is not log:
                    continue
                deleted = 0
                try:
                    log.remove_old_log_without_room()
                    deleted = log.delete_old_segments(now_ms).segment_count
                except ApiError as error:
                    _warn("retention is postponed", error, directory=log.directory)
                if log.durability.is_flush_due(log.config, self.runtime.wall_clock_ms()):
                    directory.commits.wait(log, log.log_end_offset, lambda error: None)
                yield deleted

    def _remove_deleted(self) -> Steps:
        for directory in self.online:
            yield from directory.removal.remove_deleted()

    def _has_failed(self, error: BaseException) -> None:
        logger.error("periodic work on the log directories failed; it will be retried", reason=repr(error))

    def forget_producers(self, expiration_ms: int) -> int:
        """Forget each log's producers without appends for `expiration_ms`; return their number (DB-70).

        Kafka does this every `producer.id.expiration.check.interval.ms`.
        """
        now_ms = self._retention_now_ms()
        return sum(
            log.producers.states.expire(now_ms, expiration_ms)
            for directory in self.online for log in directory.logs.values()
        )  # fmt: skip

    def _retention_now_ms(self) -> int:
        """Return the time, in milliseconds, by which retention and the expiration of producers are decided."""
        was_on_trial = self._clock.is_on_trial
        now_ms = self._clock.now_ms(self.runtime.wall_clock_ms(), self.runtime.now_ms())
        if self._clock.is_on_trial and not was_on_trial:
            logger.warning(
                "the clock has jumped ahead: retention by time waits until the clock has been steady for an hour",
                clock_ms=self.runtime.wall_clock_ms(), retention_clock_ms=now_ms,
            )  # fmt: skip
        return now_ms

    def checkpoint(self) -> None:
        """Begin to write the checkpoints of every directory, so that a startup after a crash reads little (DB-97)."""
        self._write(self._checkpointing, LogDirectory.checkpoint)

    def checkpoint_high_watermarks(self) -> None:
        """Begin to write the high watermarks of every directory, so that a startup has them (DB-97)."""
        self._write(self._saving_high_watermarks, LogDirectory.checkpoint_high_watermarks)

    def _write(self, work: SlicedWork, written: Callable[[LogDirectory], Steps]) -> None:
        def steps() -> Steps:
            for directory in self.online:
                try:
                    yield from written(directory)
                except ApiError as error:
                    _warn("a checkpoint was not written", error, path=directory.path)

        if work.is_idle:  # else the previous checkpoint is still in progress
            work.start(steps(), is_small=False)

    def stop_work(self) -> None:
        """Stop all periodic work: `close`, which may run in another thread, writes and flushes everything."""
        for work in (self._removing, self._checkpointing, self._saving_high_watermarks):
            work.stop()
        for directory in self.directories:
            directory.stop_due_flushes()

    def close(self, broker_epoch: int) -> bool:
        """Shut every directory down cleanly; return whether all succeeded. The next startup recovers the others.

        Callable from any thread, once there are no more appends.
        """
        is_clean = not self.failed
        for directory in self.directories:
            is_clean = is_clean and not directory.offline_reason
            try:
                directory.close(broker_epoch)
            except (StorageError, FlushFailed) as error:
                is_clean = False
                logger.error("a log directory was not closed cleanly", path=directory.path, reason=str(error))
        return is_clean


def _clean_epoch(directory: LogDirectory) -> int | None:
    """Return the broker's epoch at a directory's clean shutdown, before `load`; an unreadable one goes offline."""
    try:
        return directory.records.clean_broker_epoch
    except (StorageError, FlushFailed) as error:
        directory.fail(error)
        return None


def _warn(event: str, error: ApiError, **where: str) -> None:
    """Log that work is postponed; for a full disk the directory has logged that once already."""
    if not isinstance(error.__cause__, OutOfSpace):
        logger.warning(event, reason=str(error), **where)
