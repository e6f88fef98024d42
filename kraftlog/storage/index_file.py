"""The offset index and the time index of a segment: sorted entries of a fixed size.

New entries are kept in memory until `write`: at a roll, a flush and a close. A startup rebuilds entries that a crash
has lost, since it reads the segments that were not flushed. Kafka maps the last segment's indexes into memory at their
largest size, so their files are padded with zeros; here a file is as long as its entries.

Entries have no checksum. The caller compares an entry with the log, and raises WrongIndex if the two differ.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kraftbase.errors import CorruptLog, OutOfSpace, StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, File, join, write_new_file
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, TIME_ENTRY
from kraftlog.storage.formats.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name


class WrongIndex(CorruptLog):
    """An index contradicts the log of its segment. The log is right; the index must be rebuilt."""


class OffsetPosition(NamedTuple):
    """The last offset of a batch, and the position in the `.log` file at which the batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """The largest timestamp of a segment so far, and the last offset of the batch that has it."""

    timestamp_ms: int
    offset: int


class IndexFile:
    """The entries of one file. `write` creates the file if it does not exist."""

    def __init__(self, handles: FileHandles, path: str, packing: struct.Struct, entry_count: int) -> None:
        """The first `entry_count` entries of the file are valid; bytes after them are ignored."""
        self.path = path
        self.entry_count = entry_count
        self._handles = handles
        self._packing = packing
        self._written_count = entry_count
        self._unwritten = bytearray()

    @property
    def is_written(self) -> bool:
        """Whether the file has all entries."""
        return not self._unwritten

    def entry(self, index: int) -> tuple[int, int]:
        """Return an entry. Raises StorageError, and WrongIndex if the file has become shorter or is missing."""
        size = self._packing.size
        if index >= self._written_count:
            first, second = self._packing.unpack_from(self._unwritten, (index - self._written_count) * size)
            return first, second
        data = self._file().read_at(index * size, size)
        if len(data) < size:
            raise WrongIndex(f"{self.path} has become shorter: entry {index} is missing")
        first, second = self._packing.unpack(data)
        return first, second

    def last_not_above(self, value: int, column: int = 0) -> int:
        """Return the index of the last entry whose value in `column` (0 or 1) is not above `value`; -1 if none is."""
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def add(self, first: int, second: int) -> None:
        """Append an entry."""
        self._unwritten += self._packing.pack(first, second)
        self.entry_count += 1

    def write(self) -> None:
        """Write the entries that are only in memory. Raises StorageError, also OutOfSpace; then nothing has changed."""
        if self._unwritten or not self._handles.files.exists(self.path):
            file = self._open()
            file.write_at(self._written_count * self._packing.size, bytes(self._unwritten))
            self._written_count = self.entry_count
            self._unwritten.clear()

    def trim(self) -> None:
        """Write, and truncate the file to its entries."""
        self.write()
        file = self._handles.get(self.path)
        if file.size() != self.entry_count * self._packing.size:
            file.truncate(self.entry_count * self._packing.size)

    def cut(self, entry_count: int) -> None:
        """Keep only the first `entry_count` entries, in memory and on disk."""
        if entry_count >= self._written_count:
            del self._unwritten[(entry_count - self._written_count) * self._packing.size :]
        else:
            self._unwritten.clear()
            self._written_count = entry_count
            self._file().truncate(entry_count * self._packing.size)
        self.entry_count = entry_count

    def clear(self) -> None:
        """Forget all entries, in memory and in the file: the caller adds others, then calls `rewrite`."""
        self._unwritten.clear()
        self.entry_count = self._written_count = 0

    def rewrite(self) -> None:
        """Replace the file by one with the present entries, durably. Raises StorageError, FlushFailed.

        Without room the file is removed: the entries stay in memory, and the next startup rebuilds the file.
        """
        self._handles.drop(self.path)
        try:
            write_new_file(self._handles.files, self.path, bytes(self._unwritten))
        except OutOfSpace:
            for path in (self.path + TEMPORARY_SUFFIX, self.path):
                self._handles.remove(path)
        else:
            self._written_count = self.entry_count
            self._unwritten.clear()

    def _file(self) -> File:
        try:
            return self._handles.get(self.path)
        except StorageError:
            if self._handles.files.exists(self.path):
                raise
            raise WrongIndex(f"{self.path} is missing") from None

    def _open(self) -> File:
        files = self._handles
        return files.get(self.path) if files.files.exists(self.path) else files.create(self.path)


class OffsetIndex:
    """The positions of batches in the `.log` file, one entry for every `index.interval.bytes` (FM-30)."""

    def __init__(self, handles: FileHandles, directory: str, base_offset: int, entry_count: int = 0) -> None:
        self._base_offset = base_offset
        self.file = IndexFile(
            handles, join(directory, file_name(base_offset, OFFSET_INDEX_SUFFIX)), OFFSET_ENTRY, entry_count
        )

    def add(self, last_offset: int, position: int) -> None:
        """Note that the batch that ends at an offset begins at a position."""
        self.file.add(last_offset - self._base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition | None:
        """Return the last entry not above the offset, or None: the batch with the offset begins there or later."""
        index = self.file.last_not_above(offset - self._base_offset)
        if index < 0:
            return None
        relative, position = self.file.entry(index)
        return OffsetPosition(self._base_offset + relative, position)

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of batches that end at `end_offset` or later."""
        self.file.cut(self.file.last_not_above(end_offset - self._base_offset - 1) + 1)


class TimeIndex:
    """Entries of the largest timestamp up to an offset; both values ascend."""

    def __init__(self, handles: FileHandles, directory: str, base_offset: int, entry_count: int = 0) -> None:
        self._base_offset = base_offset
        self.file = IndexFile(
            handles, join(directory, file_name(base_offset, TIME_INDEX_SUFFIX)), TIME_ENTRY, entry_count
        )

    @property
    def last(self) -> TimestampOffset:
        """The last entry; no timestamp at the base offset if there is none."""
        if not self.file.entry_count:
            return TimestampOffset(NO_TIMESTAMP, self._base_offset)
        return self._entry(self.file.entry_count - 1)

    def add(self, largest: TimestampOffset) -> None:
        """Note the largest timestamp so far, if it is larger than the last one noted."""
        if largest.timestamp_ms > self.last.timestamp_ms:
            self.file.add(largest.timestamp_ms, largest.offset - self._base_offset)

    def lookup(self, timestamp_ms: int) -> Sequence[TimestampOffset]:
        """Return the last two entries not above the timestamp, or fewer if there are fewer.

        No record up to an entry's offset is newer than its timestamp. To verify that in the log, all earlier records
        would have to be read. So the caller uses the lower offset of two entries: it is right even if one is wrong.
        """
        index = self.file.last_not_above(timestamp_ms)
        return [self._entry(at) for at in range(max(0, index - 1), index + 1)]

    def _entry(self, index: int) -> TimestampOffset:
        timestamp_ms, relative = self.file.entry(index)
        return TimestampOffset(timestamp_ms, self._base_offset + relative)

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of batches that end at `end_offset` or later."""
        self.file.cut(self.file.last_not_above(end_offset - self._base_offset - 1, column=1) + 1)
