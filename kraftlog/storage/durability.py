"""The durable part of a log, and the flushes that extend it.

- A flush makes durable what was appended before it began, and raises the recovery point. At most one flush of a log is
  in progress; it may run in another thread.
- A roll flushes nothing: the next flush covers the segments before the last one, with their indexes.
- The flush that raises the recovery point past a leader epoch's first batch also writes the file of leader epochs. A
  startup finds the epochs that the file lacks in the batches above the recovery point.
"""

from __future__ import annotations

from kraftbase.checks import check
from kraftbase.errors import OutOfSpace
from kraftbase.files.files import join, parent_directory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.epoch_file import NewEpochs, write_epochs
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.flushes import PendingFlush
from kraftlog.storage.formats.names import PARTITION_METADATA_NAME
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.producer_history import ProducerHistory
from kraftlog.storage.segment import Segment
from kraftlog.storage.segment_list import SegmentList


class Durability:
    """The recovery point, the segments that wait for a flush, and the flush in progress. For one thread."""

    def __init__(
        self, handles: FileHandles, directory: str, segments: SegmentList, epochs: LeaderEpochs,
        producers: ProducerHistory, epochs_are_saved_below: int, now_ms: int, *, is_new: bool = False,
    ) -> None:  # fmt: skip
        """Begin with a log that was just opened: its records are durable, but perhaps not all indexes and epochs."""
        self.is_new = is_new
        """Whether the log was never flushed: a crash may remove its directory; a startup recreates it (DB-95)."""
        self.recovery_point = segments.last.end_offset
        """Every record below this offset is durable."""
        self._handles = handles
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._epochs_are_saved_below: int | None = epochs_are_saved_below if epochs.is_changed else None
        self._unflushed = [segment for segment in segments.from_offset(0)[:-1] if not segment.has_written_indexes]
        self._has_new_names = True
        self._named_base_offset = segments.last.base_offset  # of the last segment whose name is durable
        self._flushing_base_offset = self._named_base_offset
        self._pending: PendingFlush | None = None
        # The time of the first append that waits for a flush to begin; None if there is none.
        self._waiting_since_ms = now_ms if self._unflushed else None
        self._flushing_since_ms: int | None = None
        self._flushing_producer_files: set[str] = set()

    # --- the durable part ---------------------------------------------------------------------------------------------

    @property
    def unflushed_count(self) -> int:
        """The number of offsets that are not durable."""
        return self._segments.last.end_offset - self.recovery_point

    @property
    def is_flushed(self) -> bool:
        """Whether everything is durable."""
        return self.unflushed_count <= 0 and not self._unflushed

    @property
    def recovery_point_to_save(self) -> int:
        """The offset from which a startup must read: that of the oldest record, index or epoch not yet flushed."""
        if not self._unflushed and self._epochs_are_saved_below is None:
            return self.recovery_point  # the case of nearly every log, each time that checkpoints are written
        offsets = [self.recovery_point, *(segment.base_offset for segment in self._unflushed[:1])]
        return min(offsets if self._epochs_are_saved_below is None else [*offsets, self._epochs_are_saved_below])

    @property
    def durable_base_offset(self) -> int:
        """The base offset of the last segment that a crash cannot remove; earlier segments are closed and flushed."""
        if not self._unflushed:
            return self._named_base_offset
        return min(self._named_base_offset, self._unflushed[0].base_offset)

    def sync_names(self) -> None:
        """Make the names of a new log's directory and files durable. Raises FlushFailed, StorageError."""
        files = self._handles.files
        self._handles.get(self._metadata_path).fsync()
        files.fsync_directory(self._directory)
        files.fsync_directory(parent_directory(self._directory))
        self.is_new = False
        self.names_are_durable()

    @property
    def _metadata_path(self) -> str:
        return join(self._directory, PARTITION_METADATA_NAME)

    def names_are_durable(self) -> None:
        """Note that the log's directory has just been synced."""
        self._named_base_offset = self._segments.last.base_offset

    @property
    def pending(self) -> PendingFlush | None:
        """The flush in progress; None if there is none."""
        return self._pending

    def is_flush_due(self, config: PartitionLogConfig, now_ms: int) -> bool:
        """Whether a flush must begin by `flush.messages` or `flush.ms`.

        If the clock was set back, the waiting time is unknown, and the log is flushed.
        """
        since_ms = self._waiting_since_ms
        if since_ms is None:
            return False  # the case of nearly every log, each time that maintenance checks all of them
        is_late = not 0 <= now_ms - since_ms < config.flush_ms
        return not self.is_flushed and (is_late or self.unflushed_count >= config.flush_messages)

    def flush_due_ms(self, config: PartitionLogConfig) -> int | None:
        """The time at which `flush.ms` is over; None if nothing waits for a flush."""
        return None if self._waiting_since_ms is None or self.is_flushed else self._waiting_since_ms + config.flush_ms

    # --- changes of the log -------------------------------------------------------------------------------------------

    def appended(self, now_ms: int) -> None:
        """Note an append."""
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms

    def before_roll(self, closed: Segment, base_offset: int) -> None:
        """Prepare for a roll to a new segment at `base_offset`; `closed` is the last segment so far.

        If the recovery point on disk covers all of `closed`, a startup after a crash does not read it once a next
        segment exists. So its indexes and its size must be durable before the roll; they are small.
        Raises StorageError, also OutOfSpace.
        """
        if self.recovery_point < base_offset:
            return
        self._producers.write_aborted()
        for path in (*closed.paths, *sorted(self._producers.unflushed)):
            self._handles.get(path).fsync()
        self._producers.unflushed.clear()

    def rolled(self, closed: Segment, base_offset: int) -> None:
        """Note that the log has rolled to a new segment at `base_offset`."""
        self._has_new_names = True
        if self.recovery_point < base_offset:
            self._unflushed.append(closed)

    def cut(self, end_offset: int) -> None:
        """Note that the log was truncated to `end_offset`, or starts over there, durably."""
        first_base_offset, last_base_offset = self._segments.first.base_offset, self._segments.last.base_offset
        self._unflushed = [
            segment for segment in self._unflushed if first_base_offset <= segment.base_offset < last_base_offset
        ]
        self.recovery_point = min(self.recovery_point, end_offset)
        self.names_are_durable()
        self._flushing_base_offset = last_base_offset
        if self.is_flushed:
            self._waiting_since_ms = None
        if self._pending is not None:
            self._pending.end_offset = min(self._pending.end_offset, self.recovery_point)
            # A closed segment that becomes the last one again gets new appends, which this flush does not cover.
            self._pending.segments = tuple(
                segment
                for segment in self._pending.segments
                if first_base_offset <= segment.base_offset < last_base_offset
            )

    def removed_below(self, base_offset: int) -> None:
        """Note that the segments below `base_offset` were removed."""
        self._unflushed = [segment for segment in self._unflushed if segment.base_offset >= base_offset]
        self.names_are_durable()

    def retire(self) -> None:
        """Ignore the result of a flush in progress: the log is deleted or damaged."""
        if self._pending is not None:
            self._pending.retire()

    # --- flushing -----------------------------------------------------------------------------------------------------

    def start_flush(self) -> PendingFlush:
        """Begin to flush everything appended so far.

        Raises InvariantViolation while another flush is in progress, and StorageError, also OutOfSpace; then no flush
        is in progress.
        """
        check(self._pending is None, "one flush of a log is under way at most")
        for segment in self._unflushed:
            if not segment.has_written_indexes:
                segment.write_indexes()
                self._has_new_names = True
        self._producers.write_aborted()
        epochs = self._new_epochs()
        exists = self._handles.files.exists
        paths = [path for segment in self._unflushed for path in segment.paths if exists(path)]
        paths.append(self._segments.last.path)
        paths += sorted(self._producers.unflushed)
        paths += [self._metadata_path] if self.is_new else []
        self._flushing_producer_files = set(self._producers.unflushed)
        self._producers.unflushed.clear()
        self._pending = PendingFlush(
            self._handles, self._directory, paths, self._segments.last.end_offset, tuple(self._unflushed),
            has_new_names=self._has_new_names, is_of_new_log=self.is_new, epochs=epochs,
        )  # fmt: skip
        self._has_new_names = False
        self._flushing_base_offset = self._segments.last.base_offset
        self._flushing_since_ms, self._waiting_since_ms = self._waiting_since_ms, None
        return self._pending

    def finish_flush(self, pending: PendingFlush) -> int:
        """Note that `pending.run()` has returned. Returns the recovery point."""
        check(pending is self._pending, "the flush that is finished is the one under way")
        self._pending = None
        pending.release()
        if pending.epochs is not None:
            self._epochs.saved(pending.epochs.entries)
            self._epochs_are_saved_below = None
        self.is_new = self.is_new and pending.parent is None
        self._unflushed = [segment for segment in self._unflushed if segment not in pending.segments]
        self._named_base_offset = self._flushing_base_offset
        self.recovery_point = max(self.recovery_point, min(pending.end_offset, self._segments.last.end_offset))
        return self.recovery_point

    def abandon_flush(self, pending: PendingFlush) -> None:
        """Note that `pending.run()` has raised OutOfSpace, or was not called; a later flush covers the same again."""
        check(pending is self._pending, "the flush that is abandoned is the one under way")
        self._pending = None
        pending.release()
        self._has_new_names = True
        exists = self._handles.files.exists
        self._producers.unflushed |= {path for path in self._flushing_producer_files if exists(path)}
        if self._flushing_since_ms is not None:
            self._waiting_since_ms = self._flushing_since_ms

    def flush(self) -> int:
        """Make everything durable. Returns the recovery point. Raises FlushFailed, StorageError."""
        if not self.is_flushed or self._epochs.is_changed or self._producers.unflushed:
            pending = self.start_flush()
            try:
                pending.run()
            except OutOfSpace:
                self.abandon_flush(pending)
                raise
            self.finish_flush(pending)
        return self.recovery_point

    def flush_whole(self) -> None:
        """Make everything durable, also files that a startup could rebuild. Raises FlushFailed, StorageError."""
        self._producers.unflushed |= set(filter(self._handles.files.exists, self._segments.last.paths))
        self._has_new_names = True
        self._epochs.is_changed = True
        self.flush()

    def _new_epochs(self) -> NewEpochs | None:
        """Return the new file of leader epochs for the flush to make durable; None if the present one is complete."""
        return NewEpochs(self._handles, self._directory, self._epochs) if self._epochs.is_changed else None

    def save_epochs(self) -> None:
        """Write the file of leader epochs, durably, if the present one is incomplete. Raises StorageError."""
        if self._epochs.is_changed:
            write_epochs(self._handles.files, self._directory, self._epochs)
            self._epochs_are_saved_below = None
