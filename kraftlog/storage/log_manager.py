"""The log directories of a broker, and which of them a partition is in.

A directory that cannot be opened, or whose disk fails, is offline; the others go on. A broker without any is of no use:
its caller ends it. The work that is due from time to time is done by `maintain` and `checkpoint`.
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
    """All log directories of one broker. For one thread; use `open`."""

    def __init__(
        self, runtime: Runtime, directories: Sequence[LogDirectory], failed: Mapping[str, str],
        new_id: Callable[[], UUID], clean_broker_epoch: int | None = None,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.clean_broker_epoch = clean_broker_epoch
        """The broker's epoch at its last shutdown, if that was clean by what every directory says (KIP-966)."""
        self.directories = tuple(directories)
        """Those that could be opened; `offline_reason` tells which have failed since."""
        self.failed = dict(failed)
        """By path, why a directory could not be opened."""
        self.cordoned: frozenset[UUID] = frozenset()
        """The directories that get no new partitions (KIP-1066)."""
        self.missing = MissingLogs([*(directory.path for directory in directories), *failed])
        self.new_id = new_id
        """Makes the ids of directories, and what tells apart the names of logs that were deleted or set aside."""
        self.runtime = runtime
        """What the work on the logs runs in."""
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
        """Open every directory and every log; what fails is offline.

        Raises DirectoryError for a directory that must not be used, as `LogDirectory.open` does; then none is.
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
        """The directories that are in use."""
        return [directory for directory in self.directories if not directory.offline_reason]

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The directory that has a partition, online or not; None if none has."""
        for directory in self.directories:
            if partition in directory.logs or partition in directory.damaged:
                return directory
        return None

    def directories_of(self, partition: TopicPartition) -> list[LogDirectory]:
        """The directories that have a log of a partition, online or not."""
        return [of for of in self.directories if partition in of.logs or partition in of.damaged]

    def assess(self, partition: TopicPartition, topic_id: UUID) -> Finding:
        """What this broker has of a partition whose topic has that id in the metadata (DB-89).

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
                # It was moved by hand to where it is, whose inventory has it now.
                other.findings.forget_missing([partition])
        return finding

    def is_damaged(self, partition: TopicPartition) -> bool:
        """Whether a partition is offline because records of its log are missing, or all of it."""
        directory = self.directory_of(partition)
        return partition in self.missing if directory is None else partition in directory.damaged

    def was_damaged_at_start(self, partition: TopicPartition) -> bool:
        """Whether a log is damaged, and was so already when its directory was opened."""
        directory = self.directory_of(partition)
        return partition in self.missing if directory is None else directory.findings.was_damaged_at_start(partition)

    def log_of(self, partition: TopicPartition) -> PartitionLog:
        """A partition's log.

        Raises ApiError: KAFKA_STORAGE_ERROR if it is offline on this broker, UNKNOWN_TOPIC_OR_PARTITION if it is not
        here.
        """
        directory = self.directory_of(partition)
        if directory is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition.topic}-{partition.partition_id} is in none of this broker's log directories",
            )
        directory.check_online()
        if partition in directory.damaged:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, directory.damaged[partition])
        return directory.logs[partition]

    def create_log(
        self, partition: TopicPartition, topic_id: UUID, config: PartitionLogConfig, wanted_id: UUID | None = None
    ) -> PartitionLog:
        """Make a partition's log. Raises ApiError(KAFKA_STORAGE_ERROR).

        It is in the directory with `wanted_id`, which the controller has chosen (KIP-858), if that is online, else in
        the one whose inventory expects it (DB-95), else in the one with the fewest logs that is not cordoned.
        """
        noted = self.expecting(partition, topic_id)
        expecting = [directory for directory in self.online if partition in directory.expected]
        directory = expecting[0] if expecting else self._home(wanted_id, noted)
        for other in noted:
            if other is not directory:  # it was not here for a while, in which the log was made in this one
                other.findings.forget_missing([partition])
        log = directory.create_log(partition, topic_id, config, self.runtime.wall_clock_ms(), self.new_id())
        self.missing.forget(partition)
        return log

    def expecting(self, partition: TopicPartition, topic_id: UUID) -> list[LogDirectory]:
        """The directories whose inventory has the log as one of which nothing was flushed (DB-95)."""
        return [directory for directory in self.online if directory.records.is_expected(partition, topic_id)]

    def _home(self, wanted_id: UUID | None, expecting: list[LogDirectory]) -> LogDirectory:
        candidates = [directory for directory in self.online if directory.directory_id == wanted_id] or expecting
        if not candidates:
            candidates = [directory for directory in self.online if directory.directory_id not in self.cordoned]
        if not candidates:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"none of {len(self.directories) + len(self.failed)} log directories takes a new partition: they are"
                " offline or cordoned",
            )
        return min(
            candidates, key=lambda directory: len(directory.logs) + len(directory.damaged) + len(directory.expected)
        )

    def forget_expected(self) -> None:
        """No log is about to be made any more."""
        for directory in self.directories:
            directory.expected.clear()

    def retire_log(self, partition: TopicPartition, reason: ApiError) -> list[LogDirectory]:
        """Have no log of a partition from now on; returns where its files are, for `LogManager.delete_logs`.

        Who waits for its appends gets `reason`.
        """
        self.missing.forget(partition)
        found = self.directories_of(partition)
        for directory in found:
            directory.retire(partition, reason)
        return found

    def delete_logs(self, retired: Mapping[TopicPartition, Sequence[LogDirectory]]) -> Steps:
        """Take the files of retired logs away, durably, with a few syncs for each directory; a failure is logged."""
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
        """Have a damaged log go on with what is left of it, which is nothing if it is missing.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        directory = self.directory_of(partition)
        if directory is None and partition in self.missing:
            logger.error(
                "a partition begins with an empty log: it was elected uncleanly, and its log is missing",
                log=directory_name(partition), reason=self.missing.reason(partition),
            )  # fmt: skip
            return self.create_log(partition, topic_id, config)
        if directory is None or partition not in directory.damaged:
            return self.log_of(partition)
        return directory.findings.accept_loss(partition, config, self.runtime.wall_clock_ms())

    # --- from time to time --------------------------------------------------------------------------------------------

    def maintain(self) -> int:
        """Delete what retention no longer keeps, flush what is due; returns how many segments were deleted.

        Kafka looks every `log.retention.check.interval.ms`. An error of a disk takes its directory offline.
        """
        return sum(self.maintain_in_steps())

    def maintain_in_steps(self) -> Iterator[int]:
        """The same, with a step for each log, which says how many segments it deleted.

        A log that is emptied is synced several times. Logs may come and go between two steps.
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
                    _warn("retention has to wait", error, directory=log.directory)
                if log.durability.is_flush_due(log.config, self.runtime.wall_clock_ms()):
                    directory.commits.wait(log, log.log_end_offset, lambda error: None)
                yield deleted

    def _remove_deleted(self) -> Steps:
        for directory in self.online:
            yield from directory.removal.remove_deleted()

    def _has_failed(self, error: BaseException) -> None:
        logger.error("work on the log directories has failed; it is tried again", reason=repr(error))

    def forget_producers(self, expiration_ms: int) -> int:
        """Forget the producers of each log that have appended nothing to it for so long; returns how many (DB-70).

        Kafka looks every `producer.id.expiration.check.interval.ms`.
        """
        now_ms = self._retention_now_ms()
        return sum(
            log.producers.states.expire(now_ms, expiration_ms)
            for directory in self.online for log in directory.logs.values()
        )  # fmt: skip

    def _retention_now_ms(self) -> int:
        """The time to delete and forget by."""
        was_on_trial = self._clock.is_on_trial
        now_ms = self._clock.now_ms(self.runtime.wall_clock_ms(), self.runtime.now_ms())
        if self._clock.is_on_trial and not was_on_trial:
            logger.warning(
                "the clock has jumped ahead: retention by time waits until it has kept to that for an hour",
                clock_ms=self.runtime.wall_clock_ms(), retention_clock_ms=now_ms,
            )  # fmt: skip
        return now_ms

    def checkpoint(self) -> None:
        """Begin to write the checkpoints of every directory, so that a start after a crash reads little (DB-97)."""
        self._write(self._checkpointing, LogDirectory.checkpoint)

    def checkpoint_high_watermarks(self) -> None:
        """Begin to write what of each log is committed, so that a start need not find out again (DB-97)."""
        self._write(self._saving_high_watermarks, LogDirectory.checkpoint_high_watermarks)

    def _write(self, work: SlicedWork, written: Callable[[LogDirectory], Steps]) -> None:
        def steps() -> Steps:
            for directory in self.online:
                try:
                    yield from written(directory)
                except ApiError as error:
                    _warn("a checkpoint is not written", error, path=directory.path)

        if work.is_idle:  # else the last time is still under way
            work.start(steps(), is_small=False)

    def stop_work(self) -> None:
        """Begin nothing any more because its time has come: `close` writes and flushes all, and may be in a thread."""
        for work in (self._removing, self._checkpointing, self._saving_high_watermarks):
            work.stop()
        for directory in self.directories:
            directory.stop_due_flushes()

    def close(self, broker_epoch: int) -> bool:
        """Shut every directory down cleanly; returns whether that went well. One that fails is recovered at the start.

        For any thread, when nothing is appended any more.
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
    """The broker's epoch at the clean shutdown of a directory, before `load`; one that cannot be read is offline."""
    try:
        return directory.records.clean_broker_epoch
    except (StorageError, FlushFailed) as error:
        directory.fail(error)
        return None


def _warn(event: str, error: ApiError, **where: str) -> None:
    """Log what has to wait; of a full disk the directory has said it, once for all."""
    if not isinstance(error.__cause__, OutOfSpace):
        logger.warning(event, reason=str(error), **where)
