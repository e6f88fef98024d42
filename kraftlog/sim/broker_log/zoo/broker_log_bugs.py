"""Bugs of a broker's partition logs: flushes, checkpoints, recovery, indexes, producers, retention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID

from kraftbase.errors import ApiError
from kraftbase.files.files import FileSystem, join
from kraftbase.partition import TopicPartition
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.sim.engine.mutation import instead, mutation
from kraftlog.storage import loading, swaps
from kraftlog.storage.directory_checkpoints import DirectoryCheckpoints
from kraftlog.storage.directory_findings import DirectoryFindings
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.durability import Durability
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Finding, Known
from kraftlog.storage.flushes import PendingFlush
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, TIME_ENTRY
from kraftlog.storage.formats.names import CLEAN_SHUTDOWN_NAME
from kraftlog.storage.inventory import Inventory
from kraftlog.storage.loading import Loader
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.producer_history import ProducerHistory
from kraftlog.storage.producer_states import ProducerState
from kraftlog.storage.recovery import SegmentScan
from kraftlog.storage.retention import RetentionClock
from kraftlog.storage.rewrites import Rewrites
from kraftlog.storage.segment import Segment


@mutation("an append is acknowledged before its group commit", "DB-64")
def acknowledged_before_flush() -> list[Any]:
    """The flush is requested, but the response does not wait for it."""
    acknowledge = LogDirectory.acknowledge

    def hasty(
        self: LogDirectory, log: PartitionLog, end_offset: int, on_durable: Callable[[ApiError | None], None]
    ) -> None:
        on_durable(None)
        acknowledge(self, log, end_offset, lambda error: None)

    return [instead(LogDirectory, "acknowledge", hasty)]


@mutation("readers get records that are not flushed", "DB-83")
def shown_before_flush() -> list[Any]:
    """The high watermark is the log end, even if the topic requires a flush."""

    def raise_high_watermark(self: Partition) -> None:
        if self.log is not None and self.log.log_end_offset > self.log.high_watermark:
            self.log.advance_high_watermark(self.log.log_end_offset)
            self.notify()

    return [instead(Partition, "raise_high_watermark", raise_high_watermark)]


@mutation("the recovery point is checkpointed before the flush", "KAFKA-10101")
def checkpoint_before_flush() -> list[Any]:
    """The recovery point is the log end instead of the durable end."""
    return [instead(Durability, "recovery_point_to_save", property(lambda self: self._segments.last.end_offset))]


@mutation("the mark of a clean shutdown stays", "KAFKA-10471")
def clean_mark_stays() -> list[Any]:
    """A start after a crash assumes that everything is flushed."""
    remove_mark = LogDirectory.load

    def load(self: LogDirectory, *given: Any) -> None:
        had_mark = self._files.exists(join(self.path, CLEAN_SHUTDOWN_NAME))
        remove_mark(self, *given)
        if had_mark:
            self._files.open(join(self.path, CLEAN_SHUTDOWN_NAME), create=True)
            self._files.fsync_directory(self.path)

    return [instead(LogDirectory, "load", load)]


@mutation("the name of a new segment is not synced", "ALICE, OSDI'14")
def segment_name_not_synced() -> list[Any]:
    """The content of the segment is durable, but its name is not."""

    def run(self: PendingFlush) -> None:
        for file in self._files:
            file.fdatasync()
        self._rename_epochs()

    return [instead(PendingFlush, "run_but_for_parent", run)]


@mutation("the name of a new log is not synced", "DB-95")
def log_name_unsynced() -> list[Any]:
    """A loss of power removes the directory of a log, with acknowledged records."""
    return [instead(PendingFlush, "sync_parent", lambda self: None)]


@mutation("a flush forgets the segments before the last one", "our own")
def closed_segments_not_flushed() -> list[Any]:
    """Records that were not flushed when the log was rolled stay unflushed."""
    rolled = Durability.rolled

    def forgetful(self: Durability, closed: Segment, base_offset: int) -> None:
        rolled(self, closed, base_offset)
        self._unflushed.clear()

    return [instead(Durability, "rolled", forgetful)]


@mutation("a torn tail is not cut", "ALICE, OSDI'14")
def torn_tail_not_cut() -> list[Any]:
    """The bytes of the torn tail stay behind the log end, until a part of them is overwritten."""
    cut = Loader._cut

    def careless(self: Loader, segment: Segment, scan: SegmentScan, later: list[int]) -> None:
        path = segment.path
        whole = self._handles.get(path).read_at(0, scan.file_bytes)
        cut(self, segment, scan, later)
        self._handles.get(path).write_at(0, whole)

    return [instead(Loader, "_cut", careless)]


@mutation("a start enters batches in indexes that have them", "our own")
def index_entries_twice() -> list[Any]:
    """The old entries stay, even those behind the log end."""
    read_segment = Loader._read_segment

    def careless(self: Loader, base_offset: int, suffixes: Sequence[str]) -> Any:
        old = Segment(self._handles, self._directory, base_offset, created_ms=self._now_ms)
        entries = []
        for path, packing in ((old.offsets.file.path, OFFSET_ENTRY), (old.times.file.path, TIME_ENTRY)):
            size = self._size_of(path) if self._files.exists(path) else 0
            entries.append(bytes(self._handles.get(path).read_at(0, size - size % packing.size)) if size else b"")
        segment, scan = read_segment(self, base_offset, suffixes)
        for file, data in zip((segment.offsets.file, segment.times.file), entries, strict=True):
            file._unwritten[:0] = data
            file.entry_count = len(file._unwritten) // file._packing.size
        return segment, scan

    return [instead(Loader, "_read_segment", careless)]


@mutation("a log ends where its index does", "our own")
def end_from_index() -> list[Any]:
    """After a clean shutdown, the next record gets the offset behind the last entry."""
    find_end = Loader._find_end

    def careless(self: Loader, segment: Segment) -> bool:
        is_sound = find_end(self, segment)
        entry = segment.offsets.lookup(segment.end_offset)
        if entry is not None:
            segment.end_offset = entry.offset + 1
        return is_sound

    return [instead(Loader, "_find_end", careless)]


@mutation("producers are forgotten at a start", "DB-75")
def producers_forgotten() -> list[Any]:
    """Batches that are sent again after the start are stored again."""

    def load(self: ProducerHistory, *_: Any) -> None:
        self.states.load((), 0)

    return [instead(ProducerHistory, "load", load)]


@mutation("a snapshot has one batch of a producer", "DB-75")
def one_batch_in_snapshots() -> list[Any]:
    """The producer's other batches in flight are out of order after a start, and are stored again in another epoch."""
    to_entries = ProducerState.to_entries
    return [instead(ProducerState, "to_entries", lambda self: to_entries(self)[-1:])]


