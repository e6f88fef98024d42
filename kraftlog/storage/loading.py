"""Opens the files of one partition's log, after a clean shutdown or a crash.

After a crash, recovery reads the segments from the recovery point on with their checksums, and rebuilds their indexes.
It cuts a torn tail, and removes the segments after it. After a clean shutdown it only determines the end of the last
segment. The state of producers comes from the newest usable snapshot and the batches after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from kraftbase.errors import CorruptLog, OutOfSpace
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.damage import DamagedLog, DamagedSegment
from kraftlog.storage.epoch_file import read_epochs, write_epochs
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Known, lost_end, missing_segments
from kraftlog.storage.formats.batch_header import BatchHeader
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from kraftlog.storage.formats.names import (
    DAMAGED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_in_name,
)
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.old_log import finish_start_over
from kraftlog.storage.producer_history import ProducerHistory, remove_wrong_indexes
from kraftlog.storage.recovery import SegmentScan
from kraftlog.storage.segment import Segment
from kraftlog.storage.swaps import finish_swap

logger = structlog.get_logger(__name__)


class RecoveryProgress(NamedTuple):
    """The progress of a partition's recovery."""

    directory: str
    segments_read: int
    segments_to_read: int
    bytes_read: int


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log after its files were checked and repaired."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerHistory
    log_start_offset: int
    high_watermark: int
    """The checkpointed high watermark, limited to the offsets of the log."""
    epochs_are_saved_below: int
    """The file of epochs has all epochs below this offset; less than the log's end only if there was no room."""
    torn_bytes: int
    """The bytes that were cut from the end of the log, including removed segments."""
    names: list[str]
    """The names of the files that were in the log's directory."""
    is_new: bool
    """Whether the log was never flushed."""


