"""One segment: a file of frames, the offset that it starts at, and a sparse index of it in memory.

The file is named for its base offset. Frames follow each other from byte 0 to `end_position`. The reserved room behind
that always reads as zeros: truncated and partly written frames are cut from the file.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kraftbase.checks import check
from kraftbase.errors import CorruptLog, OutOfSpace
from kraftbase.files.files import File, FileSystem, join
from kraftbase.types import Offset
from raft.core.types import Batch
from raft.storage.frame import HEAD_BYTES, Frame, decode_frame, encode_frames, encode_marker, frame_length

INDEX_INTERVAL_BYTES = 1024
"""The bytes between two index entries: the next frame that starts this far behind the last entry gets one.

Entries take 16 bytes in memory, 16 KiB for each MiB of small batches; on average a read first decodes half of this.
"""

_NAME = re.compile(r"([0-9]{20})\.log")


def segment_name(base_offset: Offset) -> str:
    """The file name of the segment that starts at `base_offset` (FM-01)."""
    return f"{base_offset:020d}.log"


def create_segment(files: FileSystem, directory: str, base_offset: Offset) -> None:
    """Create an empty segment, durably."""
    file = files.open(join(directory, segment_name(base_offset)), create=True)
    file.fsync()
    file.close()
    files.fsync_directory(directory)


def parse_segment_name(name: str) -> Offset | None:
    """The base offset in a file name; None if it is not a segment's."""
    match = _NAME.fullmatch(name)
    return Offset(int(match[1])) if match else None


class SparseIndex:
    """Offsets and the file positions of the frames that start there, both increasing."""

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def note(self, offset: Offset, position: int) -> None:
        """Record where a batch starts: keep an entry if the last entry is far enough away."""
        if not self._positions or position - self._positions[-1] >= INDEX_INTERVAL_BYTES:
            self._offsets.append(offset)
            self._positions.append(position)

    def position_before(self, offset: Offset) -> int:
        """The position of the last entry at or below `offset`, 0 if there is none."""
        index = bisect_right(self._offsets, offset)
        return self._positions[index - 1] if index else 0

    def truncate(self, end_offset: Offset) -> None:
        """Forget entries at or above `end_offset`."""
        index = bisect_left(self._offsets, end_offset)
        del self._offsets[index:], self._positions[index:]


