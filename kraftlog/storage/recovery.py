"""Reads segments that may not have been flushed, and distinguishes a torn tail from damage.

Kafka cuts a log at the first invalid batch, whatever follows it. Here the log is cut only if a crash can have left it
like that. A crash may lose any sectors of unflushed writes; a lost sector reads as zeros, or is beyond the end of the
file. Consider a log whose recovery point is 100, with batches A (100 to 104), B (105 to 109), C (110 to 114):

- C is invalid, and nothing follows: a torn tail, the log ends at 110.
- B does not read back, C does, and some sector of B reads as zeros: the disk wrote C before B and lost power in
between.
  Neither was flushed, and both are cut.
- B does not read back, C does, and B has other bytes everywhere: B was written whole, and has changed since. Cut there,
  the log would lose B and C, which may have been acknowledged: damage.
- A batch below 100 is invalid: it was flushed, so this is damage whatever its bytes are.

A damaged segment is set aside: its `.log` is renamed to `.damaged`, and no other file of the partition is changed. The
partition is offline on this broker, also after restarts: if another replica can lead it, until this replica is copied
again (`damaged_replicas`), otherwise until an operator has restored the segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftbase.files.files import SECTOR_BYTES, File, FileSystem
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import MAGIC
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader, has_right_crc, read_header
from kraftlog.storage.formats.indexes import RELATIVE_OFFSET_MAX
from kraftlog.storage.segment import BatchPlace

PIECE_BYTES: Final = 1024 * 1024
_MAGIC_AT: Final = 16


class SegmentScan:
    """Reads the batches of a `.log` file one after the other, and verifies their checksums."""

    def __init__(self, files: FileSystem, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.end_offset = base_offset
        """The offset after the last valid batch so far."""
        self.end_position = 0
        """The position after the last valid batch so far."""
        self.file_bytes = 0
        self.is_cut_off = False
        """Whether the file ends within the invalid batch."""
        self._files = files

    def batches(self) -> Iterator[BatchPlace]:
        """Yield the valid batches up to the first invalid bytes, or the end. Raises StorageError."""
        file = self._files.open_to_read(self.path)
        try:
            self.file_bytes = file.size()
            piece, piece_at = b"", 0
            while self.end_position < self.file_bytes:
                at = self.end_position - piece_at
                needed = self._bytes_of_batch(piece, at)
                if needed > len(piece) - at:
                    piece, piece_at = file.read_at(self.end_position, max(needed, PIECE_BYTES)), self.end_position
                    at, needed = 0, self._bytes_of_batch(piece, 0)
                    if needed > len(piece):
                        piece = file.read_at(self.end_position, needed)
                header = self.valid_batch(piece, at)
                if header is None:
                    self.is_cut_off = needed > len(piece) - at
                    return
                yield BatchPlace(self.end_position, header)
                self.end_position += header.size_bytes
                self.end_offset = header.last_offset + 1
        finally:
            file.close()

    def skip_invalid(self) -> bool:
        """Let `batches` continue at the next valid batch; return False if there is none."""
        file = self._files.open_to_read(self.path)
        try:
            behind = self._first_valid(file)
        finally:
            file.close()
        if behind is None:
            return False
        self.end_position = behind
        return True

    def _bytes_of_batch(self, piece: bytes, at: int) -> int:
        """Return the number of bytes needed to read the batch at a position of `piece`."""
        if len(piece) - at < BATCH_BYTES_MIN:
            return BATCH_BYTES_MIN
        try:
            size = read_header(piece, at).size_bytes
        except MalformedBytes:
            return BATCH_BYTES_MIN
        return min(size, self.file_bytes - self.end_position + 1)

    def valid_batch(self, data: bytes, at: int) -> BatchHeader | None:
        """Return the header at a position of `data`, if the batch is complete, in place and has a right checksum."""
        header = self._header_in_place(data, at)
        if header is None or header.size_bytes > len(data) - at or not has_right_crc(header, data, at):
            return None
        return header

    def _header_in_place(self, data: bytes, at: int) -> BatchHeader | None:
        """Return the header at a position of `data`, if its offsets fit this segment, after the last valid batch."""
        if len(data) - at < BATCH_BYTES_MIN:
            return None
        try:
            header = read_header(data, at)
        except MalformedBytes:
            return None
        is_in_place = (
            self.end_offset <= header.base_offset <= header.last_offset <= self.base_offset + RELATIVE_OFFSET_MAX
        )
        return header if is_in_place else None

    def check_tail(self, recovery_point: int, *, is_last: bool, has_valid_successor: bool) -> None:
        """Raise DamagedSegment if bytes follow the last valid batch that are not a torn tail.

        Also raise it if flushed records are missing. `is_last`: no later segment exists; `has_valid_successor`: a later
        segment begins with a valid batch.
        """
        if self.end_offset < recovery_point and (self.end_position < self.file_bytes or is_last):
            raise self._damaged(f"offsets below {recovery_point} were flushed")
        if self.end_position == self.file_bytes:
            return
        file = self._files.open_to_read(self.path)
        try:
            displaced = self._displaced(file)
            if displaced is not None:
                raise self._damaged(f"a valid batch with offset {displaced.base_offset} follows")
            behind = self._first_valid(file)
            if behind is not None:
                if not self._has_lost_sector(file, behind):
                    raise self._damaged(f"a valid batch follows at byte {behind}")
            elif has_valid_successor and not self._has_torn_end(file):
                raise self._damaged("a later segment begins with a valid batch")
        finally:
            file.close()

    def _displaced(self, file: File) -> BatchHeader | None:
        """Return the batch after the last valid one, if it is complete and only its offsets are too low.

        A crash cannot cause that. Consider batches at 10, 20 and 30, and a changed bit in the first one's base offset,
        which no checksum covers: the batch is now at 1,000,010. Cut after it, the log would lose the other two.
        """
        data = file.read_at(self.end_position, BATCH_BYTES_MIN)
        if len(data) < BATCH_BYTES_MIN:
            return None
        try:
            header = read_header(data, 0)
        except MalformedBytes:
            return None
        if not self.base_offset <= header.base_offset < self.end_offset:
            return None
        if header.size_bytes > self.file_bytes - self.end_position:
            return None
        data = file.read_at(self.end_position, header.size_bytes)
        return header if has_right_crc(header, data, 0) else None

    def _has_torn_end(self, file: File) -> bool:
        """Whether a crash may have left the bytes after the last valid batch, if no valid batch follows.

        Checked up to the end of the file, and up to the end of the invalid batch: its lost sector may also have the
        beginning of the next batch, which was cut off.
        """
        ends = (self.file_bytes, self._end_of_bad_batch(file))
        return self.is_cut_off or any(self._has_lost_sector(file, end) for end in ends)

    def _end_of_bad_batch(self, file: File) -> int:
        """Return the end position of the invalid batch; the end of its header if that is unreadable."""
        header = self._header_in_place(file.read_at(self.end_position, BATCH_BYTES_MIN), 0)
        return min(self.file_bytes, self.end_position + (BATCH_BYTES_MIN if header is None else header.size_bytes))

    def _first_valid(self, file: File) -> int | None:
        """Return the position of the first valid batch after the invalid bytes, or None."""
        position = self.end_position + 1
        while position < self.file_bytes:
            piece = file.read_at(position, PIECE_BYTES + BATCH_BYTES_MIN)
            found = piece.find(MAGIC, _MAGIC_AT)
            while 0 <= found < PIECE_BYTES + _MAGIC_AT:
                at = found - _MAGIC_AT
                header = self._header_in_place(piece, at)
                if header is not None and self.valid_batch(file.read_at(position + at, header.size_bytes), 0):
                    return position + at
                found = piece.find(MAGIC, found + 1)
            position += PIECE_BYTES
        return None

    def _has_lost_sector(self, file: File, end: int) -> bool:
        """Whether a sector, or its part, between the last valid batch and `end` is all zeros."""
        position = self.end_position
        while position < end:
            piece_end = min(end, (position // PIECE_BYTES + 1) * PIECE_BYTES)
            piece, start = file.read_at(position, piece_end - position), 0
            while start < len(piece):
                sector_end = min(len(piece), start + SECTOR_BYTES - (position + start) % SECTOR_BYTES)
                if piece.count(0, start, sector_end) == sector_end - start:
                    return True
                start = sector_end
            position = piece_end
        return False

    def _damaged(self, evidence: str) -> DamagedSegment:
        what = f"the batch with offset {self.end_offset} is missing or invalid, but {evidence}"
        return DamagedSegment(self.path, self.end_position, what)