class Loader:
    """Opens one partition's log."""

    def __init__(
        self, handles: FileHandles, directory: str, config: PartitionLogConfig, known: Known, now_ms: int,
        on_progress: Callable[[RecoveryProgress], None], about_to_start_over: Callable[[int], None],
    ) -> None:  # fmt: skip
        """`about_to_start_over` is called with an offset before the log drops its records and begins there."""
        self._handles = handles
        self._files: FileSystem = handles.files
        self._directory = directory
        self._config = config
        self._known = known
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._about_to_start_over = about_to_start_over
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._are_epochs_known = False
        self._replay_from: int | None = None
        self._torn_bytes = 0
        self._bytes_read = 0
        self._is_new = known.entry is not None and known.entry.is_new

    def load(self) -> LoadedLog:
        """Open the log. Raises StorageError, and DamagedSegment or DamagedLog for damage, found now or earlier."""
        start_offset = self._known.log_start_offset
        names = self._files.list_directory(self._directory)
        self._refuse_set_aside(names)
        if finish_swap(self._handles, self._directory, names, self._known.base_offsets):
            names = self._files.list_directory(self._directory)
        if finish_start_over(self._handles, self._directory, names, start_offset, self._about_to_start_over):
            self._known = Known(log_start_offset=start_offset)
            names = self._files.list_directory(self._directory)
        base_offsets = segment_offsets(names)
        self._refuse_damaged(base_offsets)
        names = self._tidy(names, base_offsets)
        self._replay_from = remove_wrong_indexes(self._handles, self._directory, names, self._known.aborted_checksums)
        entries = read_epochs(self._files, self._directory)
        self._are_epochs_known = entries is not None
        self._epochs = LeaderEpochs(entries or ())
        self._epochs.is_changed = entries is None and bool(base_offsets)
        first_unflushed = self._first_to_recover(base_offsets)
        is_last_empty = first_unflushed >= len(base_offsets) - 1 and self._is_known_to_be_empty(base_offsets)
        for index, base_offset in enumerate(base_offsets[:-1] if is_last_empty else base_offsets):
            if index < first_unflushed:
                next_offset = base_offsets[index + 1] if index + 1 < len(base_offsets) else None
                self._segments.append(self._open_flushed(base_offset, next_offset))
        if is_last_empty:
            self._segments.append(self._open_empty(base_offsets[-1], names))
        elif base_offsets[first_unflushed:]:
            self._recover(base_offsets[first_unflushed:])
        log_start_offset = self._settle_start()
        end_offset = self._segments[-1].end_offset
        reason = lost_end(self._known, end_offset)
        if reason:
            raise DamagedLog(self._directory, reason)
        self._check_last_batch()
        self._settle_epochs(log_start_offset, end_offset)
        high_watermark = min(max(self._known.high_watermark, log_start_offset), end_offset)
        producers = ProducerHistory(self._handles, self._directory, self._known.snapshot_checksums)
        producers.load(self._segments, end_offset, self._replay_from, high_watermark, self._now_ms)
        producers.sync()
        return LoadedLog(
            segments=self._segments, epochs=self._epochs, producers=producers, log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            epochs_are_saved_below=end_offset if self._save_epochs() else min(self._known.recovery_point, end_offset),
            torn_bytes=self._torn_bytes, names=names, is_new=self._is_new,
        )  # fmt: skip

    # --- files --------------------------------------------------------------------------------------------------------

    def _refuse_set_aside(self, names: list[str]) -> None:
        """Raise DamagedSegment, before anything is changed, if a segment was set aside."""
        for name in names:
            if name.endswith(DAMAGED_SUFFIX):
                raise DamagedSegment(join(self._directory, name), 0, "it was set aside when the damage was found")

    def _refuse_damaged(self, base_offsets: list[int]) -> None:
        """Raise DamagedLog if the sizes of segments show damage."""
        if self._known.entry is not None:
            reason = missing_segments(self._known.entry, self._sizes_of(base_offsets))
            if reason:
                raise DamagedLog(self._directory, reason)

    def _sizes_of(self, base_offsets: list[int]) -> dict[int, int]:
        return {offset: self._size_of(join(self._directory, file_name(offset, LOG_SUFFIX))) for offset in base_offsets}

    def _tidy(self, names: list[str], base_offsets: list[int]) -> list[str]:
        """Remove deleted and unfinished files, and those of missing segments; return the names that remain."""
        present = set(base_offsets)
        kept = []
        for name in names:
            offsets = [offset_in_name(name, suffix) for suffix in SEGMENT_SUFFIXES[:-1] if name.endswith(suffix)]
            is_left_over = any(offset is not None and offset not in present for offset in offsets)
            if is_left_over or name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._files.remove(join(self._directory, name))
            else:
                kept.append(name)
        return kept

    def _first_to_recover(self, base_offsets: list[int]) -> int:
        """Return the index of the segment with the recovery point, the first that may not be flushed."""
        if self._known.was_shut_down_cleanly:
            return len(base_offsets)
        below = [offset for offset in base_offsets if offset <= self._known.recovery_point]
        return max(0, len(below) - 1)

    # --- segments that are flushed ------------------------------------------------------------------------------------

    def _is_known_to_be_empty(self, base_offsets: list[int]) -> bool:
        """Whether the last segment is empty, also by the inventory: then it needs no read and no sync."""
        entry = self._known.entry
        if entry is None or not base_offsets or self._sizes_of(base_offsets[-1:]) != {base_offsets[-1]: 0}:
            return False
        base_offset = base_offsets[-1]
        return entry.is_new or entry.last_base_offset == entry.recovery_point == base_offset

    def _open_empty(self, base_offset: int, names: list[str]) -> Segment:
        for suffix in SEGMENT_SUFFIXES[:-1]:
            name = file_name(base_offset, suffix)
            if name in names:
                self._handles.remove(join(self._directory, name))
        return Segment(self._handles, self._directory, base_offset, created_ms=self._now_ms)

    def _open_flushed(self, base_offset: int, next_offset: int | None) -> Segment:
        """Open a segment whose bytes were flushed, with its indexes if they are sound; otherwise rebuild them."""
        path = join(self._directory, file_name(base_offset, LOG_SUFFIX))
        size_bytes = self._size_of(path)
        offset_entries = self._entries_in(base_offset, OFFSET_INDEX_SUFFIX, OFFSET_ENTRY.size)
        time_entries = self._entries_in(base_offset, TIME_INDEX_SUFFIX, TIME_ENTRY.size)
        if offset_entries is not None and time_entries is not None:
            segment = Segment(
                self._handles, self._directory, base_offset, size_bytes=size_bytes, offset_entries=offset_entries,
                time_entries=time_entries, created_ms=self._now_ms,
                end_offset=base_offset + RELATIVE_OFFSET_MAX + 1 if next_offset is None else next_offset,
            )  # fmt: skip
            if _has_sound_indexes(segment):
                if next_offset is None and self._find_end(segment):
                    segment.reload_largest()
                    return segment
                if next_offset is not None:
                    if segment.largest.timestamp_ms < 0:
                        segment.reload_largest()  # batches without timestamps have no entries
                    return segment
        logger.warning("the indexes of a segment are rebuilt", path=path)
        if next_offset is None:
            self._recover([base_offset])
            return self._segments.pop()
        segment, scan = self._read_segment(base_offset, (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        self._check_tail(scan, [next_offset])
        self._close_indexes(segment)
        segment.end_offset = next_offset
        self._make_durable(segment)
        return segment

    def _entries_in(self, base_offset: int, suffix: str, entry_bytes: int) -> int | None:
        """Return the number of entries in a file; None if it is missing or not a whole number of entries long."""
        path = join(self._directory, file_name(base_offset, suffix))
        if not self._files.exists(path):
            return None
        size = self._size_of(path)
        return None if size % entry_bytes else size // entry_bytes

    def _size_of(self, path: str) -> int:
        return self._handles.get(path).size()

    def _find_end(self, segment: Segment) -> bool:
        """Determine the end offset of the last segment; return whether its file ends with that batch."""
        end_position = 0
        last: BatchHeader | None = None
        try:
            for position, header in segment.batches_before(segment.base_offset + RELATIVE_OFFSET_MAX):
                last, end_position = header, position + header.size_bytes
                if self._epochs.latest < header.leader_epoch and self._are_epochs_known:
                    self._epochs.assign(header.leader_epoch, header.base_offset)
        except CorruptLog:
            return False
        segment.end_offset = segment.base_offset
        if last is not None:
            segment.ends_with(last)
        return end_position == segment.size_bytes

    # --- segments that may not be flushed -----------------------------------------------------------------------------

    def _recover(self, base_offsets: list[int]) -> None:
        """Read the last segments of the log; cut a torn tail and remove the segments after it."""
        if self._replay_from is None or base_offsets[0] < self._replay_from:
            self._replay_from = base_offsets[0]
        # The file of epochs may lack the latest epochs, and may still have epochs that were truncated. Consider epoch 2
        # from offset 5 in the file, a truncation to 3, and a batch of epoch 2 appended there: epoch 2 begins at 3.
        self._epochs.truncate_end(base_offsets[0])
        for index, base_offset in enumerate(base_offsets):
            self._on_progress(RecoveryProgress(self._directory, index, len(base_offsets), self._bytes_read))
            later = base_offsets[index + 1 :]
            segment, scan = self._read_segment(base_offset, SEGMENT_SUFFIXES[:-1])
            for _, header in segment.batches(0):
                if header.leader_epoch > self._epochs.latest and self._are_epochs_known:
                    self._epochs.assign(header.leader_epoch, header.base_offset)
            self._check_tail(scan, later)
            self._segments.append(segment)
            if scan.end_position < scan.file_bytes or self._has_lost_end(segment, later):
                self._cut(segment, scan, later)
                break
            self._close_indexes(segment)
        # The bytes read may be only in the page cache, and the disk may still have bytes that were cut off: after a
        # power failure they would be back, in the place of later appends.
        if not self._is_durable(base_offsets):
            for segment in self._segments[-len(base_offsets) :]:
                self._make_durable(segment)
            self._files.fsync_directory(self._directory)
        self._on_progress(RecoveryProgress(self._directory, len(base_offsets), len(base_offsets), self._bytes_read))

    def _is_durable(self, base_offsets: list[int]) -> bool:
        """Whether the inventory shows that everything read was flushed: then no sync is needed (DB-96).

        The indexes need not be durable, since a startup after a crash rebuilds those of the last segment.
        """
        entry, last = self._known.entry, self._segments[-1]
        return (
            entry is not None
            and len(base_offsets) == 1
            and not self._torn_bytes
            and (entry.last_base_offset, entry.recovery_point) == (last.base_offset, last.end_offset)
            and entry.last_batch_checksum == last.last_checksum != 0
        )

    def _has_lost_end(self, segment: Segment, later: list[int]) -> bool:
        """Whether a crash has removed whole batches at the segment's end: unflushed offsets are missing.

        Not for a compacted topic, since compaction also removes records at the end of a segment.
        """
        is_flushed = bool(later) and later[0] <= self._known.recovery_point
        return bool(later) and segment.end_offset < later[0] and not is_flushed and not self._config.is_compacted

    def _read_segment(self, base_offset: int, suffixes: Iterable[str]) -> tuple[Segment, SegmentScan]:
        """Read a segment with its checksums, and rebuild its indexes; first remove its files with the suffixes."""
        for suffix in suffixes:
            self._handles.remove(join(self._directory, file_name(base_offset, suffix)))
        segment = Segment(self._handles, self._directory, base_offset, created_ms=self._now_ms)
        scan = SegmentScan(self._files, segment.path, base_offset)
        for position, header in scan.batches():
            segment.index_batch(position, header, self._config.index_interval_bytes)
        self._bytes_read += scan.file_bytes
        return segment, scan

    def _check_tail(self, scan: SegmentScan, later: list[int]) -> None:
        flushed = min([self._known.recovery_point, *later[:1]])
        if self._known.log_start_offset >= self._known.recovery_point:
            flushed = 0  # everything flushed was deleted
        scan.check_tail(flushed, is_last=not later, has_valid_successor=any(map(self._has_valid_batch, later)))

    def _close_indexes(self, segment: Segment) -> None:
        """Write the indexes; without room they stay in memory, and the next flush writes them."""
        try:
            segment.close_indexes()
        except OutOfSpace:
            for file in (segment.offsets.file, segment.times.file):
                if not file.is_written:
                    self._handles.remove(file.path)  # a partial index might be taken for a complete one

    def _make_durable(self, segment: Segment) -> None:
        for path in segment.paths:
            if self._files.exists(path):
                self._handles.get(path).fsync()

    def _has_valid_batch(self, base_offset: int) -> bool:
        path = join(self._directory, file_name(base_offset, LOG_SUFFIX))
        return next(SegmentScan(self._files, path, base_offset).batches(), None) is not None

    def _cut(self, segment: Segment, scan: SegmentScan, later: list[int]) -> None:
        """Remove the segments after the last valid batch, the last one first, and then cut the tail; durably."""
        self._torn_bytes += scan.file_bytes - scan.end_position
        for base_offset in reversed(later):
            self._torn_bytes += self._size_of(join(self._directory, file_name(base_offset, LOG_SUFFIX)))
            for suffix in SEGMENT_SUFFIXES:
                self._handles.remove(join(self._directory, file_name(base_offset, suffix)))
            self._files.fsync_directory(self._directory)
        for name in self._files.list_directory(self._directory):
            offset = offset_in_name(name, PRODUCER_SNAPSHOT_SUFFIX)
            if offset is not None and offset > segment.end_offset:
                self._files.remove(join(self._directory, name))
        self._files.fsync_directory(self._directory)
        file = self._handles.get(segment.path)
        file.truncate(scan.end_position)
        file.fsync()
        logger.warning(
            "the torn tail of a log was cut",
            path=segment.path,
            log_end_offset=segment.end_offset,
            bytes=self._torn_bytes,
        )

    # --- state from the segments --------------------------------------------------------------------------------------

    def _settle_start(self) -> int:
        """Return the log start offset (DB-83); ensure that the log has a segment.

        A log that ends before its start offset was about to start over there, or its end was lost in a crash, unflushed
        and already deleted. In both cases it starts over, empty.
        """
        start_offset = self._known.log_start_offset
        if self._segments and self._segments[-1].end_offset < start_offset:
            reason = lost_end(self._known, self._segments[-1].end_offset)
            if reason:
                raise DamagedLog(self._directory, reason)
            self._about_to_start_over(start_offset)
            for segment in reversed(self._segments):
                for suffix in SEGMENT_SUFFIXES:
                    self._handles.remove(join(self._directory, file_name(segment.base_offset, suffix)))
            self._segments.clear()
            self._epochs.clear()
        if not self._segments:
            self._segments.append(Segment.create(self._handles, self._directory, start_offset, self._now_ms))
            if not self._is_new:
                self._files.fsync_directory(self._directory)
        return max(start_offset, self._segments[0].base_offset)

    def _check_last_batch(self) -> None:
        """Raise DamagedLog if the last batch below the recovery point is not the one that was flushed.

        Consider a last segment that was replaced by another partition's file, with as many offsets.
        """
        entry, recovery_point = self._known.entry, self._known.recovery_point
        first_offset = max(self._known.log_start_offset, self._segments[0].base_offset)
        if entry is None or not entry.last_batch_checksum or recovery_point <= first_offset:
            return
        segment = next(found for found in reversed(self._segments) if found.base_offset < recovery_point)
        place = segment.locate(recovery_point - 1)
        if place is None or (place.header.last_offset, place.header.crc) != (
            recovery_point - 1,
            entry.last_batch_checksum,
        ):
            raise DamagedLog(
                self._directory,
                f"the batch that ends at offset {recovery_point - 1} is not the one that was flushed there",
            )

    def _save_epochs(self) -> bool:
        """Write the file of epochs if it lacks some, since the next startup does not read the batches again.

        Return whether there was room.
        """
        if not self._epochs.are_saved_below(self._segments[-1].end_offset):
            try:
                write_epochs(self._files, self._directory, self._epochs)
            except OutOfSpace:
                return False
        return True

    def _settle_epochs(self, log_start_offset: int, end_offset: int) -> None:
        if not self._are_epochs_known:
            for segment in self._segments:
                for _, header in segment.batches(0):
                    if header.leader_epoch > self._epochs.latest:
                        self._epochs.assign(header.leader_epoch, header.base_offset)
        self._epochs.truncate_end(end_offset)  # also epochs without records, which perhaps only their leader knew
        self._epochs.truncate_start(log_start_offset)


def segment_offsets(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among some file names, ascending."""
    offsets = [offset_in_name(name, LOG_SUFFIX) for name in names]
    return sorted(offset for offset in offsets if offset is not None)


def _has_sound_indexes(segment: Segment) -> bool:
    """Whether the first and the last entry of each index fit this segment: they ascend, within its range."""
    for file, offset_column in ((segment.offsets.file, 0), (segment.times.file, 1)):
        if not file.entry_count:
            continue
        first, last = file.entry(0), file.entry(file.entry_count - 1)
        if min(first) < 0 or (file.entry_count > 1 and not (first[0] < last[0] and first[1] <= last[1])):
            return False
        if segment.base_offset + last[offset_column] >= segment.end_offset:
            return False
        if file is segment.offsets.file and last[1] >= segment.size_bytes:
            return False
    return True
