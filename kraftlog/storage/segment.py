"""One segment of a partition's log: its `.log` and its indexes.

The offset index gets an entry, with last offset and position, for each batch before which more than
`index.interval.bytes` were written since the previous entry, as in Kafka. So a search begins at most about that many
bytes before its target.

Indexes have no checksums, so each entry is compared with the log when it is used. If they differ, both indexes are
rebuilt from the log. Consider an entry (120, 4096) with a changed bit: (120, 12288) would let a reader of offset 120
begin at the batch with offset 240, and miss the records in between.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import structlog

from kraftbase.checks import check
from kraftbase.checksum import crc32c
from kraftbase.errors import StorageError
from kraftbase.files.files import join, parent_directory
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader, has_right_crc, read_header
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from kraftlog.storage.formats.names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name
from kraftlog.storage.index_file import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset, WrongIndex

logger = structlog.get_logger(__name__)

SCAN_BYTES: Final = 16 * 1024
"""The bytes of the log that are read at once in a search for a batch by its header."""

RECENT_BATCHES: Final = 64
"""The number of last batches whose positions stay in memory, for readers at the end of the log."""


REBUILT_INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default of `index.interval.bytes`, for indexes that are rebuilt while a log is in use."""


class BatchPlace(NamedTuple):
    """A batch's position in the `.log` file, and its header."""

    position: int
    header: BatchHeader


