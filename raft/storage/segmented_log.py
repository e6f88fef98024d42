"""The durable log: segments of framed batches, an epoch cache, and a cache of the last batches.

What is durable, and when:

- `append` writes; only a flush makes it durable. At most one flush is in progress; it may run in another thread while
  this one appends and reads. Everything else is for one thread.
- A full segment is flushed before the next one is made, and the next one's file and name are synced before anything is
  written to it. So data that is not flushed is in the last segment only, and a segment's existence proves that
  everything before it is durable.
- `truncate` first removes later segments, the last one first, and syncs the directory after each; then it cuts the
  file. After a crash at any step a prefix of the log is left that holds everything below the cut.
- The log's start is written before the segments below it are removed, and before a snapshot replaces the log.
- `reserve` allocates ahead, so that appends do not fail for lack of space and a flush has no file size to write.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kraftbase.checks import check
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode, InvariantViolation, OutOfSpace
from kraftbase.files.files import File, FileSystem, join
from kraftbase.types import Epoch, Offset
from raft.core.epochs import EpochCache
from raft.core.log import is_replaced_by
from raft.core.types import Batch, OffsetAndEpoch, RecoveringLog
from raft.storage.frame import HEAD_BYTES, MAX_POSITION, NO_CRC, framed_bytes_max
from raft.storage.log_start_file import write_log_start
from raft.storage.new_directory import end_founding, read_new_directory, remove_new_directory
from raft.storage.recovering_file import end_recovering
from raft.storage.recovery import RecoveredLog, RecoveryReport, mend_copies_of, recover
from raft.storage.segment import Segment, create_segment, segment_name
from raft.storage.tail_cache import TailCache


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Sizes of a log. Raises ConfigurationError when a value is out of range."""

    segment_bytes: int = 64 * 1024 * 1024
    """The size at which a segment is closed: before an append that would exceed it. One append is in one segment."""
    preallocate_bytes: int = 1024 * 1024
    """The step in which the last segment's file grows."""
    reserve_bytes: int = 64 * 1024
    """The room that client appends leave free for control batches and markers."""
    tail_cache_bytes: int = 8 * 1024 * 1024
    """How many bytes of the last batches stay in memory."""

    def __post_init__(self) -> None:
        bounds = {
            "segment_bytes": (1, MAX_POSITION // 2),
            "preallocate_bytes": (1, MAX_POSITION // 4),
            "reserve_bytes": (0, MAX_POSITION // 4),
            "tail_cache_bytes": (0, None),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if value < low or (high is not None and value > high):
                raise ConfigurationError(f"{name} is {value}; it must be at least {low} and at most {high}")


class PendingFlush:
    """A flush that was started: `run` does the work, in any thread; then pass it to the log's `finish_flush`."""

    __slots__ = ("_file", "end_offset")

    def __init__(self, file: File, end_offset: Offset) -> None:
        self._file = file
        self.end_offset = end_offset
        """The log is durable up to here when `run` has returned; a truncation in the meantime lowers it."""

    def run(self) -> None:
        """Make it durable. Raises FlushFailed."""
        self._file.fdatasync()


class SegmentedLog:
    """A log of batches in a directory of its own. See the module for what is durable when."""

    def __init__(self, files: FileSystem, directory: str, config: LogConfig, recovered: RecoveredLog) -> None:
        """Use `open`."""
        self.epochs: EpochCache = recovered.epochs
        """The start offsets of the epochs and of the log. Replaced by `truncate_fully_and_start_at`."""
        self.recovery: RecoveryReport = recovered.report
        """The findings and actions of opening the log."""
        self.recovering: RecoveringLog | None = recovered.recovering
        """Set while data that was once durable is missing: see `end_recovering`."""
        self.new_directory: RecoveringLog | None = read_new_directory(files, directory)
        """Set while the directory is new, for its voter: see `end_recovering`."""
        self._files = files
        self._directory = directory
        self._config = config
        self._segments = recovered.segments
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._tail = TailCache(config.tail_cache_bytes)
        self._flushed_end_offset = self.log_end_offset
        self._vouched_offset = recovered.vouched_offset
        self._pending: PendingFlush | None = None
        self._retired: list[File] = []

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        *,
        config: LogConfig | None = None,
        minimum_durable_offset: Offset = Offset(0),
        accept_damage_in_epoch: Epoch | None = None,
        may_create: bool = True,
    ) -> SegmentedLog:
        """Open the log in `directory`, or make it. A torn tail is cut; when it returns, everything is durable.

        `minimum_durable_offset` is an offset up to which the caller knows the log to have been flushed; without
        `may_create` the caller knows that a log existed. Raises CorruptLog when durable data is damaged or missing,
        naming file, byte and offset; then no file was changed. With `accept_damage_in_epoch`, the replica's durable
        epoch, it opens the undamaged part, and `recovering` shows what must be fetched again.
        """
        recovered = recover(files, directory, minimum_durable_offset, accept_damage_in_epoch, may_create=may_create)
        mend_copies_of(files, directory)
        return cls(files, directory, config or LogConfig(), recovered)

    @property
    def start(self) -> OffsetAndEpoch:
        """Where the log starts, and the epoch of the record before; 0 or where a snapshot ends (SN-43, SN-54)."""
        return self.epochs.start

    @property
    def log_start_offset(self) -> Offset:
        """The first offset in the log."""
        return self.epochs.start.offset

    @property
    def size_bytes(self) -> int:
        """The bytes in its segments; the first one may begin before the log's start."""
        return sum(segment.end_position for segment in self._segments)

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record will get."""
        return self._segments[-1].end_offset

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends, and the epoch of the last record."""
        return OffsetAndEpoch(epoch=self.epochs.last_epoch, offset=self.log_end_offset)

    @property
    def flushed_end_offset(self) -> Offset:
        """Everything below is durable."""
        return self._flushed_end_offset

    def reserve(self, byte_count: int) -> None:
        """Reserve room for `byte_count` bytes of batches, whatever their number, in addition to the fixed reserve.

        Not cumulative: give all bytes that were accepted and not yet appended. Rolls to a new segment if they do not
        fit. Cheap when the room is already reserved. Raises OutOfSpace, then nothing changed.
        """
        framed = framed_bytes_max(byte_count)
        segment = self._segments[-1]
        if self._is_full(segment, framed):
            self._roll(framed)
        else:
            segment.reserve(framed + self._config.reserve_bytes, self._config.preallocate_bytes)

    def append(self, batches: Sequence[Batch]) -> None:
        """Write `batches` at the end of the log, with one write. They are readable at once and durable after a flush.

        InvariantViolation unless the first starts at the log end offset, each at the end of the one before, and
        epochs do not decrease. Raises OutOfSpace, then nothing changed; never after a `reserve` that covers them.
        """
        if not batches:
            return
        framed = self._check_follow_on(batches)
        segment = self._segments[-1]
        if self._is_full(segment, framed):
            try:
                self._roll(framed)
            except OutOfSpace:
                if segment.end_position + framed > segment.reserved_size:
                    raise
            segment = self._segments[-1]
        segment.reserve(framed, self._config.preallocate_bytes)
        segment.append(batches, self._flushed_end_offset)
        self._vouched_offset = self._flushed_end_offset
        for batch in batches:
            self.epochs.assign(batch.epoch, batch.base_offset)
            self._tail.append(batch)

    def write_marker(self) -> None:
        """Record, without flushing, how far the log is flushed, if no frame records it yet.

        For a node that becomes idle after a flush: if flushed data is damaged later, it is known to have been flushed.
        Does nothing when there is no room.
        """
        if self._vouched_offset >= self._flushed_end_offset:
            return
        segment = self._segments[-1]
        try:
            segment.reserve(HEAD_BYTES, self._config.preallocate_bytes)
            segment.append_marker(self._flushed_end_offset)
        except OutOfSpace:
            return
        self._vouched_offset = self._flushed_end_offset

    def flush(self) -> Offset:
        """Make all appended batches durable. Returns the flushed end offset. Raises FlushFailed."""
        if self._flushed_end_offset == self.log_end_offset:
            return self._flushed_end_offset
        pending = self.start_flush()
        pending.run()
        return self.finish_flush(pending)

    def start_flush(self) -> PendingFlush:
        """Begin to flush all batches appended so far. InvariantViolation while another flush is in progress."""
        check(self._pending is None, "at most one flush is in progress")
        self._pending = PendingFlush(self._segments[-1].file, self.log_end_offset)
        return self._pending

    def finish_flush(self, pending: PendingFlush) -> Offset:
        """Record that `pending.run()` has returned. Returns the flushed end offset."""
        check(pending is self._pending, "the finished flush is the one in progress")
        self._pending = None
        self._flushed_end_offset = max(self._flushed_end_offset, pending.end_offset)
        self._close_retired()
        return self._flushed_end_offset

    def truncate(self, end_offset: Offset) -> None:
        """Truncate the log to `end_offset`; durable when it returns.

        InvariantViolation unless that is the log's start, its end, or where a batch ends; then nothing changed.
        """
        check(
            self.log_start_offset <= end_offset <= self.log_end_offset,
            "a log is truncated within itself only",
            end_offset=end_offset,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
        )
        if end_offset == self.log_end_offset:
            return
        segment = self._segments[max(0, bisect_right(self._base_offsets, end_offset - 1) - 1)]
        position, last_crc = segment.locate(end_offset)
        while self._segments[-1] is not segment:
            self._remove_last_segment()
        segment.cut(end_offset, position, last_crc)
        self.epochs.truncate(end_offset)
        self._tail.truncate(end_offset)
        self._flushed_end_offset = end_offset
        self._vouched_offset = min(self._vouched_offset, end_offset)
        if self._pending is not None:
            self._pending.end_offset = min(self._pending.end_offset, end_offset)

    def is_boundary(self, offset: Offset) -> bool:
        """Whether the log starts or ends at `offset`, or a batch begins there."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            return False
        try:
            self._segment_of(offset).locate(offset)
        except InvariantViolation:
            return False
        return True

    def advance_start(self, start: OffsetAndEpoch) -> None:
        """Advance the log's start, durably; segments wholly below are removed, the one that holds it stays whole
        (SN-42).

        InvariantViolation unless `start` is between the log's start and its flushed end, where a batch begins or the
        log ends, with the epoch of the record before (SN-43). Raises OutOfSpace, then nothing changed.
        """
        check(
            self.log_start_offset <= start.offset <= self._flushed_end_offset,
            "a log's start moves on to what is durable",
            start=start,
            log_start_offset=self.log_start_offset,
            flushed_end_offset=self._flushed_end_offset,
        )
        epoch_before = self.epochs.epoch_before(start.offset)
        check(start.epoch == epoch_before, "a start has the epoch before it", start=start, epoch_before=epoch_before)
        if start == self.start:
            return
        self._segment_of(start.offset).locate(start.offset)
        write_log_start(self._files, self._directory, start)
        self.epochs.advance_start(start)
        count = bisect_right(self._base_offsets, start.offset) - 1
        if count == 0:
            return
        for segment in self._segments[:count]:
            self._files.remove(segment.file.path)
            self._retired.append(segment.file)
        self._files.fsync_directory(self._directory)
        del self._segments[:count], self._base_offsets[:count]
        if self._pending is None:
            self._close_retired()

    def truncate_fully_and_start_at(self, start: OffsetAndEpoch) -> None:
        """Replace the log by a snapshot that ends at `start`: the log is empty there; durable when it returns.

        InvariantViolation unless the log is behind the snapshot or diverges from it (SN-14), and the snapshot is past
        the log's start. Raises OutOfSpace, then nothing changed.
        """
        check(
            start.offset > self.log_start_offset and is_replaced_by(self.end, start),
            "a snapshot that replaces a log is past it",
            start=start,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            last_epoch=self.epochs.last_epoch,
        )
        write_log_start(self._files, self._directory, start)
        while self._segments:
            self._remove_last_segment()
        create_segment(self._files, self._directory, start.offset)
        path = join(self._directory, segment_name(start.offset))
        self._segments.append(Segment(self._files.open(path), start.offset, NO_CRC))
        self._base_offsets.append(start.offset)
        self.epochs = EpochCache(start=start)
        self._tail = TailCache(self._config.tail_cache_bytes)
        self._flushed_end_offset = self._vouched_offset = start.offset
        if self._pending is not None:
            self._pending.end_offset = min(self._pending.end_offset, start.offset)

    def read(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> bytes:
        """The encoded batches of `read_batches`, one after the other."""
        return b"".join([batch.data for batch in self.read_batches(start_offset, max_bytes, end_offset)])

    def read_batches(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> tuple[Batch, ...]:
        """Batches from the one that holds `start_offset`: at least one, at most `max_bytes`, none past `end_offset`.

        May return fewer than would fit, and none when no batch is between the offsets. Raises ApiError
        (OFFSET_OUT_OF_RANGE) when `start_offset` is neither in the log nor its end, CorruptLog when the disk returns
        other bytes than were written.
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} is not between the log start offset {self.log_start_offset} and the log end"
                f" offset {self.log_end_offset}",
            )
        end = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        if start_offset >= end:
            return ()
        batches = self._tail.read(start_offset, max_bytes, end)
        if batches is None:
            batches = self._segment_of(start_offset).read(start_offset, max_bytes, end)
        return tuple(batches)

    def end_founding(self) -> None:
        """Record that a voter in this new directory may only join. Raises FlushFailed."""
        if self.new_directory is not None:
            end_founding(self._files, self._directory)
            self.new_directory = read_new_directory(self._files, self._directory)

    def end_recovering(self) -> None:
        """End recovery: everything that was lost is in the log again, and durable. Raises FlushFailed."""
        if self.recovering is not None:
            end_recovering(self._files, self._directory)
            self.recovering = None
        if self.new_directory is not None:
            remove_new_directory(self._files, self._directory)
            self.new_directory = None

    def close(self) -> None:
        """Release reserved room and close the files. Flushes nothing; closing twice changes nothing."""
        # If starting over failed, there are no segments.
        if self._segments and self._segments[-1].reserved_size > self._segments[-1].end_position:
            self._segments[-1].trim()
        for segment in self._segments:
            segment.file.close()
        self._close_retired()

    def _segment_of(self, offset: Offset) -> Segment:
        """The segment that holds `offset`, which is in the log or its end."""
        return self._segments[bisect_right(self._base_offsets, offset) - 1]

    def _check_follow_on(self, batches: Sequence[Batch]) -> int:
        """Check that `batches` are contiguous with the log; returns the size of their frames in bytes."""
        end_offset, last_epoch, framed = self.log_end_offset, self.epochs.last_epoch, 0
        for batch in batches:
            if batch.base_offset != end_offset or batch.epoch < last_epoch:
                check(
                    False,
                    "an append starts at the log end, in an epoch that is not lower",
                    base_offset=batch.base_offset,
                    epoch=batch.epoch,
                    end_offset=end_offset,
                    last_epoch=last_epoch,
                )
            end_offset, last_epoch = batch.end_offset, batch.epoch
            framed += HEAD_BYTES + len(batch.data)
        return framed

    def _is_full(self, segment: Segment, framed_bytes: int) -> bool:
        has_batches = segment.end_offset > segment.base_offset
        return has_batches and segment.end_position + framed_bytes > self._config.segment_bytes

    def _roll(self, framed_bytes: int) -> None:
        """Roll to a new segment with room for `framed_bytes`. Raises OutOfSpace, then nothing changed."""
        full = self._segments[-1]
        full.file.fsync()
        self._flushed_end_offset = full.end_offset
        path = join(self._directory, segment_name(full.end_offset))
        segment = Segment(self._files.open(path, create=True), full.end_offset, full.last_crc)
        try:
            segment.reserve(framed_bytes + self._config.reserve_bytes, self._config.preallocate_bytes)
        except OutOfSpace:
            segment.file.close()
            self._files.remove(path)
            self._files.fsync_directory(self._directory)
            raise
        segment.file.fsync()
        self._files.fsync_directory(self._directory)
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        full.trim()

    def _remove_last_segment(self) -> None:
        """Remove the last segment. A flush in progress may still use its file, which is closed after that flush."""
        segment = self._segments.pop()
        self._base_offsets.pop()
        self._files.remove(segment.file.path)
        self._files.fsync_directory(self._directory)
        self._retired.append(segment.file)
        if self._pending is None:
            self._close_retired()

    def _close_retired(self) -> None:
        for file in self._retired:
            file.close()
        self._retired.clear()
