"""The records that a log directory keeps of its logs: the inventory, the checkpoints, and each log's topic id.

The inventory is written before the checkpoints, and before the files of a log change in a way that contradicts it. So
after a crash it claims nothing that the disk does not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol
from uuid import UUID

import structlog

from kraftbase.errors import CorruptLog, OutOfSpace, StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join, read_whole, write_new_file, write_temporary
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.damage import DamagedLog
from kraftlog.storage.directory_checkpoints import DirectoryCheckpoints, Offsets
from kraftlog.storage.findings import Known, lost_end, missing_segments
from kraftlog.storage.formats.checkpoints import decode_partition_metadata, encode_partition_metadata
from kraftlog.storage.formats.inventory import (
    LogEntry,
    entry_below,
    new_entry,
    starting_at,
    starting_over,
    without_below,
    without_range,
)
from kraftlog.storage.formats.names import (
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARKS_NAME,
    LOG_STARTS_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINTS_NAME,
    directory_name,
)
from kraftlog.storage.inventory import Inventory, decode_clean_shutdown, encode_clean_shutdown
from kraftlog.storage.slices import SLICE_LINES, Steps, run_at_once, slices

logger = structlog.get_logger(__name__)


class RecordedLog(Protocol):
    """The properties of an open log that are recorded."""

    partition: TopicPartition
    log_start_offset: int
    high_watermark: int

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def recovery_point_to_save(self) -> int:
        """The offset from which a startup must read the log."""
        ...

    @property
    def inventory_key(self) -> tuple[int, ...]:
        """A value that changes whenever `inventory_entry` may change."""
        ...

    def inventory_entry(self, topic_id: UUID) -> LogEntry:
        """The durable state of the log."""
        ...


class DirectoryRecords:
    """The records of one directory. For one thread. Every method that writes may raise StorageError and FlushFailed."""

    def __init__(self, files: FileSystem, path: str, inventory: Inventory) -> None:
        """Call `read` instead."""
        self.topic_ids: dict[TopicPartition, UUID] = {}
        """The topic id of each log, if its file or the inventory has one."""
        self._files = files
        self._path = path
        self._checkpoints = DirectoryCheckpoints(files, path)
        self._inventory = inventory
        self._noted: dict[TopicPartition, tuple[int, ...]] = {}  # the last recorded `inventory_key`
        self._disputed: dict[TopicPartition, LogEntry] = {}
        self._is_needed = True  # the inventory has logs that are not open
        self._are_checkpoints_behind = False
        self.came_by_hand: set[TopicPartition] = set()
        """The logs that existed at startup and were not in the inventory."""
        self._was_shut_down_cleanly = files.exists(join(path, CLEAN_SHUTDOWN_NAME))

    @classmethod
    def read(cls, files: FileSystem, path: str, directory_id: UUID) -> DirectoryRecords:
        """Read the inventory and the checkpoints. Changes nothing.

        Raises StorageError, also for damaged log start offsets if there is no inventory.
        """
        records = cls(files, path, Inventory.read(files, path, directory_id))
        try:
            records._checkpoints.read(has_inventory=bool(records._inventory.entries))
        except StorageError:
            records.release()
            raise
        return records

    @property
    def clean_broker_epoch(self) -> int | None:
        """The broker's epoch at its last shutdown, if that was a clean one. Read this before `start` (KIP-966)."""
        path = join(self._path, CLEAN_SHUTDOWN_NAME)
        return decode_clean_shutdown(read_whole(self._files, path)) if self._files.exists(path) else None

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The high watermark of each log at the last checkpoint."""
        return self._checkpoints.high_watermarks

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that the inventory has, in whatever state their logs are."""
        return list(self._inventory.entries)

    def entry(self, partition: TopicPartition) -> LogEntry | None:
        """The inventory's entry of a partition; None if there is none."""
        return self._inventory.entries.get(partition)

    # --- before a log is opened ---------------------------------------------------------------------------------------

    def known(self, partition: TopicPartition, names: Collection[str]) -> Known:
        """Return the recorded state of a log, before its files are read. `names` are the files in its directory.

        Raises CorruptLog if the log's topic id is unreadable, and the inventory does not have it either.
        """
        if partition not in self._inventory.entries:
            self.came_by_hand.add(partition)
        entry = self._settle_topic_id(partition, names)
        checkpointed = Known(
            recovery_point=self._checkpoints.recovery_points.get(partition, 0),
            log_start_offset=self._checkpoints.log_starts.get(partition, 0),
            high_watermark=self._checkpoints.high_watermarks.get(partition, 0),
            was_shut_down_cleanly=self._was_shut_down_cleanly,
        )
        if entry is None:
            return checkpointed
        found = replace(
            checkpointed,
            recovery_point=max(0, entry.recovery_point),
            log_start_offset=entry.log_start_offset,
            entry=entry,
        )
        if replace(checkpointed, entry=entry) == found:
            return found
        self._are_checkpoints_behind = True
        # After a crash the checkpoints may be a minute older.
        is_behind = (
            not self._was_shut_down_cleanly
            and checkpointed.log_start_offset <= found.log_start_offset
            and checkpointed.recovery_point <= found.recovery_point
        )
        if not is_behind:
            logger.warning(
                "checkpoints differ from the inventory; the inventory is used",
                log=directory_name(partition), path=self._path,
                log_start_offset=checkpointed.log_start_offset, inventory_log_start_offset=found.log_start_offset,
                recovery_point=checkpointed.recovery_point, inventory_recovery_point=found.recovery_point,
            )  # fmt: skip
        return found

    def _settle_topic_id(self, partition: TopicPartition, names: Collection[str]) -> LogEntry | None:
        """Determine the topic id of a log; return the log's entry in the inventory, unless the two ids differ."""
        entry = self._inventory.entries.get(partition)
        found_id = self._topic_id_in_file(partition, entry) if PARTITION_METADATA_NAME in names else None
        if found_id is not None:
            self.topic_ids[partition] = found_id
            if entry is not None and entry.topic_id != found_id:
                self._disputed[partition] = entry  # `settle_dispute` has the topic id of the metadata
                return None
        elif entry is not None:
            self.write_topic_id(partition, entry.topic_id)
        return entry

    def _topic_id_in_file(self, partition: TopicPartition, entry: LogEntry | None) -> UUID | None:
        path = join(join(self._path, directory_name(partition)), PARTITION_METADATA_NAME)
        try:
            return decode_partition_metadata(read_whole(self._files, path), path)
        except MalformedBytes as error:
            if entry is not None:
                return None
            raise CorruptLog(f"{error}. Put the file back as it was: it says which topic the records are of") from None

    def write_topic_id(self, partition: TopicPartition, topic_id: UUID) -> None:
        """Write `partition.metadata` for a log that has none, or a wrong one; without room the next startup does."""
        path = join(join(self._path, directory_name(partition)), PARTITION_METADATA_NAME)
        self.topic_ids[partition] = topic_id
        try:
            write_new_file(self._files, path, encode_partition_metadata(topic_id))
        except OutOfSpace as error:
            logger.warning("no room to write a log's topic id", path=path, reason=str(error))
        else:
            logger.warning("wrote a log's topic id again", path=path, topic_id=uuid_to_text(topic_id))

    def settle_dispute(
        self, partition: TopicPartition, topic_id: UUID, segments: Mapping[int, int] | None, end_offset: int
    ) -> None:
        """Decide between the topic ids of a log's file and of the inventory by the id in the metadata.

        `segments` maps base offsets to the sizes of the log's segments in bytes; None if the log is known to be
        damaged. `end_offset` is its log end offset. Raises DamagedLog.
        """
        entry = self._disputed.pop(partition, None)
        if entry is None:
            if partition not in self.topic_ids and segments is not None:
                self.write_topic_id(partition, topic_id)  # as Kafka does for a log without one
            return
        if entry.topic_id == topic_id:
            self.write_topic_id(partition, topic_id)  # before the check: a damaged log is no stray, either
            if segments is None:
                return
            known = Known(recovery_point=entry.recovery_point, entry=entry)
            reason = missing_segments(entry, segments) or lost_end(known, end_offset)
            if reason:
                raise DamagedLog(join(self._path, directory_name(partition)), reason)

    def start(self) -> None:
        """Record in the inventory that the directory is in use, and remove `.kafka_cleanshutdown`.

        Without room for that record the file gets its temporary name instead, so that the inventory still counts.
        """
        path = join(self._path, CLEAN_SHUTDOWN_NAME)
        temporary_path = path + TEMPORARY_SUFFIX
        if self._inventory.start():
            left = [name for name in (path, temporary_path) if self._files.exists(name)]
            for name in left:
                self._files.remove(name)
            if left:
                self._files.fsync_directory(self._path)
        elif self._files.exists(path):
            self._files.rename(path, temporary_path)
            self._files.fsync_directory(self._path)

    # --- recording the state of logs ----------------------------------------------------------------------------------

    def begin(self, logs: Mapping[TopicPartition, RecordedLog]) -> None:
        """Rewrite the inventory from the open logs; entries of logs that are not open are kept.

        Checkpoints that differ are rewritten, too: if the inventory is lost, the next startup has nothing else.
        """
        kept = {
            partition: entry
            for partition, entry in self._inventory.entries.items()
            if partition not in logs or partition in self._disputed
        }
        open_logs = {key: log for key, log in logs.items() if key in self.topic_ids and key not in kept}
        found = {key: log.inventory_entry(self.topic_ids[key]) for key, log in open_logs.items()}
        try:
            self._inventory.begin(kept | found)
        except OutOfSpace as error:
            logger.warning("no room to rewrite an inventory", path=self._path, reason=str(error))
        else:
            self._noted = {key: log.inventory_key for key, log in open_logs.items()}
        self._is_needed = bool(kept)
        if self._are_checkpoints_behind:
            with contextlib.suppress(OutOfSpace):  # the next checkpoint is written when there is room
                run_at_once(self.write_checkpoints(logs))
                self._are_checkpoints_behind = False

    def record(self, logs: Iterable[RecordedLog], *, is_synced: bool = True) -> bool:
        """Record the durable state of some logs in the inventory; return whether any of it has changed.

        Without `is_synced` the change is durable only after `sync`.
        """
        changed = {
            log.partition: log
            for log in logs
            if self._noted.get(log.partition) != log.inventory_key
            and log.partition in self.topic_ids
            and log.partition not in self._disputed
        }
        if changed:
            entries = {key: log.inventory_entry(self.topic_ids[key]) for key, log in changed.items()}
            self._inventory.save(entries, is_synced=is_synced)
            self._noted |= {key: log.inventory_key for key, log in changed.items()}
        return bool(changed)

    def _note_in_steps(self, logs: Mapping[TopicPartition, RecordedLog], look: Callable[[RecordedLog], None]) -> Steps:
        """Record all logs, durably, and call `look` for each one in the turn in which it is recorded."""
        is_news = False
        for some in slices(list(logs.values()), SLICE_LINES):
            present = [log for log in some if logs.get(log.partition) is log]
            is_news |= self.record(present, is_synced=False)
            for log in present:
                look(log)
            yield None
        if is_news:
            yield self.sync

    def write_high_watermarks(self, logs: Mapping[TopicPartition, RecordedLog]) -> Steps:
        """Write the high watermark of each log (DB-24). Logs may be added, removed and changed between two steps."""
        changes, found = self._checkpoints.changes(HIGH_WATERMARKS_NAME), Offsets()

        def look(log: RecordedLog) -> None:
            if log.high_watermark:
                found[log.partition] = log.high_watermark

        yield from self._note_in_steps(logs, look)
        yield from self._checkpoints.rewrite(HIGH_WATERMARKS_NAME, found, changes)

    def lower_high_watermarks(
        self, logs: Mapping[TopicPartition, RecordedLog], damaged: Collection[TopicPartition]
    ) -> None:
        """Lower each high watermark in the checkpoint to the log end offset that a crash has left (DB-24).

        Consider a checkpoint of 10, and a log that ends at 6 after a power failure. The log gets two other records,
        and the power fails again. Those records are not committed, but a checkpoint of 10 would cover them.
        """
        kept = {}
        for partition, offset in self.high_watermarks.items():
            log = logs.get(partition)
            if log is not None or partition in damaged:
                kept[partition] = offset if log is None else min(offset, log.log_end_offset)
        with contextlib.suppress(OutOfSpace):  # then there is no room for other records, either
            self._checkpoints.save_high_watermarks(kept)

    def write_checkpoints(self, logs: Mapping[TopicPartition, RecordedLog]) -> Steps:
        """Write the recovery point and the log start offset of each log.

        Logs may be added, removed and changed between two steps.
        """
        point_changes = self._checkpoints.changes(RECOVERY_POINTS_NAME)
        start_changes = self._checkpoints.changes(LOG_STARTS_NAME)
        points, starts = Offsets(), Offsets()

        def look(log: RecordedLog) -> None:
            points[log.partition] = log.recovery_point_to_save
            starts[log.partition] = log.log_start_offset

        yield from self._note_in_steps(logs, look)
        checkpoints = self._checkpoints
        yield from checkpoints.rewrite(RECOVERY_POINTS_NAME, checkpoints.recovery_points | points, point_changes)
        yield from checkpoints.rewrite(LOG_STARTS_NAME, checkpoints.log_starts | starts, start_changes)

    def note_registration(self, broker_epoch: int) -> None:
        """Record the broker's registration, by which an older copy of the inventory can be recognized."""
        self._inventory.register(broker_epoch)

    def end(self, broker_epoch: int) -> None:
        """Record a clean shutdown. The inventory stays valid even if a full disk or a kill cuts this short."""
        path = join(self._path, CLEAN_SHUTDOWN_NAME)
        write_temporary(self._files, path, encode_clean_shutdown(broker_epoch))
        self._files.fsync_directory(self._path)
        self._inventory.end(broker_epoch)
        self._files.rename(path + TEMPORARY_SUFFIX, path)
        self._files.fsync_directory(self._path)

    def release(self) -> None:
        """Close the files."""
        self._inventory.release()

    # --- before a log changes -----------------------------------------------------------------------------------------

    def about_to_cut(self, partition: TopicPartition, offset: int) -> None:
        """Record that the log is about to be truncated to `offset`."""
        self._lower(partition, lambda entry: entry_below(entry, offset))
        self._checkpoints.lower(partition, offset)

    def about_to_start_over(self, partition: TopicPartition, offset: int) -> None:
        """Record that the log is about to start over, empty, at `offset`."""
        self._lower(partition, lambda entry: starting_over(entry, offset))
        self._checkpoints.lower(partition, offset)
        self._checkpoints.save_log_start(partition, offset)

    def about_to_remove_below(self, partition: TopicPartition, base_offset: int) -> None:
        """Record that the log is about to lose the segments below `base_offset`.

        Deleting segments frees room, so it must not need any. Without room for this record the inventory is removed,
        and rebuilt later, unless it has entries of logs that are not open: then OutOfSpace is raised.
        """
        try:
            self._lower(partition, lambda entry: without_below(entry, base_offset))
        except OutOfSpace:
            if self._is_needed:
                raise
            self._inventory.remove()
            self._noted.clear()

    def about_to_rewrite(self, partition: TopicPartition, replaced: range) -> None:
        """Record that the segments whose base offsets are in a range are about to be replaced."""
        self._lower(partition, lambda entry: without_range(entry, replaced))

    def save_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Record the log start offset of a log."""
        self._lower(partition, lambda entry: starting_at(entry, offset))
        self._checkpoints.save_log_start(partition, offset)

    def _lower(self, partition: TopicPartition, change: Callable[[LogEntry], LogEntry]) -> None:
        entry = self._inventory.entries.get(partition)
        if entry is not None:
            self._noted.pop(partition, None)
            self._inventory.save({partition: change(entry)})

    def expect(self, topic_ids: Mapping[TopicPartition, UUID], *, is_synced: bool = True) -> None:
        """Record logs that are about to be created: a startup recreates those that a crash has removed (DB-95).

        Without `is_synced` the record is durable only after `sync`.
        """
        self._inventory.save({key: new_entry(value) for key, value in topic_ids.items()}, is_synced=is_synced)

    def is_expected(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether the inventory has the partition as one of that topic that is about to be created."""
        entry = self._inventory.entries.get(partition)
        return entry is not None and entry.is_new and entry.topic_id == topic_id

    def made(self, log: RecordedLog, topic_id: UUID) -> None:
        """Record that an expected log was created."""
        self.topic_ids[log.partition] = topic_id
        self._noted[log.partition] = log.inventory_key

    def sync(self) -> None:
        """Make the inventory durable; callable from any thread."""
        self._inventory.sync()

    def about_to_go(self, partitions: Collection[TopicPartition], *, is_synced: bool = True) -> None:
        """Record that logs are about to be deleted or set aside; without room for that they are removed all the same.

        The inventory changes first: consider a replica that is reassigned away and back, with a kill in between. If
        there was no room to remove its entry, the log is taken for damaged after such a kill, which loses nothing.
        """
        for partition in partitions:
            self._disputed.pop(partition, None)
            self._noted.pop(partition, None)
            self.topic_ids.pop(partition, None)
        try:
            self._inventory.save(dict.fromkeys(partitions), is_synced=is_synced)
        except OutOfSpace as error:
            logger.warning("no room to remove a deleted log from an inventory", path=self._path, reason=str(error))

    def accepted(self, partition: TopicPartition, end_offset: int, last_base_offset: int | None) -> Known:
        """Record that a damaged log continues with its records up to `end_offset`; return its new recorded state.

        `last_base_offset` is that of the last segment, and becomes the recovery point. With a lower one, a startup
        after a crash would take the gap between two segments for the crash's effect, and remove the segments after it.
        None if there is no segment: an empty log starts at its end, so that no offset is assigned twice.
        """
        self._disputed.pop(partition, None)
        entry = self._inventory.entries.get(partition)
        if partition not in self.topic_ids and entry is not None:
            self.write_topic_id(partition, entry.topic_id)
        start_offset = self._checkpoints.log_starts.get(partition, 0) if entry is None else entry.log_start_offset
        start_offset = end_offset if last_base_offset is None else min(start_offset, end_offset)
        recovery_point = start_offset if last_base_offset is None else last_base_offset
        self._lower(partition, lambda entry: replace(starting_over(entry, start_offset), recovery_point=recovery_point))
        self._checkpoints.accepted(partition, start_offset, recovery_point)
        return Known(recovery_point=recovery_point, log_start_offset=start_offset)

    def forget_checkpoints(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of logs that are gone; call `write_outdated_checkpoints` afterwards."""
        self._checkpoints.remove(partitions)

    def write_outdated_checkpoints(self) -> None:
        """Write the checkpoint files that have offsets of logs which are gone."""
        self._checkpoints.write_outdated()