@mutation("a start enters no aborted transactions", "DB-73")
def aborts_not_entered() -> list[Any]:
    """The index of a segment that a start reads again lacks the entries that a crash has lost."""
    replay = ProducerHistory._replay

    def careless(self: ProducerHistory, segment: Segment, start_offset: int, end_offset: int) -> None:
        with mock.patch.object(ProducerHistory, "_enter", lambda self, segment, aborted: None):
            replay(self, segment, start_offset, end_offset)

    return [instead(ProducerHistory, "_replay", careless)]


@mutation("retention deletes by a clock that has jumped", "our own")
def retention_by_wall_clock() -> list[Any]:
    """Retention trusts a jump of the machine's clock at once."""
    return [instead(RetentionClock, "now_ms", lambda self, wall_clock_ms, monotonic_ms: wall_clock_ms)]


@mutation("records are deleted before the new start is written", "DB-82")
def start_not_saved() -> list[Any]:
    """Only the next checkpoint contains the new start."""

    def save_log_start(self: DirectoryRecords, partition: TopicPartition, offset: int) -> None:
        return None

    return [instead(DirectoryRecords, "save_log_start", save_log_start)]


@mutation("a checkpoint that failed on a full disk counts as written", "our own")
def checkpoint_without_room() -> list[Any]:
    """The checkpoint is not written again until it changes."""

    def careless(self: DirectoryCheckpoints, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self.log_starts:
            self.log_starts = offsets
            self._write("log-start-offset-checkpoint", offsets)

    return [instead(DirectoryCheckpoints, "save_log_starts", careless)]


# --- the inventory ----------------------------------------------------------------------------------------------------


@mutation("the inventory is not read", "our own")
def inventory_not_read() -> list[Any]:
    """As at the first start of this version, nothing shows that files are missing."""

    def read(cls: type[Inventory], files: FileSystem, directory: str, directory_id: UUID) -> Inventory:
        return cls(files, directory, directory_id)

    return [instead(Inventory, "read", classmethod(read))]


@mutation("the log start of the checkpoint is believed", "our own")
def checkpoint_start_believed() -> list[Any]:
    """One changed bit moves the log's start."""
    known = DirectoryRecords.known

    def credulous(self: DirectoryRecords, partition: TopicPartition, names: Sequence[str]) -> Known:
        log_start_offset = self._checkpoints.log_starts.get(partition, 0)
        return replace(known(self, partition, names), log_start_offset=log_start_offset)

    return [instead(DirectoryRecords, "known", credulous)]


@mutation("the inventory is written after segments are removed", "our own")
def inventory_claims_too_much() -> list[Any]:
    """Only the next checkpoint matches the files. After a kill before it, intact logs count as damaged."""
    return [instead(DirectoryRecords, "about_to_remove_below", lambda self, partition, base_offset: None)]


@mutation("a roll is noted before the segment is durable", "our own")
def roll_noted_early() -> list[Any]:
    """A loss of power removes a segment that the inventory has."""
    return [
        instead(Durability, "durable_base_offset", property(lambda self: self._segments.last.base_offset)),
    ]


@mutation("a missing log is created again, and leads", "DB-89")
def missing_log_made_anew() -> list[Any]:
    """Healthy followers start over, because their leader has nothing."""

    def assess_missing(self: DirectoryFindings, partition: TopicPartition, topic_id: UUID | None) -> Finding:
        self.forget_missing([partition])
        return Finding.NEW

    return [instead(DirectoryFindings, "assess_missing", assess_missing)]


@mutation("an index of aborted transactions is believed", "DB-73")
def aborted_index_believed() -> list[Any]:
    """One changed bit, and readers of committed records get aborted ones."""
    return [instead(loading, "remove_wrong_indexes", lambda handles, directory, names, checksums: None)]


@mutation("batches are appended without a look at their records", "DB-84")
def records_not_read() -> list[Any]:
    """Batches that no consumer can read are acknowledged, and stop every consumer."""
    return [instead(PartitionLog, "_newest_of", lambda self, data, header, *_: header.max_timestamp_ms)]


@mutation("the offsets of records are not compared with their header", "DB-84")
def offsets_of_records_believed() -> list[Any]:
    """Readers get records with the offsets of other records."""
    summary = RecordHeads.summary
    return [instead(RecordHeads, "summary", lambda self: (*summary(self)[:2], -1))]


@mutation("a batch gets the timestamp of its oldest record", "DB-84")
def oldest_timestamp_taken() -> list[Any]:
    """A search by time finds nothing in the batch, and retention deletes it too early."""

    def summary(self: RecordHeads) -> tuple[int, int, int]:
        oldest, _, misplaced = found(self)
        return oldest, oldest, misplaced

    found = RecordHeads.summary
    return [instead(RecordHeads, "summary", summary)]


@mutation("a rewritten segment is not synced before it takes another's place", "DB-117")
def rewritten_not_synced() -> list[Any]:
    """The old segment, which was durable, is gone."""

    def make_durable(self: Rewrites, segment: Segment) -> None:
        pass

    return [instead(Rewrites, "_make_durable", make_durable)]


@mutation("the file of a segment stays open when another one has its path", "DB-117")
def replaced_file_stays_open() -> list[Any]:
    """Readers look in the old file for batches that are elsewhere in the new one."""
    put_in_place = swaps._put_in_place

    def put(handles: FileHandles, directory: str, old: Collection[int], new: Sequence[int]) -> None:
        kept = {path: file for path, file in handles._open.items() if path.startswith(directory)}
        for path in kept:
            del handles._open[path]
        put_in_place(handles, directory, old, new)
        handles._open.update(kept)

    return [instead(swaps, "_put_in_place", put)]
