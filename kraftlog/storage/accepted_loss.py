"""Which records a damaged log has lost, and how the log continues without them (DB-88).

An operator accepts a loss if no other replica has the records, by `kraftlog log-dirs accept-loss` or by an unclean
election. Every valid batch stays. A damaged segment is kept as `.lost`, and a new one is made of its valid batches.
Lost offsets stay empty and are not assigned again, except offsets past the new end of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count
from typing import Final, NamedTuple

from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.findings import Known, lost_end, missing_segments
from kraftlog.storage.formats.inventory import LogEntry
from kraftlog.storage.formats.names import (
    DAMAGED_SUFFIX,
    LOG_SUFFIX,
    LOST_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offset_in_name,
)
from kraftlog.storage.recovery import SegmentScan

_COPIED_BYTES: Final = 1024 * 1024


class LostOffsets(NamedTuple):
    """A range of offsets that were flushed and are no longer in the log; `end_offset` is exclusive."""

    start_offset: int
    end_offset: int


class DamagedFiles:
    """The files of a damaged log. `entry` is the log's entry in the inventory, None if there is none."""

    def __init__(self, handles: FileHandles, directory: str, entry: LogEntry | None) -> None:
        self._handles = handles
        self._files: FileSystem = handles.files
        self._directory = directory
        self._entry = entry
        names = self._files.list_directory(directory) if self._files.exists(directory) else []
        self._whole = {offset for name in names if (offset := offset_in_name(name, LOG_SUFFIX)) is not None}
        suffix = LOG_SUFFIX + DAMAGED_SUFFIX
        self._set_aside = {offset for name in names if (offset := offset_in_name(name, suffix)) is not None}

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets of all segments that have a file, set aside or not."""
        return sorted(self._whole | self._set_aside)

    @property
    def start_offset(self) -> int:
        """The start offset of a log without segments: the last known end, so that no offset is assigned twice."""
        return 0 if self._entry is None else max(self._entry.log_start_offset, self._entry.recovery_point)

    @property
    def end_offset(self) -> int:
        """The offset after the last valid batch."""
        ends = [following for base_offset in self.base_offsets[-1:] for _, following in self._runs(base_offset)]
        return max([*self.base_offsets[-1:], *ends], default=self.start_offset)

    @property
    def damage(self) -> str:
        """The damage that a startup would find, as a phrase; empty if there is none. Reads every segment."""
        if self._entry is not None and not self._files.exists(self._directory):
            return "" if self._entry.is_new else "its directory is missing"
        if self._set_aside:
            return f"the segment at offset {min(self._set_aside)} was set aside"
        sizes = {offset: self._handles.get(self._path(offset)).size() for offset in self._whole}
        missing = "" if self._entry is None else missing_segments(self._entry, sizes)
        if missing:
            return missing
        recovery_point = 0 if self._entry is None else max(0, self._entry.recovery_point)
        known = Known(recovery_point=recovery_point, entry=self._entry)
        invalid = next(filter(self._has_invalid_bytes, self.base_offsets[:-1]), None)
        if invalid is None and self.base_offsets and self._has_valid_behind_invalid(self.base_offsets[-1]):
            invalid = self.base_offsets[-1]
        if invalid is not None:
            return f"the segment at offset {invalid} has bytes that are not a valid batch"
        return lost_end(known, self.end_offset)

    # --- losses -------------------------------------------------------------------------------------------------------

    def losses(self) -> list[LostOffsets]:
        """Return the missing offsets, by the inventory and the files. Reads every segment; changes nothing.

        For a log without an inventory entry only gaps between existing batches are found. A compacted topic has gaps
        where nothing was lost; they are returned as well.
        """
        start_offset = 0 if self._entry is None else self._entry.log_start_offset
        end_offset = 0 if self._entry is None else self._entry.recovery_point
        lost: list[LostOffsets] = []
        next_offset: int | None = None if self._entry is None else start_offset
        for base_offset in self.base_offsets:
            for first_offset, following in self._runs(base_offset):
                if next_offset is not None and first_offset > next_offset:
                    lost.append(LostOffsets(next_offset, first_offset))
                next_offset = max(next_offset or 0, following)
        if next_offset is not None and next_offset < end_offset:
            lost.append(LostOffsets(next_offset, end_offset))
        return [loss for loss in lost if loss.end_offset > start_offset]

    def _runs(self, base_offset: int) -> Iterator[tuple[int, int]]:
        """Yield the offsets of each run of consecutive valid batches of a segment: its first offset, and its end."""
        start: int | None = None
        end_offset = base_offset
        for _, first_offset, following in self._valid_batches(base_offset):
            if start is not None and first_offset != end_offset:
                yield start, end_offset
                start = None
            start = first_offset if start is None else start
            end_offset = following
        if start is not None:
            yield start, end_offset

    def _valid_batches(self, base_offset: int) -> Iterator[tuple[range, int, int]]:
        """Yield the byte range of each valid batch of a segment, its first offset, and the offset after its last."""
        scan = SegmentScan(self._files, self._path(base_offset), base_offset)
        while True:
            for position, header in scan.batches():
                yield range(position, position + header.size_bytes), header.base_offset, header.last_offset + 1
            if not scan.skip_invalid():
                return

    def _path(self, base_offset: int) -> str:
        path = join(self._directory, file_name(base_offset, LOG_SUFFIX))
        return path + DAMAGED_SUFFIX if base_offset in self._set_aside else path

    # --- repair -------------------------------------------------------------------------------------------------------

    def mend(self) -> None:
        """Reduce every segment to its valid batches, durably; keep the damaged originals as `.lost`.

        Safe to repeat after a crash. Raises StorageError, FlushFailed.
        """
        self._files.make_directories(self._directory)
        for base_offset in self.base_offsets:
            if base_offset in self._set_aside or self._has_invalid_bytes(base_offset):
                self._mend_segment(base_offset)
            else:
                self._handles.get(self._path(base_offset)).fsync()  # a killed broker may not have flushed it

    def _has_invalid_bytes(self, base_offset: int) -> bool:
        scan = SegmentScan(self._files, self._path(base_offset), base_offset)
        for _ in scan.batches():
            pass
        return scan.end_position < scan.file_bytes

    def _has_valid_behind_invalid(self, base_offset: int) -> bool:
        """Whether a valid batch follows bytes that are not one: that is damage, and not a torn tail."""
        scan = SegmentScan(self._files, self._path(base_offset), base_offset)
        for _ in scan.batches():
            pass
        return scan.end_position < scan.file_bytes and scan.skip_invalid()

    def _mend_segment(self, base_offset: int) -> None:
        path = join(self._directory, file_name(base_offset, LOG_SUFFIX))
        self._handles.drop(path)
        if base_offset not in self._set_aside:
            self._files.rename(path, path + DAMAGED_SUFFIX)
            self._files.fsync_directory(self._directory)
            self._set_aside.add(base_offset)
        self._copy_valid(base_offset, path + TEMPORARY_SUFFIX)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._handles.remove(join(self._directory, file_name(base_offset, suffix)))
        self._files.rename(path + TEMPORARY_SUFFIX, path)
        self._files.fsync_directory(self._directory)
        self._files.rename(path + DAMAGED_SUFFIX, self._free_name(path))
        self._files.fsync_directory(self._directory)
        self._set_aside.discard(base_offset)
        self._whole.add(base_offset)

    def _free_name(self, path: str) -> str:
        """Return a path under which no segment is kept yet; an earlier loss may have used the first one."""
        names = chain((path + LOST_SUFFIX,), (f"{path}.{number}{LOST_SUFFIX}" for number in count(2)))
        return next(name for name in names if not self._files.exists(name))

    def _copy_valid(self, base_offset: int, path: str) -> None:
        if self._files.exists(path):
            self._files.remove(path)
        source, copy = self._files.open_to_read(self._path(base_offset)), self._files.open(path, create=True)
        try:
            end = 0
            for places, _, _ in self._valid_batches(base_offset):
                for position in range(places.start, places.stop, _COPIED_BYTES):
                    data = source.read_at(position, min(_COPIED_BYTES, places.stop - position))
                    copy.write_at(end, data)
                    end += len(data)
            copy.fsync()
        finally:
            source.close()
            copy.close()