class Segment:
    """The batches from `base_offset` to before `end_offset`."""

    def __init__(
        self, handles: FileHandles, directory: str, base_offset: int, *, created_ms: int, size_bytes: int = 0,
        end_offset: int | None = None, offset_entries: int = 0, time_entries: int = 0,
    ) -> None:  # fmt: skip
        """Describe a segment whose file exists; the default values are those of a new one."""
        self.base_offset = base_offset
        self.end_offset = base_offset if end_offset is None else end_offset
        """The offset after the segment's last one."""
        self.size_bytes = size_bytes
        self.path = join(directory, file_name(base_offset, LOG_SUFFIX))
        self.offsets = OffsetIndex(handles, directory, base_offset, offset_entries)
        self.times = TimeIndex(handles, directory, base_offset, time_entries)
        self.created_ms = created_ms
        """The time at which this process created or opened the segment, in milliseconds."""
        self.largest = self.times.last
        """The largest timestamp; by the index alone, unverified, until `check_largest` was called."""
        self._is_largest_checked = not size_bytes
        self._handles = handles
        self._first_timestamp_ms: int | None = None
        self._bytes_since_entry = 0
        self._recent: OrderedDict[int, int] = OrderedDict()  # base offset to position
        self._newest: BatchHeader | None = None

    @classmethod
    def create(cls, handles: FileHandles, directory: str, base_offset: int, now_ms: int, suffix: str = "") -> Segment:
        """Create the file of a new segment, without a sync; its files' names end with `suffix`. Raises StorageError."""
        segment = cls(handles, directory, base_offset, created_ms=now_ms)
        if suffix:
            segment.renamed(suffix)
        handles.create(segment.path)
        return segment

    @property
    def paths(self) -> tuple[str, str, str]:
        """The paths of the log and its two indexes."""
        return self.path, self.offsets.file.path, self.times.file.path

    def renamed(self, suffix: str) -> None:
        """Note that the names of its files now end with `suffix`."""
        name = join(parent_directory(self.path), file_name(self.base_offset, ""))
        self.path = name + LOG_SUFFIX + suffix
        self.offsets.file.path = name + OFFSET_INDEX_SUFFIX + suffix
        self.times.file.path = name + TIME_INDEX_SUFFIX + suffix

    def why_roll(
        self, config: PartitionLogConfig, first: BatchHeader, last: BatchHeader, byte_count: int, now_ms: int
    ) -> str:
        """Return why batches need a new segment; empty if they can be appended here."""
        if self.size_bytes > config.segment_bytes - byte_count:
            return "segment.bytes"
        if last.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return "the span of offsets"
        if self.offsets.file.entry_count >= config.segment_index_bytes // OFFSET_ENTRY.size:
            return "the offset index is full"
        if self.times.file.entry_count >= config.segment_index_bytes // TIME_ENTRY.size - 1:
            return "the time index is full"
        if self.size_bytes:
            first_ms = self._first_timestamp_ms
            if first_ms is None:
                first_ms = self.first_timestamp_ms
            # The age of the segment, by the batches' timestamps if they have any, as in Kafka.
            waited_ms = first.max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms
            if waited_ms > config.segment_ms - (config.segment_jitter_ms and self._jitter_ms(config)):
                return "segment.ms"
        return ""

    def _jitter_ms(self, config: PartitionLogConfig) -> int:
        """Return a jitter that differs from segment to segment; derived from the path, so that runs are repeatable."""
        return crc32c(self.path.encode()) % config.segment_jitter_ms

    @property
    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch; -1 if it has none."""
        if self._first_timestamp_ms is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self._first_timestamp_ms = next(self.batches(0)).header.max_timestamp_ms
        return self._first_timestamp_ms

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, headers: Sequence[BatchHeader], config: PartitionLogConfig) -> None:
        """Write batches after the last one; `data` consists of them.

        Raises StorageError, also OutOfSpace; then only ignored bytes after the end may have changed.
        """
        if headers[0].base_offset < self.end_offset:
            check(False, "offsets ascend")
        file = self._handles.get(self.path)
        try:
            file.write_at(self.size_bytes, data)
        except StorageError:
            with contextlib.suppress(StorageError):
                file.truncate(self.size_bytes)
                file.fsync()  # after a crash a partial write must not reappear after the end
            raise
        recent, interval_bytes = self._recent, config.index_interval_bytes
        for header in headers:
            recent[header.base_offset] = self.size_bytes
            self.index_batch(self.size_bytes, header, interval_bytes)
        while len(recent) > RECENT_BATCHES:
            recent.popitem(last=False)

    def index_batch(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Account for the next batch of the segment, at a position; add index entries where they are due."""
        if not position:
            self._first_timestamp_ms = header.max_timestamp_ms
        size_bytes, last_offset = header.size_bytes, header.last_offset
        if header.max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimestampOffset(header.max_timestamp_ms, last_offset)
        if self._bytes_since_entry > index_interval_bytes:
            self.offsets.add(last_offset, position)
            self.times.add(self.largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes
        self.size_bytes = position + size_bytes
        self.end_offset = last_offset + 1
        self._newest = header

    def ends_with(self, header: BatchHeader) -> None:
        """Note the header of the last batch, found by a scan."""
        self.end_offset = header.last_offset + 1
        self._newest = header

    @property
    def last_checksum(self) -> int:
        """The CRC of the last batch; 0 if unknown."""
        return 0 if self._newest is None else self._newest.crc

    def close_indexes(self) -> None:
        """Add the largest timestamp to its index, and write and trim both indexes. Raises StorageError."""
        self.times.add(self.largest)
        self.offsets.file.trim()
        self.times.file.trim()

    @property
    def has_written_indexes(self) -> bool:
        """Whether the files of the indexes have all entries."""
        return self.offsets.file.is_written and self.times.file.is_written

    def write_indexes(self) -> None:
        """Write the new entries of the indexes. Raises StorageError."""
        self.offsets.file.write()
        self.times.file.write()

    # --- reading ------------------------------------------------------------------------------------------------------

    def batches(self, position: int, end_position: int | None = None) -> Iterator[BatchPlace]:
        """Yield the batches from a position at which a batch begins. Raises DamagedSegment for an invalid header."""
        end_position = self.size_bytes if end_position is None else end_position
        piece, piece_at = b"", position
        while position < end_position:
            if position - piece_at + BATCH_BYTES_MIN > len(piece):
                piece, piece_at = self._handles.get(self.path).read_at(position, SCAN_BYTES), position
            try:
                if len(piece) - (position - piece_at) < BATCH_BYTES_MIN:
                    raise MalformedBytes("header", "the file ends within it")
                header = read_header(piece, position - piece_at)
            except MalformedBytes as error:
                raise DamagedSegment(self.path, position, str(error)) from None
            yield BatchPlace(position, header)
            position += header.size_bytes

    def locate(self, offset: int) -> BatchPlace | None:
        """Return the first batch that ends at `offset` or later; None if there is none."""
        if offset >= self.end_offset:
            return None
        newest = self._newest
        if newest is not None and newest.base_offset <= offset:
            return BatchPlace(self.size_bytes - newest.size_bytes, newest)
        start = self._recent.get(offset)
        if start is not None:
            return next(self.batches(start))
        try:
            return self._indexed(offset)
        except WrongIndex as error:
            self._make_indexes_again(error)
            return self._indexed(offset)

    def _indexed(self, offset: int) -> BatchPlace | None:
        """Return the first batch that ends at `offset` or later, by the index. Raises WrongIndex."""
        return next((place for place in self.batches_before(offset) if place.header.last_offset >= offset), None)

    def batches_before(self, offset: int) -> Iterator[BatchPlace]:
        """Yield the batches from the index's last entry not above `offset` on. Raises WrongIndex, DamagedSegment."""
        entry = self.offsets.lookup(offset)
        if entry is None:
            return self.batches(0)
        places = self.batches(entry.position)
        try:
            first = next(places) if 0 <= entry.position < self.size_bytes else None
        except DamagedSegment:
            first = None
        if first is None or not self._may_be_of(first, entry):
            raise WrongIndex(
                f"{self.offsets.file.path} is wrong: the batch with offset {entry.offset} does not begin at byte"
                f" {entry.position}"
            )
        return chain((first,), places)

    def _may_be_of(self, place: BatchPlace, entry: OffsetPosition) -> bool:
        """Whether an index entry may belong to the batch `place`, read at the entry's position.

        An entry of kraftlog, or of a newer Kafka, has the last offset of its batch. An entry of an older Kafka has the
        last offset of all batches of an append: then only the checksum shows whether a batch really begins there.
        """
        header = place.header
        if header.base_offset < self.base_offset or place.position + header.size_bytes > self.size_bytes:
            return False
        if header.last_offset == entry.offset:
            return True
        is_below = header.base_offset <= entry.offset
        return is_below and has_right_crc(header, self.read(place.position, header.size_bytes))

    def read(self, position: int, byte_count: int) -> bytes:
        """Read bytes of the log. Raises StorageError."""
        return self._handles.get(self.path).read_at(position, byte_count)

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> BatchPlace | None:
        """Return the first batch from `start_offset` on with a largest timestamp of at least `timestamp_ms`, or None.

        Raises StorageError, DamagedSegment.
        """
        self.check_largest()
        if self.largest.timestamp_ms < timestamp_ms:
            return None
        try:
            start = self._offset_before(timestamp_ms)
        except WrongIndex as error:
            self._make_indexes_again(error)
            start = self._offset_before(timestamp_ms)
        first = self.locate(max(start, start_offset))
        for place in () if first is None else self.batches(first.position):
            if place.header.max_timestamp_ms >= timestamp_ms and place.header.last_offset >= start_offset:
                return place
        return None

    def _offset_before(self, timestamp_ms: int) -> int:
        """Return an offset below which every record is older, by the time index. Raises WrongIndex."""
        entries = self.times.lookup(timestamp_ms)
        for entry in entries:
            self._check_time(entry)
        return min(entry.offset for entry in entries) if len(entries) == 2 else self.base_offset

    def _check_time(self, entry: TimestampOffset) -> None:
        """Raise WrongIndex unless the batch with the entry's offset has the entry's timestamp as its largest."""
        place = self._indexed(entry.offset) if self.base_offset <= entry.offset < self.end_offset else None
        if (
            place is None
            or place.header.base_offset > entry.offset
            or place.header.max_timestamp_ms != entry.timestamp_ms
        ):
            raise WrongIndex(
                f"{self.times.file.path} is wrong: the batch with offset {entry.offset} does not have timestamp"
                f" {entry.timestamp_ms}"
            )

    # --- wrong indexes ------------------------------------------------------------------------------------------------

    def _make_indexes_again(self, reason: WrongIndex) -> None:
        """Rebuild both indexes from the log, durably. Raises StorageError, and DamagedSegment if the log is damaged."""
        logger.warning("the indexes of a segment are rebuilt", path=self.path, reason=str(reason))
        size_bytes, end_offset = self.size_bytes, self.end_offset
        for file in (self.offsets.file, self.times.file):
            file.clear()
        self.largest = self.times.last
        self._bytes_since_entry = 0
        try:
            self.end_offset = self.base_offset
            for position, header in self.batches(0, size_bytes):
                if not self.end_offset <= header.base_offset <= header.last_offset < end_offset:
                    what = f"a batch has offsets {header.base_offset} to {header.last_offset}"
                    raise DamagedSegment(self.path, position, f"{what}, after offset {self.end_offset - 1}")
                self.index_batch(position, header, REBUILT_INDEX_INTERVAL_BYTES)
        finally:
            self.size_bytes, self.end_offset = size_bytes, end_offset
        self.times.add(self.largest)
        self._is_largest_checked = True
        for file in (self.offsets.file, self.times.file):
            file.rewrite()

    def check_largest(self) -> bool:
        """Verify `largest` against the log, once after startup; return whether it has changed."""
        before = self.largest
        if not self._is_largest_checked:
            self.reload_largest()
        return self.largest != before

    def reload_largest(self) -> None:
        """Determine the largest timestamp: that of the last index entry, or of a batch after it."""
        self._first_timestamp_ms = None
        self._is_largest_checked = True
        try:
            self.largest = self.times.last
            if self.times.file.entry_count:
                self._check_time(self.largest)
            places = self.batches_before(self.largest.offset)
        except WrongIndex as error:
            self._make_indexes_again(error)
            return
        for place in places:
            if place.header.max_timestamp_ms > self.largest.timestamp_ms:
                self.largest = TimestampOffset(place.header.max_timestamp_ms, place.header.last_offset)

    # --- truncating ---------------------------------------------------------------------------------------------------

    def truncate(self, end_offset: int) -> None:
        """Truncate before the first batch that contains `end_offset` or a later offset; durable at return.

        The indexes are truncated first: after a crash in between they lack entries, and a startup rebuilds them.
        """
        place = self.locate(end_offset)
        if place is None:
            return
        try:
            self._truncate_indexes(end_offset)
        except WrongIndex as error:
            self._make_indexes_again(error)
            self._truncate_indexes(end_offset)
        file = self._handles.get(self.path)
        file.truncate(place.position)
        file.fsync()
        self.size_bytes = place.position
        self.end_offset = min(end_offset, place.header.base_offset)
        self._recent.clear()
        self._newest = None
        self._bytes_since_entry = 0
        self.reload_largest()

    def _truncate_indexes(self, end_offset: int) -> None:
        self.offsets.truncate(end_offset)
        self.times.truncate(end_offset)
