"""What a broker makes of the logs in one log directory: which ones are damaged, missing or strays (DB-89).

`findings` decides that, from what the inventory and the files say. Here is what follows: the partition of a damaged log
is offline, the inventory forgets what need not be here, and a damaged log goes on without what is lost if that is
accepted.
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
    """Of one log directory. For one thread."""

    def __init__(
        self, host: LogHost, handles: FileHandles, path: str, records: DirectoryRecords, folders: LogFolders,
        logs: Mapping[TopicPartition, PartitionLog],
        open_log: Callable[[TopicPartition, Known, PartitionLogConfig, int], PartitionLog],
    ) -> None:  # fmt: skip
        """`logs`: those that are online. `open_log` opens a log with what is known of it, at a time in milliseconds."""
        self.damaged: dict[TopicPartition, str] = {}
        """The partitions that are offline because of damage, and what was found."""
        self._damaged_at_start: set[TopicPartition] = set()
        self._host = host
        self._handles = handles
        self._path = path
        self._records = records
        self._folders = folders
        self._logs = logs
        self._open_log = open_log

    def note_damage(self, partition: TopicPartition, reason: str) -> None:
        """The partition is offline, and its log is not used any more."""
        self.damaged[partition] = reason

    def damaged_at_start(self, partition: TopicPartition, error: CorruptLog) -> None:
        """A log is damaged as a start finds it: its partition is offline."""
        self._damaged_at_start.add(partition)
        self._host.partition_damaged(partition, error)

    def was_damaged_at_start(self, partition: TopicPartition) -> bool:
        """Whether a log is damaged, and was so already when the directory was opened."""
        return partition in self._damaged_at_start

    def forget(self, partition: TopicPartition) -> None:
        """The log is not here any more, or goes on."""
        self.damaged.pop(partition, None)
        self._damaged_at_start.discard(partition)

    # --- what the logs are --------------------------------------------------------------------------------------------

    def assess(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """What a log here is, by the id that the partition's topic has in the metadata; None: this is no replica of it.

        Raises ApiError(KAFKA_STORAGE_ERROR).
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
            # Which segments are missing is known; the question is whose log it is.
            entry = self._records.entry(partition)
            found_id = self._records.topic_ids.get(partition) or (entry and entry.topic_id)
            return Finding.DAMAGED if topic_id is not None and found_id in (None, topic_id) else Finding.STRAY
        files = LogFiles(self._records.topic_ids.get(partition), segments or {})
        return assess(topic_id, self._records.entry(partition), files)[0]

    def assess_missing(self, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        """What a log is that no directory has, by the inventory of this one. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        finding, reason = assess(topic_id, self._records.entry(partition), None)
        if finding is Finding.DAMAGED:
            self.damaged_at_start(partition, DamagedLog(join(self._path, directory_name(partition)), reason))
        elif topic_id is None or not self._records.is_expected(partition, topic_id):
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
            raise self._host.refusal(error) from error

    # --- going on without what is lost --------------------------------------------------------------------------------

    def damaged_files(self, partition: TopicPartition) -> DamagedFiles:
        """The files of a partition's log. Raises StorageError."""
        path = join(self._path, directory_name(partition))
        return DamagedFiles(self._handles, path, self._records.entry(partition))

    def accept_loss(self, partition: TopicPartition, config: PartitionLogConfig, now_ms: int) -> PartitionLog:
        """Have a damaged log go on with what is left of it; durable. It is said what is lost.

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
            self._records.note([log])
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error
        self.forget(partition)
        logger.error(
            "a damaged log goes on without what is lost", log=path, log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset, was_flushed_up_to=None if entry is None else entry.recovery_point,
            lost=[f"{one.start_offset} to {one.end_offset - 1}" for one in losses],
        )  # fmt: skip
        return log