class Segment:
    """An open segment, of a file that was read or made before."""

    __slots__ = ("base_offset", "end_offset", "end_position", "file", "index", "last_crc", "reserved_size")

    def __init__(self, file: File, base_offset: Offset, last_crc: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.end_offset = base_offset
        """The offset after the last record."""
        self.end_position = 0
        """The position of the next frame."""
        self.last_crc = last_crc
        """The CRC of the last frame, here or in the segment before."""
        self.index = SparseIndex()
        self.reserved_size = 0
        """The file's size: writes below it find room."""

    def note_frame(self, frame: Frame) -> None:
        """Record the next frame, which was read."""
        if frame.batch is not None:
            self.index.note(frame.batch.base_offset, frame.position)
            self.end_offset = frame.batch.end_offset
        self.end_position = frame.end_position
        self.last_crc = frame.crc

    def append(self, batches: Sequence[Batch], durable_before: Offset) -> None:
        """Write `batches` in one write. Raises OutOfSpace, then nothing changed."""
        data, last_crc = encode_frames(batches, self.end_position, self.last_crc, durable_before)
        self._write(data)
        position = self.end_position - len(data)
        for batch in batches:
            self.index.note(batch.base_offset, position)
            position += HEAD_BYTES + len(batch.data)
        self.end_offset = batches[-1].end_offset
        self.last_crc = last_crc

    def append_marker(self, durable_before: Offset) -> None:
        """Write a marker. Raises OutOfSpace, then nothing changed."""
        data, last_crc = encode_marker(self.end_position, self.last_crc, durable_before)
        self._write(data)
        self.last_crc = last_crc

    def reserve(self, byte_count: int, step_bytes: int) -> None:
        """Reserve room for `byte_count` more bytes, ahead in steps while the disk has it. Raises OutOfSpace."""
        needed = self.end_position + byte_count
        if needed <= self.reserved_size:
            return
        wanted = -(-needed // step_bytes) * step_bytes
        try:
            self.file.reserve(wanted)
        except OutOfSpace:
            wanted = needed
            self.file.reserve(wanted)
        self.reserved_size = wanted

    def trim(self) -> None:
        """Release reserved room that is not used."""
        self.file.truncate(self.end_position)
        self.reserved_size = self.end_position

    def locate(self, offset: Offset) -> tuple[int, int]:
        """Where the frame of the batch that starts at `offset` is or would be, and the CRC of the frame before it.

        InvariantViolation when no batch starts there and the segment does not end there.
        """
        if offset == self.end_offset:
            return self.end_position, self.last_crc
        position = self.index.position_before(offset)
        while position < self.end_position:
            head = self.file.read_at(position, HEAD_BYTES)
            frame = self._frame(self.file.read_at(position, frame_length(head, 0) or 0), position, position)
            if frame.batch is not None and frame.batch.end_offset > offset:
                check(
                    frame.batch.base_offset == offset,
                    "a log is cut between batches only",
                    offset=offset,
                    batch_base_offset=frame.batch.base_offset,
                )
                return position, frame.previous_crc
            position = frame.end_position
        raise CorruptLog(f"{self.file.path}: no batch holds offset {offset}; the file was changed from outside")

    def cut(self, end_offset: Offset, position: int, last_crc: int) -> None:
        """End the segment at the result of `locate`, durably."""
        self.file.truncate(position)
        self.file.fsync()
        self.index.truncate(end_offset)
        self.end_offset = end_offset
        self.end_position = self.reserved_size = position
        self.last_crc = last_crc

    def read(self, start_offset: Offset, max_bytes: int, end_offset: Offset) -> list[Batch]:
        """Batches from the one that holds `start_offset`, checked: at least one, at most `max_bytes`, to `end_offset`.

        One read unless the first batch is longer than `max_bytes`. Raises CorruptLog.
        """
        position = self.index.position_before(start_offset)
        byte_count = max_bytes + 2 * INDEX_INTERVAL_BYTES
        while True:
            data = self.file.read_at(position, min(byte_count, self.end_position - position))
            batches = self._decode(data, position, start_offset, max_bytes, end_offset)
            if batches is not None:
                return batches
            byte_count *= 4

    def _decode(
        self, data: bytes, data_position: int, start_offset: Offset, max_bytes: int, end_offset: Offset
    ) -> list[Batch] | None:
        """The requested batches that are whole in `data`; None if not even the first is."""
        batches: list[Batch] = []
        data_end = data_position + len(data)
        position = data_position
        while position < data_end:
            length = frame_length(data, position - data_position)
            is_whole = length is not None and position + length <= data_end
            if batches and (length is None or not is_whole or length - HEAD_BYTES > max_bytes):
                break
            if not is_whole and data_end < self.end_position:
                return None
            frame = self._frame(data, position, data_position)
            position = frame.end_position
            batch = frame.batch
            if batch is None or batch.end_offset <= start_offset:
                continue
            if batch.end_offset > end_offset:
                break
            batches.append(batch)
            max_bytes -= len(batch.data)
        return batches

    def _frame(self, data: bytes, position: int, data_position: int) -> Frame:
        frame = decode_frame(data, position, data_position, path=self.file.path)
        if frame is None:
            raise CorruptLog(
                f"{self.file.path}: the bytes from {position} are damaged; they were valid when the log was opened or"
                " written. Stop this node and check its disk"
            )
        return frame

    def _write(self, data: bytes) -> None:
        try:
            self.file.write_at(self.end_position, data)
        except OutOfSpace:
            # Durably: if the partly written frames reappeared after a crash, other records of the same epoch might have
            # their offsets by then.
            self.trim()
            self.file.fsync()
            raise
        self.end_position += len(data)
        self.reserved_size = max(self.reserved_size, self.end_position)
