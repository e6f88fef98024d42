"""The segments of one log, in order: finds the segment of an offset, and creates and removes segments' files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

from kraftbase.checks import check
from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import join
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import SEGMENT_SUFFIXES, file_name
from kraftlog.storage.old_log import OldLog
from kraftlog.storage.retention import SegmentFacts
from kraftlog.storage.segment import BatchPlace, Segment
from kraftlog.storage.swaps import swap_in
from kraftlog.storage.timestamps import BatchBytes


class SegmentList:
    """The segments of a log, at least one; batches are appended to the last one."""

    def __init__(self, handles: FileHandles, directory: str, segments: Sequence[Segment]) -> None:
        self._handles = handles
        self._directory = directory
        self._segments = list(segments)
        self.last = self._segments[-1]
        """The segment to which batches are appended."""
        self._base_offsets = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        """The number of segments."""
        return len(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    def base_offset_of(self, index: int) -> int:
        """Return the base offset of a segment by its index."""
        return self._base_offsets[index]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segments from the one on whose range contains the offset; all for an offset below the first."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def within(self, offsets: range) -> list[Segment]:
        """Return the segments whose base offsets are in a range.

        Raises InvariantViolation unless segments begin at both ends of the range.
        """
        first, end = self._places_of(offsets)
        return self._segments[first:end]

    def _places_of(self, offsets: range) -> tuple[int, int]:
        first, end = bisect_left(self._base_offsets, offsets.start), bisect_left(self._base_offsets, offsets.stop)
        ends = [self._base_offsets[at] for at in (first, end) if at < len(self._base_offsets)]
        check(ends == [offsets.start, offsets.stop], "a range of segments ends where segments begin", offsets=offsets)
        return first, end

    def has(self, segments: Sequence[Segment]) -> bool:
        """Whether exactly these segments are still in the list, consecutive, and followed by another segment."""
        first = bisect_left(self._base_offsets, segments[0].base_offset)
        found = self._segments[first : first + len(segments)]
        return found == list(segments) and found[-1] is not self.last

    # --- finding ------------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[Segment, BatchPlace] | None:
        """Return the first batch that ends at `offset` or later, perhaps of a later segment, or None."""
        for segment in self.from_offset(offset):
            place = segment.locate(offset)
            if place is not None:
                return segment, place
        return None

    def batch_not_older(self, timestamp_ms: int, start_offset: int) -> BatchBytes | None:
        """Return the first batch with records from `start_offset` on whose largest timestamp is not older, or None."""
        for segment in self.from_offset(start_offset):
            place = segment.find_timestamp(timestamp_ms, start_offset)
            if place is not None:
                return _read(segment, place)
        return None

    def newest_batches(self, start_offset: int) -> list[BatchBytes]:
        """Return the batches, three at most, that may have the newest record from `start_offset` on, in order.

        A batch that contains `start_offset` is among them even if a later one is newer by its header: the records that
        make it newer may be below `start_offset`.
        """
        first, *later = self.from_offset(start_offset)
        first.check_largest()
        found = _newest_in(first, start_offset)
        for segment in later:
            segment.check_largest()
        best = max(later, key=lambda segment: segment.largest.timestamp_ms, default=None)
        place = best.locate(best.largest.offset) if best is not None and best.largest.timestamp_ms >= 0 else None
        if best is not None and place is not None:
            found.append((best, place))
        newest_ms = max((place.header.max_timestamp_ms for _, place in found), default=NO_TIMESTAMP)
        return [
            _read(segment, place)
            for segment, place in found
            if place.header.base_offset < start_offset or place.header.max_timestamp_ms == newest_ms
        ]

    def check_largest(self, count: int) -> bool:
        """Verify the largest timestamp of the `count` oldest segments until one changes; return whether one has."""
        return any(segment.check_largest() for segment in self._segments[:count])

    def facts(self) -> list[SegmentFacts]:
        """The segments as retention sees them."""
        ends = [*self._base_offsets[1:], self.last.end_offset]
        return [
            SegmentFacts(
                segment.base_offset, end_offset, segment.size_bytes,
                segment.largest.timestamp_ms if segment.largest.timestamp_ms >= 0 else segment.created_ms,
            )
            for segment, end_offset in zip(self._segments, ends, strict=True)
        ]  # fmt: skip

    # --- adding and removing ------------------------------------------------------------------------------------------

    def add(self, base_offset: int, config: PartitionLogConfig, now_ms: int) -> None:
        """Add a segment, whose name is not yet durable. Raises StorageError; then no segment was added."""
        segment = Segment.create(self._handles, self._directory, base_offset, now_ms)
        if config.preallocates:
            try:
                self._handles.get(segment.path).reserve(config.segment_bytes)
            except OutOfSpace:
                self._handles.remove(segment.path)
                raise
        self._begin(segment)

    def _begin(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.last = segment

    def remove_last(self) -> Segment:
        """Remove the last segment, durably."""
        segment = self._segments.pop()
        self._base_offsets.pop()
        self.last = self._segments[-1] if self._segments else segment
        self._remove_files(segment)
        self._handles.files.fsync_directory(self._directory)
        return segment

    def start_over(self, base_offset: int, now_ms: int, old_log: OldLog | None = None) -> None:
        """Remove all segments, the last one first, and create one at an offset; its name is not yet durable.

        With `old_log` the old segments are set aside instead of removed.
        """
        if old_log is not None:
            for segment in self._segments:
                old_log.set_aside(segment)
            self._segments.clear()
            self._base_offsets.clear()
            self._handles.files.fsync_directory(self._directory)
        while self._segments:
            self.remove_last()
        try:
            self._begin(Segment.create(self._handles, self._directory, base_offset, now_ms))
        except OutOfSpace as error:  # a log cannot continue without a segment: the directory goes offline
            raise StorageError(f"the log in {self._directory} cannot start over at {base_offset}: {error}") from error

    def remove_first(self, count: int) -> None:
        """Remove the oldest segments, durably."""
        for segment in self._segments[:count]:
            self._remove_files(segment)
        del self._segments[:count], self._base_offsets[:count]
        self._handles.files.fsync_directory(self._directory)

    def replace(self, replaced: range, segments: Sequence[Segment]) -> None:
        """Replace the closed segments whose base offsets are in a range by `segments`, durably (DB-117).

        A crash leaves all old segments or all new ones. `segments` are closed and durable, under names with
        CLEANED_SUFFIX. The first begins where the range does, so that the log's start does not move. A reader with a
        pinned file of an old segment can read that file to its end.

        Raises StorageError, FlushFailed, and OutOfSpace, after which nothing has changed.
        """
        first, end = self._places_of(replaced)
        limits = [*(segment.base_offset for segment in segments), replaced.stop]
        check(limits[0] == replaced.start, "the first segment begins where the replaced ones do")
        check(
            all(segment.end_offset <= limit for segment, limit in zip(segments, limits[1:], strict=True))
            and all(base_offset < following for base_offset, following in pairwise(limits)),
            "segments do not overlap",
        )
        swap_in(self._handles, self._directory, self._base_offsets[first:end], limits[:-1])
        for segment in segments:
            segment.renamed("")
        self._segments[first:end] = segments
        self._base_offsets[first:end] = limits[:-1]

    def _remove_files(self, segment: Segment) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._handles.remove(join(self._directory, file_name(segment.base_offset, suffix)))


def _newest_in(segment: Segment, start_offset: int) -> list[tuple[Segment, BatchPlace]]:
    """Return the batches, two at most, that may have the segment's newest record from `start_offset` on, in order."""
    best = segment.locate(segment.largest.offset) if segment.largest.timestamp_ms >= 0 else None
    if best is None or best.header.base_offset >= start_offset:
        return [] if best is None else [(segment, best)]
    # The newest batch, or a part of it, was deleted. For batches after the one with `start_offset` the header suffices.
    first = segment.locate(start_offset)
    if first is None:
        return []
    later = segment.batches(first.position + first.header.size_bytes)
    best = max(later, key=lambda place: place.header.max_timestamp_ms, default=None)
    return [(segment, place) for place in (first, best) if place is not None]


def _read(segment: Segment, place: BatchPlace) -> BatchBytes:
    return BatchBytes(place.header, segment.read(place.position, place.header.size_bytes))
