"""Which logs of one log directory are damaged, missing or strays, and what the broker does about them (DB-89).

`findings` classifies a log by the inventory and the files. This module applies the consequences: the partition of a
damaged log is offline, the inventory forgets logs that need not exist, and after an accepted loss a damaged log
continues with the records that it still has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import structlog

from kraftbase.errors import CorruptLog, FlushFailed, StorageError
from kraftbase.files.files import join
from kraftbase.partition import TopicPartition
from kraftlog.storage.accepted_loss import DamagedFiles
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.damage import DamagedLog
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Finding, Known, LogFiles, assess
from kraftlog.storage.formats.names import directory_name
from kraftlog.storage.log_folders import LogFolders
from kraftlog.storage.log_host import LogHost
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import Steps, run_at_once

logger = structlog.get_logger(__name__)


class DirectoryFindings:
    """The damaged, missing and stray logs of one log directory. For one thread."""

    def __init__(
        self, host: LogHost, handles: FileHandles, path: str, records: DirectoryRecords, folders: LogFolders,
        logs: Mapping[TopicPartition, PartitionLog],
        open_log: Callable[[TopicPartition, Known, PartitionLogConfig, int], PartitionLog],
    ) -> None:  # fmt: skip
        """`logs` are the online logs. `open_log` opens a log; its last argument is the wall clock in milliseconds."""
        self.damaged: dict[TopicPartition, str] = {}
        """The partitions that are offline because of damage, with the reason for each."""
        self._damaged_at_start: set[TopicPartition] = set()
        self._host = host
        self._handles = handles
        self._path = path
        self._records = records
        self._folders = folders
        self._logs = logs
        self._open_log = open_log

    def note_damage(self, partition: TopicPartition, reason: str) -> None:
        """Record that the partition is offline and its log no longer used."""
        self.damaged[partition] = reason

    def damaged_at_start(self, partition: TopicPartition, error: CorruptLog) -> None:
        """Take the partition of a log offline that a startup found damaged."""
        self._damaged_at_start.add(partition)
        self._host.partition_damaged(partition, error)

    def was_damaged_at_start(self, partition: TopicPartition) -> bool:
        """Whether a log is damaged, and was so when the directory was opened."""
        return partition in self._damaged_at_start

    def remove(self, partition: TopicPartition) -> None:
        """Forget the damage of a log that was removed or repaired."""
        self.damaged.pop(partition, None)
        self._damaged_at_start.discard(partition)

    # --- assessment ---------------------------------------------------------------------------------------------------

    def assess(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """Classify a log of this directory by its topic's id in the metadata.

        `topic_id` is None if this broker has no replica of the partition. Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        log = self._logs.get(partition)
        segments = None if log is None else log.segment_bytes
        try:
            if topic_id is not None:
                self._records.settle_dispute(partition, topic_id, segments, 0 if log is None else log.log_end_offset)
        except DamagedLog as error:
            self.damaged_at_start(partition, error)
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error
        if partition in self.damaged:
            # The damage is known; what remains to be decided is whether the log belongs to that topic.
            entry = self._records.entry(partition)
            found_id = self._records.topic_ids.get(partition) or (entry and entry.topic_id)
            return Finding.DAMAGED if topic_id is not None and found_id in (None, topic_id) else Finding.STRAY
        files = LogFiles(self._records.topic_ids.get(partition), segments or {})
        return assess(topic_id, self._records.entry(partition), files)[0]

    def assess_missing(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """Classify a log that no directory has, by the inventory of this one. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        finding, reason = assess(topic_id, self._records.entry(partition), None)
        if finding is Finding.DAMAGED:
            self.damaged_at_start(partition, DamagedLog(join(self._path, directory_name(partition)), reason))
        elif topic_id is None or not self._records.is_expected(partition, topic_id):
            self.forget_missing([partition])
        return finding

    def forget_missing(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove logs that do not exist from the inventory. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        run_at_once(self.forget_all_missing(partitions))

    def forget_all_missing(self, partitions: Sequence[TopicPartition]) -> Steps:
        """Like `forget_missing`, in steps, with a few syncs for all logs together."""
        try:
            yield from self._folders.forget_all(partitions)
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error

    # --- accepting a loss ---------------------------------------------------------------------------------------------

    def damaged_files(self, partition: TopicPartition) -> DamagedFiles:
        """The files of a partition's log. Raises StorageError."""
        path = join(self._path, directory_name(partition))
        return DamagedFiles(self._handles, path, self._records.entry(partition))

    def accept_loss(self, partition: TopicPartition, config: PartitionLogConfig, now_ms: int) -> PartitionLog:
        """Repair a damaged log, durably, to continue with its remaining records; log the offsets that are lost.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self._host.check_online()
        path = join(self._path, directory_name(partition))
        try:
            found, entry = self.damaged_files(partition), self._records.entry(partition)
            losses = found.losses()
            found.mend()
            known = self._records.accepted(partition, found.end_offset, max(found.base_offsets, default=None))
            log = self._open_log(partition, known, config, now_ms)
            if entry is not None and entry.is_new:
                log.durability.sync_names()
            log.flush()
            self._records.record([log])
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error
        self.remove(partition)
        logger.error(
            "a damaged log continues without its lost records", log=path, log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset, was_flushed_up_to=None if entry is None else entry.recovery_point,
            lost=[f"{loss.start_offset} to {loss.end_offset - 1}" for loss in losses],
        )  # fmt: skip
        return log
