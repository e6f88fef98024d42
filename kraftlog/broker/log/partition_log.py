"""The log of one partition: appends, reads, flushes, truncation, deletion.

What is durable, and when:

- An append writes; a flush makes it durable, and raises the recovery point. One flush is under way at most; it may run
  in another thread. A roll flushes nothing: the next flush covers the segments before the last one, with their indexes.
- The file of leader epochs is written by the flush that raises the recovery point past the epoch's first batch; what it
  lacks before that, a start finds in the batches that it reads.
- Before a truncation the recovery point on disk is lowered, and later segments go before the cut, the last one first.
- DeleteRecords is durable when it returns; retention needs nothing durable, since the first segment shows the start.

A StorageError takes the log directory offline, damage in a segment only this log; without room the append is refused,
and the log is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from kraftbase.checks import check
from kraftbase.errors import ApiError, CorruptLog, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem
from kraftlog.broker.log.appends import Appended, check_produced, check_replicated, fitting
from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log.epoch_file import write_epochs
from kraftlog.broker.log.file_handles import FileHandles
from kraftlog.broker.log.flushes import PendingFlush
from kraftlog.broker.log.formats.batch_header import NO_TIMESTAMP, BatchHeader, set_append_time, set_place, writable
from kraftlog.broker.log.formats.indexes import AbortedTransaction
from kraftlog.broker.log.leader_epochs import LeaderEpochs
from kraftlog.broker.log.loading import LoadedLog
from kraftlog.broker.log.log_host import LogHost, LogSlice
from kraftlog.broker.log.producer_history import ProducerHistory, read_marker
from kraftlog.broker.log.producer_states import EndMarker, Origin
from kraftlog.broker.log.retention import NOTHING, Deletable, deletable
from kraftlog.broker.log.segment import BatchPlace
from kraftlog.broker.log.segment_list import SegmentList
from kraftlog.broker.log.timestamps import FoundRecord
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from statemachine.query.partition_descriptions import TopicPartition

Found = TypeVar("Found")
DISK_ERRORS: Final = (StorageError, FlushFailed)

HIGH_WATERMARK: Final = -1
"""As the offset of DeleteRecords: all that is committed."""


class PartitionLog:
    """A partition's log. For one thread."""

    def __init__(
        self, handles: FileHandles, directory: str, partition: TopicPartition, config: PartitionLogConfig,
        loaded: LoadedLog, host: LogHost,
    ) -> None:  # fmt: skip
        """Use `LogDirectory.open_log`."""
        self.partition = partition
        self.directory = directory
        self.config = config
        self.epochs: LeaderEpochs = loaded.epochs
        self.producers: ProducerHistory = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read."""
        self.recovery_point = loaded.recovery_point
        """Everything below is durable."""
        self.high_watermark = loaded.log_start_offset
        """Everything below is committed (DB-83); its owner raises it with `advance_high_watermark`."""
        self.last_append_ms = 0
        """When there was an append, by the clock that its caller gave."""
        self._handles = handles
        self._files: FileSystem = handles.files
        self._host = host
        self._segments = SegmentList(handles, directory, loaded.segments)
        self._unflushed = self._segments.from_offset(loaded.recovery_point)[:-1]
        self._has_new_names = True
        self._damage = ""
        self._pending: PendingFlush | None = None

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments.last.end_offset

    @property
    def size_bytes(self) -> int:
        """The bytes of its batches."""
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        """How many segments it has."""
        return len(self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it are only records of transactions that have ended, and are committed (DB-72)."""
        unstable = self.producers.states.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed; a lower one than before changes nothing."""
        check(offset <= self.log_end_offset, "what is committed is in the log", offset=offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.states.pass_high_watermark(offset)

    @property
    def recovery_point_to_save(self) -> int:
        """From where on a start must read: a closed segment is read whole until it is flushed with its indexes."""
        return min([self.recovery_point, *(segment.base_offset for segment in self._unflushed[:1])])

    # --- appending ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, data: Buffer, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Append the one batch of a request; durable after a flush. `data` is changed if that is possible.

        Raises ApiError as `check_produced` and `ProducerStates.check` do, KAFKA_STORAGE_ERROR if there is no room or
        the disk has failed; then the log is as it was.
        """
        self._check_online()
        header = check_produced(data, self.config, origin, now_ms)
        marker: EndMarker | None = None
        if header.producer_id >= 0:
            known = self.producers.states.duplicate_of(header) if not header.is_control else None
            if known is not None:
                return Appended(
                    known.first_offset, known.last_offset, self._append_time(known.timestamp_ms), self.log_start_offset,
                    is_duplicate=True,
                )  # fmt: skip
            marker = self._marker_of(data, header)
            self.producers.states.check(header, origin, marker)
        base_offset, stored = self.log_end_offset, writable(data)
        set_place(stored, 0, base_offset, leader_epoch)
        if self.config.has_log_append_time and not header.is_control:
            set_append_time(stored, 0, header, now_ms)
            header = header._replace(max_timestamp_ms=now_ms)
        header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
        self._write(stored, [BatchPlace(0, header)], [marker], now_ms)
        return Appended(base_offset, header.last_offset, self._append_time(now_ms), self.log_start_offset)

    def append_as_follower(self, data: Buffer, now_ms: int) -> int:
        """Append batches as a leader has them; a part of one at the end is left out. Returns the log end offset.

        Raises ApiError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR; then the log is as it was.
        """
        self._check_online()
        places = check_replicated(data, self.log_end_offset)
        markers = [
            self._marker_of(data[place.position : place.position + place.header.size_bytes], place.header)
            for place in places
        ]
        start = 0
        while start < len(places):
            end = fitting(places, start, self.config.segment_bytes)
            first, last = places[start], places[end - 1]
            run = [BatchPlace(place.position - first.position, place.header) for place in places[start:end]]
            view = memoryview(data)[first.position : last.position + last.header.size_bytes]
            self._write(view, run, markers[start:end], now_ms)
            start = end
        return self.log_end_offset

    def _append_time(self, now_ms: int) -> int:
        return now_ms if self.config.has_log_append_time else NO_TIMESTAMP

    def _marker_of(self, data: Buffer, header: BatchHeader) -> EndMarker | None:
        if not header.is_control or header.producer_id < 0:
            return None
        try:
            return read_marker(data, header)
        except MalformedBytes as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    def _write(
        self, data: Buffer, batches: Sequence[BatchPlace], markers: Sequence[EndMarker | None], now_ms: int
    ) -> None:
        segment = self._segments.last
        try:
            first, last = batches[0].header, batches[-1].header
            if segment.size_bytes and segment.why_roll(self.config, first, last, len(data), now_ms):
                self._roll(first.base_offset, now_ms)
                segment = self._segments.last
            segment.append(data, batches, self.config)
            for place, marker in zip(batches, markers, strict=True):
                header = place.header
                if header.leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self.producers.append(segment, header, marker)
        except DISK_ERRORS as error:
            self._failed(error)
        self.last_append_ms = now_ms
        self.producers.states.end_offset = segment.end_offset

    def assign_epoch(self, leader_epoch: int) -> None:
        """This broker leads the partition in a new epoch, which begins at the log's end (DB-68)."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self, now_ms: int) -> None:
        """Go on in a new segment, unless the last one is empty. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._check_online()
        try:
            if self._segments.last.size_bytes:
                self._roll(self.log_end_offset, now_ms)
        except DISK_ERRORS as error:
            self._failed(error)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        """Make the next segment; without room there is none, and the last one goes on."""
        closed = self._segments.last
        closed.close_indexes()
        if self.config.preallocates:
            self._handles.get(closed.path).truncate(closed.size_bytes)
        self.producers.snapshot(self.producers.states.end_offset)
        is_flushed = self.recovery_point >= base_offset
        if is_flushed:
            # The recovery point on disk may say that all of it is flushed. A start after a crash would not read it
            # again once there is a next segment, so its indexes and its size must be durable before. That is little.
            for path in (*closed.paths, *sorted(self.producers.unflushed)):
                self._handles.get(path).fsync()
            self.producers.unflushed.clear()
        self._segments.add(base_offset, self.config, now_ms)
        self._has_new_names = True
        if not is_flushed:
            self._unflushed.append(closed)

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush."""
        waiting, waited_ms = self.log_end_offset - self.recovery_point, now_ms - self.last_append_ms
        is_due = waiting >= self.config.flush_messages or waited_ms >= self.config.flush_ms
        return is_due and not self.is_flushed

    # --- flushing -----------------------------------------------------------------------------------------------------

    @property
    def is_flushed(self) -> bool:
        """Whether everything is durable."""
        return self.recovery_point >= self.log_end_offset and not self._unflushed

    @property
    def pending_flush(self) -> PendingFlush | None:
        """The flush that is under way."""
        return self._pending

    def start_flush(self) -> PendingFlush:
        """Begin to flush all that was appended so far. InvariantViolation while another flush is under way.

        Raises StorageError, also OutOfSpace; then none is under way.
        """
        check(self._pending is None, "one flush of a log is under way at most")
        if self.epochs.is_changed:
            # Not in the thread: by then the directory of a deleted log may be another log's. It syncs the directory.
            write_epochs(self._files, self.directory, self.epochs)
            self._has_new_names = False
        self.producers.write_aborted()
        paths = [path for segment in self._unflushed for path in segment.paths if self._files.exists(path)]
        paths.append(self._segments.last.path)
        paths += sorted(self.producers.unflushed)
        self.producers.unflushed.clear()
        self._pending = PendingFlush(
            self._handles, self.directory, paths, self.log_end_offset, tuple(self._unflushed),
            has_new_names=self._has_new_names,
        )  # fmt: skip
        self._has_new_names = False
        return self._pending

    def finish_flush(self, pending: PendingFlush) -> int:
        """Note that `pending.run()` has returned. Returns the recovery point."""
        check(pending is self._pending, "the flush that is finished is the one under way")
        self._pending = None
        pending.release()
        self._unflushed = [segment for segment in self._unflushed if segment not in pending.segments]
        self.recovery_point = max(self.recovery_point, min(pending.end_offset, self.log_end_offset))
        return self.recovery_point

    def abandon_flush(self, pending: PendingFlush) -> None:
        """Note that `pending.run()` has raised OutOfSpace: it is to be tried again."""
        check(pending is self._pending, "the flush that is abandoned is the one under way")
        self._pending = None
        pending.release()
        self._has_new_names = True

    def flush(self) -> int:
        """Make everything durable. Returns the recovery point. Raises FlushFailed, StorageError."""
        if not self.is_flushed or self.epochs.is_changed or self.producers.unflushed:
            pending = self.start_flush()
            try:
                pending.run()
            except OutOfSpace:
                self.abandon_flush(pending)
                raise
            self.finish_flush(pending)
        return self.recovery_point

    def retire(self) -> None:
        """The log is deleted: it takes nothing more, and a flush that is under way has no consequences."""
        self._damage = f"{self.directory} was deleted"
        if self._pending is not None:
            self._pending.is_needed = False

    def close(self) -> None:
        """Make everything durable, with indexes and a snapshot of the producers, so that a start reads nothing again.

        Raises StorageError, FlushFailed; InvariantViolation while a flush is under way.
        """
        check(self._pending is None, "a log is closed when no flush is under way")
        last = self._segments.last
        if self.config.preallocates:
            self._handles.get(last.path).truncate(last.size_bytes)
        last.close_indexes()
        self.producers.snapshot(self.producers.states.end_offset)
        self.producers.unflushed |= set(last.paths)
        self._has_new_names = True
        self.epochs.is_changed = True
        self.flush()

    # --- reading ------------------------------------------------------------------------------------------------------

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True) -> LogSlice | None:
        """The bytes from the batch with `offset` on, up to where the batch with `end_offset` begins; None if none is.

        At most `max_bytes`, and none if the first batch is larger, but with `min_one_batch` that is whole however large
        it is (DB-66). They are of one segment. Raises ApiError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition.topic}-{self.partition.partition_id} has offsets {self.log_start_offset} to"
                f" {self.log_end_offset}, and {offset} is asked for",
            )
        try:
            found = self._segments.locate(offset)
            if found is None or found[1].header.base_offset >= end_offset:
                return None
            segment, place = found
            end_position = segment.size_bytes
            if end_offset < segment.end_offset:
                last = segment.locate(end_offset)
                end_position = end_position if last is None else last.position
        except DISK_ERRORS as error:
            self._failed(error)
        byte_count = min(max(max_bytes, place.header.size_bytes if min_one_batch else 0), end_position - place.position)
        located = LogSlice(segment.path, place.position, byte_count, segment.end_offset < end_offset)
        return located if byte_count >= place.header.size_bytes else None

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True) -> bytes:
        """The bytes that `locate` finds; nothing if it finds none. Raises as it does."""
        found = self.locate(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
        return b"" if found is None else self.read_slice(found)

    def read_slice(self, found: LogSlice) -> bytes:
        """The bytes of a slice. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        return self._searched(lambda: self._handles.get(found.path).read_at(found.position, found.byte_count))

    def find_timestamp(self, timestamp_ms: int) -> FoundRecord | None:
        """The first record that is not older, by the records' own timestamps (DB-51). Raises as `read`."""
        return self._searched(lambda: self._segments.find_timestamp(timestamp_ms, self.log_start_offset))

    def find_newest(self) -> FoundRecord | None:
        """The record with the largest timestamp (DB-51); None if no record has one. Raises as `read`."""
        return self._searched(lambda: self._segments.find_newest(self.log_start_offset))

    def _searched(self, search: Callable[[], Found]) -> Found:
        self._check_online()
        try:
            return search()
        except DISK_ERRORS as error:
            self._failed(error)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of these offsets must leave out (DB-73). Raises as `read`."""
        segments = self._segments.from_offset(start_offset)
        return self._searched(lambda: self.producers.aborted(segments, start_offset, end_offset))

    # --- truncating and deleting --------------------------------------------------------------------------------------

    def truncate(self, end_offset: int) -> None:
        """Cut the log to `end_offset`, or to before the batch that has it inside; durable when it returns.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self._check_online()
        if end_offset >= self.log_end_offset:
            return
        try:
            self._host.lower_recovery_point(self.partition, min(end_offset, self.recovery_point))
            if end_offset <= self._segments.first.base_offset:
                self._start_over(end_offset)
                return
            while self._segments.last.base_offset >= end_offset:
                self._segments.remove_last()
            self._segments.last.truncate(end_offset)
            self._settle_after_cut()
        except DISK_ERRORS as error:
            self._failed(error)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and starts at `offset`. Durable. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._check_online()
        try:
            self._host.lower_recovery_point(self.partition, min(offset, self.recovery_point))
            self._start_over(offset)
        except DISK_ERRORS as error:
            self._failed(error)

    def _start_over(self, offset: int) -> None:
        self._segments.start_over(offset, self.last_append_ms)
        self.epochs.clear()
        self.producers.remove_all(offset)
        self.log_start_offset = self.high_watermark = offset
        self._host.save_log_start(self.partition, offset)
        self._settle_after_cut()

    def _settle_after_cut(self) -> None:
        end_offset = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.epochs.truncate_end(end_offset)
        last_base_offset = self._segments.last.base_offset
        self._unflushed = [segment for segment in self._unflushed if segment.base_offset < last_base_offset]
        self.producers.truncate(self._segments.from_offset(0), end_offset)
        self._files.fsync_directory(self.directory)
        self.recovery_point = min(self.recovery_point, end_offset)
        if self._pending is not None:
            self._pending.end_offset = min(self._pending.end_offset, self.recovery_point)

    def delete_records(self, offset: int) -> int:
        """Move the log's start to `offset`, or with HIGH_WATERMARK to that; durable. Returns the log's start.

        The segments below go with the next `delete_old_segments`. Raises ApiError: OFFSET_OUT_OF_RANGE beyond the high
        watermark, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        offset = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= offset <= self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records can be deleted up to the high watermark {self.high_watermark}, and {offset} is asked for",
            )
        if offset > self.log_start_offset:
            try:
                self._host.save_log_start(self.partition, offset)
                self._advance_start(offset)
            except DISK_ERRORS as error:
                self._failed(error)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> Deletable:
        """Delete the segments that may go (DB-82), at the time of a RetentionClock. Raises KAFKA_STORAGE_ERROR."""
        self._check_online()
        if self._pending is not None:
            return NOTHING  # it may be writing the file of epochs; the next round is soon
        found = deletable(
            self._segments.facts(), self.config, log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark, now_ms=now_ms,
        )  # fmt: skip
        if not found.segment_count:
            return found
        try:
            if found.segment_count == len(self._segments):
                self._roll(self.log_end_offset, now_ms)
            base_offset = self._segments.base_offset_of(found.segment_count)
            self._save_epochs()
            self._advance_start(max(self.log_start_offset, base_offset))
            self._segments.remove_first(found.segment_count)
            self._unflushed = [segment for segment in self._unflushed if segment.base_offset >= base_offset]
            self.producers.remove_below(base_offset)
        except DISK_ERRORS as error:
            self._failed(error)
        return found

    def _advance_start(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)

    def _save_epochs(self) -> None:
        """Before the log's start moves: an epoch that begins below it can then not be read from batches (DB-68)."""
        if self.epochs.is_changed:
            write_epochs(self._files, self.directory, self.epochs)

    # --- failing ------------------------------------------------------------------------------------------------------

    def _check_online(self) -> None:
        reason = self._host.offline_reason or self._damage
        if reason:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _failed(self, error: BaseException) -> NoReturn:
        if isinstance(error, CorruptLog):
            self._damage = str(error)
            self._host.partition_damaged(self.partition, self._damage)
        elif not isinstance(error, OutOfSpace):
            self._host.fail(error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
