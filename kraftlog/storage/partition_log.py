"""The log of one partition: appends, truncation, deletion. `Durability` flushes it, `LogReader` reads it.

- An append writes; a flush makes it durable. Without room an append is refused, and the log does not change.
- Before a truncation the recovery point on disk is lowered. Then later segments are removed, the last one first, and
  then the segment with the offset is cut.
- DeleteRecords is durable when it returns. Retention need not save the log start offset, since the first segment shows
  it; only before all segments are deleted it is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode, FlushFailed, StorageError
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.storage.appends import Appended, check_produced, check_replicated, fitting
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.durability import Durability
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.batch_header import (
    BatchHeader,
    set_append_time,
    set_max_timestamp,
    set_place,
    unpack_header,
    writable,
)
from kraftlog.storage.formats.inventory import LogEntry
from kraftlog.storage.health import LogHealth
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.loading import LoadedLog
from kraftlog.storage.log_entries import inventory_entry
from kraftlog.storage.log_host import LogHost, OnDurable
from kraftlog.storage.log_reader import LogReader
from kraftlog.storage.old_log import OldLog
from kraftlog.storage.produced_records import NotReadYet, ProducedRecords
from kraftlog.storage.producer_history import ProducerHistory, read_marker
from kraftlog.storage.producer_states import EndMarker, Origin
from kraftlog.storage.retention import NOTHING, Deletable, deletable
from kraftlog.storage.rewrites import Rewrites
from kraftlog.storage.segment_list import SegmentList
from kraftlog.storage.truncated_records import TruncatedRecords

HIGH_WATERMARK: Final = -1
"""As the offset of DeleteRecords: up to the high watermark."""

EPOCH_MAX: Final = 2**31 - 1


class PartitionLog:
    """A partition's log. For one thread."""

    def __init__(
        self, handles: FileHandles, directory: str, partition: TopicPartition, config: PartitionLogConfig,
        loaded: LoadedLog, host: LogHost,
    ) -> None:  # fmt: skip
        """Only `LogDirectory` opens logs."""
        self.partition = partition
        self.directory = directory
        self.config = config
        self.epochs: LeaderEpochs = loaded.epochs
        self.producers: ProducerHistory = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read."""
        self.high_watermark = loaded.high_watermark
        """Every record below this offset is committed (DB-83); the owner calls `advance_high_watermark` to raise it."""
        self._handles = handles
        self._host = host
        self._segments = SegmentList(handles, directory, loaded.segments)
        self._truncated_records = TruncatedRecords(handles, directory, self._segments, loaded.names)
        self._old_log = OldLog(handles, directory, loaded.names)
        self._health = LogHealth(partition, host)
        self.durability = Durability(
            handles, directory, self._segments, self.epochs, self.producers, loaded.epochs_are_saved_below,
            host.wall_clock_ms(), is_new=loaded.is_new,
        )  # fmt: skip
        """The recovery point, and the flushes that raise it."""
        self.reader = LogReader(
            handles, partition, self._segments, self.producers, self._health, lambda: self.log_start_offset,
            host.inflation,
        )  # fmt: skip
        """Reads the log."""
        self.rewrites = Rewrites(
            handles, directory, partition, self._segments, self.producers, self.durability, self._health, host,
            lambda: host.record_files(self),
        )  # fmt: skip
        """Rewrites closed segments."""

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments.last.end_offset

    @property
    def recovery_point(self) -> int:
        """Every record below this offset is durable."""
        return self.durability.recovery_point

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        """The number of segments."""
        return len(self._segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which records are committed and belong to no open transaction (DB-72).

        Never below the log start offset, even if an open transaction begins there.
        """
        unstable = self.producers.states.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`; a lower offset changes nothing."""
        if offset > self._segments.last.end_offset:
            check(False, "the high watermark is not above the log end offset", offset=offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.states.pass_high_watermark(offset)

    @property
    def recovery_point_to_save(self) -> int:
        """The offset from which a startup must read the log."""
        return self.durability.recovery_point_to_save

    @property
    def inventory_key(self) -> tuple[int, ...]:
        """A value that changes whenever `inventory_entry` may change."""
        durability = self.durability
        return (
            durability.is_new, self.log_start_offset, durability.recovery_point_to_save, durability.durable_base_offset,
            self._segments.first.base_offset, self.producers.aborted_checksum(self._segments.last),
        )  # fmt: skip

    def inventory_entry(self, topic_id: UUID) -> LogEntry:
        """The durable state of the log."""
        return inventory_entry(topic_id, self.log_start_offset, self.durability, self._segments, self.producers)

    @property
    def segment_bytes(self) -> dict[int, int]:
        """The size in bytes of each segment, by base offset."""
        return {segment.base_offset: segment.size_bytes for segment in self._segments.from_offset(0)}

    # --- appending ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT,
        budget: ScanBudget | None = None, records: ProducedRecords | None = None,
    ) -> Appended:  # fmt: skip
        """Append the one batch of a request; it is durable after a flush. A writable `data` is changed in place.

        `budget` limits the records that are read now; by default all are. Raises NotReadYet if it does not suffice:
        read the rest of its `records`, then append again with them.

        Raises ApiError like `check_produced`, `ProducedRecords` and `ProducerStates.check`, and KAFKA_STORAGE_ERROR if
        there is no room or the disk has failed; then the log has not changed.
        """
        self._health.check()
        header, known = check_produced(data, self.config, origin, self.producers.states.duplicate_of)
        if known is not None:
            return Appended(
                known.first_offset, known.last_offset, self._stored_append_time(known.first_offset),
                self.log_start_offset, is_duplicate=True,
            )  # fmt: skip
        newest_ms = self._newest_of(data, header, now_ms, budget, records)
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            marker = self._marker_of(data, header)
            self.producers.states.check(header, origin, marker)
        base_offset, stored = self._segments.last.end_offset, writable(data)
        set_place(stored, 0, base_offset, leader_epoch)
        if self.config.has_log_append_time and not header.is_control:
            set_append_time(stored, 0, header, now_ms)
        elif newest_ms != header.max_timestamp_ms:
            set_max_timestamp(stored, 0, header, newest_ms)
        header = unpack_header(stored)
        self._write(stored, (header,), (marker,), now_ms)
        return Appended(base_offset, header.last_offset, self._append_time(now_ms), self.log_start_offset)

    def _newest_of(
        self, data: Buffer, header: BatchHeader, now_ms: int, budget: ScanBudget | None, records: ProducedRecords | None
    ) -> int:
        """Validate the records, and return their largest timestamp; the header's if they need not be validated."""
        if records is None:
            if not self.config.validates_records:
                return header.max_timestamp_ms
            newest_ms = self._host.plain.newest_ms(data, header, self.config, now_ms, budget)
            if newest_ms is not None:
                return newest_ms
            records = ProducedRecords(data, header, self.config, now_ms, self._host.inflation)
        if not records.read(budget):
            raise NotReadYet(records)
        return records.max_timestamp_ms

    def append_as_follower(self, data: Buffer, now_ms: int, leader_epoch: int = EPOCH_MAX) -> int:
        """Append batches from a leader, without an incomplete one at the end. Return the log end offset.

        Raises ApiError: CORRUPT_MESSAGE, also for batches of a later epoch than the leader's, and then the log has not
        changed; KAFKA_STORAGE_ERROR, and then a first part of the batches may have been appended.
        """
        self._health.check()
        places = check_replicated(data, self.log_end_offset, range(self.epochs.latest, leader_epoch + 1))
        markers = [
            self._marker_of(data[place.position : place.position + place.header.size_bytes], place.header)
            for place in places
        ]
        start = 0
        while start < len(places):
            end = fitting(places, start, self.config.segment_bytes)
            first, last = places[start], places[end - 1]
            view = memoryview(data)[first.position : last.position + last.header.size_bytes]
            self._write(view, [place.header for place in places[start:end]], markers[start:end], now_ms)
            start = end
        return self.log_end_offset

    def _append_time(self, now_ms: int) -> int:
        return now_ms if self.config.has_log_append_time else NO_TIMESTAMP

    def _stored_append_time(self, offset: int) -> int:
        """Return the append time of the batch at an offset; -1 if it has its producer's timestamps, or was deleted."""
        if not self.config.has_log_append_time or offset < self.log_start_offset:
            return NO_TIMESTAMP
        with self._health:
            found = self._segments.locate(offset)
        return NO_TIMESTAMP if found is None else found[1].header.max_timestamp_ms

    def _marker_of(self, data: Buffer, header: BatchHeader) -> EndMarker | None:
        if not header.is_control or header.producer_id < 0:
            return None
        try:
            return read_marker(data, header)
        except MalformedBytes as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    def _write(
        self, data: Buffer, headers: Sequence[BatchHeader], markers: Sequence[EndMarker | None], now_ms: int
    ) -> None:
        """Write consecutive batches, which are the content of `data`. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        try:
            self._host.full_disk.reserve(len(data))
            segment = self._segments.last
            if segment.size_bytes and segment.why_roll(self.config, headers[0], headers[-1], len(data), now_ms):
                self._roll(headers[0].base_offset, now_ms)
                segment = self._segments.last
            segment.append(data, headers, self.config)
            latest_epoch = self.epochs.latest
            for header, marker in zip(headers, markers, strict=True):
                if header.leader_epoch > latest_epoch:
                    latest_epoch = header.leader_epoch
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self.producers.append(segment, header, marker, now_ms)
        except (StorageError, FlushFailed) as error:
            raise self._health.refusal(error) from error
        self.durability.appended(now_ms)

    def assign_epoch(self, leader_epoch: int) -> None:
        """Note that this broker leads the partition in a new epoch, which begins at the log end offset (DB-68)."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self, now_ms: int) -> None:
        """Roll to a new segment, unless the last one is empty. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        with self._health:
            if self._segments.last.size_bytes:
                self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Create the next segment. Raises OutOfSpace without room for it; then the last segment remains in use."""
        closed = self._segments.last
        closed.close_indexes()
        file = self._handles.get(closed.path)
        if file.size() != closed.size_bytes:  # it was preallocated, or an append failed for lack of room
            file.truncate(closed.size_bytes)
        self.producers.snapshot(base_offset)
        self.durability.before_roll(closed, base_offset)
        self._segments.add(base_offset, self.config, now_ms)
        self.durability.rolled(closed, base_offset)

    # --- durability ---------------------------------------------------------------------------------------------------

    def acknowledge(self, end_offset: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when an append that ends at `end_offset` is as durable as its config requires."""
        self._host.acknowledge(self, end_offset, on_durable)

    def flush(self) -> int:
        """Make everything durable. Return the recovery point. Raises FlushFailed, StorageError."""
        return self.durability.flush()

    def retire(self, reason: str) -> None:
        """Refuse all further use, and ignore the result of a flush in progress: the log is deleted or damaged."""
        self._health.retire(reason)
        self.durability.retire()

    def close(self) -> None:
        """Make everything durable, with indexes and a snapshot of producers, so that a startup reads no batches again.

        A log whose records are durable already needs no sync: a startup detects an index or a snapshot that a power
        failure has corrupted, rebuilds the index, and replays the batches after an older snapshot.
        Raises StorageError, FlushFailed, and InvariantViolation while a flush is in progress.
        """
        check(self.durability.pending is None, "a log is closed when no flush is under way")
        last = self._segments.last
        is_durable = self.durability.is_flushed and not self.producers.has_unwritten
        if self.config.preallocates:
            self._handles.get(last.path).truncate(last.size_bytes)
        if last.size_bytes:
            last.close_indexes()
        if self.log_end_offset > self.log_start_offset or self.producers.states.to_entries():
            self.producers.snapshot(self.log_end_offset)
        if not (is_durable and self.epochs.are_saved_below(self.log_end_offset)):
            self.durability.flush_whole()

    # --- truncating and deleting --------------------------------------------------------------------------------------

    def establish(self) -> None:
        """Make the names of a new log durable before its files change in a way that a crash must not undo.

        Raises StorageError, FlushFailed.
        """
        if self.durability.is_new:
            self.durability.sync_names()
            self._host.record_files(self)

    def truncate_as_follower(self, end_offset: int, leader_epoch: int) -> None:
        """Like `truncate`, but keep the truncated records, which that epoch's leader lacks, beside the log (DB-31)."""
        with self._health:
            self._truncated_records.keep(end_offset, leader_epoch, self.high_watermark)
        self.truncate(end_offset)

    def forget_kept_records(self) -> None:
        """Remove the files kept at a truncation or start-over, if the high watermark shows that they are not needed."""
        if len(self._truncated_records) or len(self._old_log):
            with self._health:
                self._truncated_records.delete_obsolete(self.high_watermark, self.epochs)
                self._old_log.delete_obsolete(self.high_watermark, self.epochs)

    def remove_old_log_without_room(self) -> None:
        """Remove the old log that a start-over has left, if less than a tenth of the disk is free."""
        if len(self._old_log):
            with self._health:
                self._old_log.remove_without_room()

    def truncate(self, end_offset: int) -> None:
        """Truncate the log to `end_offset`, or to the beginning of the batch that contains it; durable at return.

        Epochs that begin there or later are removed, even if no record is: consider a leader of epoch 5 that has
        appended nothing at offset 10, and now follows a leader that does not know epoch 5. Raises
        ApiError(KAFKA_STORAGE_ERROR).
        """
        with self._health:
            if end_offset >= self.log_end_offset:
                self.epochs.truncate_end(self.log_end_offset)
                return
            self.establish()
            if end_offset <= self._segments.first.base_offset:
                self._start_over(end_offset)
                self._host.record_files(self)
                return
            found = self._segments.locate(end_offset)
            cut_offset = end_offset if found is None else min(end_offset, found[1].header.base_offset)
            self._host.records.about_to_cut(self.partition, cut_offset)
            self._lower_start_before_cut(cut_offset)
            while self._segments.last.base_offset >= end_offset:
                self._segments.remove_last()
            self._segments.last.truncate(end_offset)
            self._settle_after_cut()
            self._host.record_files(self)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records, durably; the empty log starts at `offset`. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        with self._health:
            self._start_over(offset)
            self._host.record_files(self)

    def start_over_as_follower(self, offset: int, leader_epoch: int) -> None:
        """Like `truncate_fully_and_start_at`, but set the old log aside, which that epoch's leader lacks (DB-34)."""
        with self._health:
            is_kept = self.size_bytes > 0 and self._old_log.begin(offset, leader_epoch)
            self._start_over(offset, self._old_log if is_kept else None)
            self._old_log.end()
            self._host.record_files(self)

    def _start_over(self, offset: int, old_log: OldLog | None = None) -> None:
        # After retention only the first segment shows the log start offset. While there is no segment, a crash must not
        # make the log begin below `offset`, where offsets would be used again, nor above it, if this is a truncation
        # below the log start offset.
        self.establish()
        self._host.records.about_to_start_over(self.partition, offset)
        self._segments.start_over(offset, self._host.wall_clock_ms(), old_log)
        self.durability.removed_below(offset)
        self.epochs.clear()
        self.producers.remove_all()
        self.log_start_offset = self.high_watermark = offset
        self._settle_after_cut()

    def _lower_start_before_cut(self, cut_offset: int) -> None:
        """Lower the log start offset before a truncation below it, such as one to an unclean leader's shorter log.

        Consider a log start offset of 8, a truncation to 4, and a kill when the segments are cut and the start on disk
        is still 8: the log would begin at 8, empty. It would copy from offset 8 on what its leader appends, and lack
        offsets 4 to 7.
        """
        if cut_offset < self.log_start_offset:
            self._host.records.save_log_start(self.partition, cut_offset)
            self.log_start_offset = cut_offset

    def _settle_after_cut(self) -> None:
        end_offset = self.log_end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.epochs.truncate_end(end_offset)
        self.producers.truncate(self._segments.from_offset(0), end_offset, self.high_watermark)
        self._handles.files.fsync_directory(self.directory)
        self.durability.cut(end_offset)

    def delete_records(self, offset: int) -> int:
        """Move the log start offset to `offset`, durably; HIGH_WATERMARK stands for the high watermark.

        Return the log start offset. The next `delete_old_segments` removes the segments below it. Raises ApiError:
        OFFSET_OUT_OF_RANGE for an offset above the high watermark, KAFKA_STORAGE_ERROR.
        """
        self._health.check()
        offset = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is out of range: records can be deleted up to the high watermark"
                f" {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            with self._health:
                self.establish()
                self._host.records.save_log_start(self.partition, offset)
                self._advance_start(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> Deletable:
        """Delete the segments that retention does not keep (DB-82); return which. `now_ms` is a RetentionClock's.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self._health.check()
        if self.durability.pending is not None:
            return NOTHING  # the flush may be writing the file of epochs; the next call is soon
        found = self._deletable(now_ms)
        if not found.segment_count:
            return found
        with self._health:
            while self._segments.check_largest(found.segment_count):
                found = self._deletable(now_ms)  # an index had a wrong largest timestamp
            if not found.segment_count:
                return found
            if found.segment_count == len(self._segments):
                self._roll(self.log_end_offset, now_ms)
            self.establish()
            # The segment that becomes the first one may have been created since the last flush.
            self._handles.files.fsync_directory(self.directory)
            self.durability.names_are_durable()
            base_offset = self._segments.base_offset_of(found.segment_count)
            self._host.records.about_to_remove_below(self.partition, base_offset)
            self.durability.save_epochs()  # an epoch that begins below the start cannot be read from batches (DB-68)
            self._advance_start(max(self.log_start_offset, base_offset))
            self._segments.remove_first(found.segment_count)
            self.durability.removed_below(base_offset)
            self.producers.remove_below(base_offset)
        return found

    def _deletable(self, now_ms: int) -> Deletable:
        return deletable(
            self._segments.facts(), self.config, log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark, now_ms=now_ms,
        )  # fmt: skip

    def _advance_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)
