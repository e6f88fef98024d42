"""The part of a log on disk that would survive a crash.

It is decoded from the bytes that would remain if everything unsynced were lost, not from what the node reports about
itself. Each refresh decodes only what changed since the last one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kraftbase.files.memory import DurableFile, MemoryFileSystem
from kraftbase.types import Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.frame import NO_CRC, decode_frame
from raft.storage.log_start_file import LOG_START_NAME, decode_log_start
from raft.storage.segment import parse_segment_name


class _SeenFrame(NamedTuple):
    segment: int
    """Index of the segment."""
    position: int
    end_position: int
    crc: int
    batch_count: int
    """The number of batches up to and including this frame."""


class _SeenFile(NamedTuple):
    name: str
    file: DurableFile
    size: int


class DurableLog:
    """The batches on a disk that would survive a crash in which everything unsynced is lost: the undamaged prefix.

    They include batches below the log's start whose segment file still exists.
    """

    def __init__(self) -> None:
        self.start: OffsetAndEpoch = LOG_BEGINNING
        """The log start offset, and the epoch of the record before it."""
        self.batches: list[Batch] = []
        self.first_changed = 0
        """Index of the first batch that the last refresh added or replaced."""
        self._frames: list[_SeenFrame] = []
        self._files: list[_SeenFile] = []

    @property
    def end_offset(self) -> Offset:
        """The end offset of the log."""
        if self.batches:
            return self.batches[-1].end_offset
        first = parse_segment_name(self._files[0].name) if self._files else None
        return self.start.offset if first is None else first

    def holds(self, offset: int, epoch: int) -> bool:
        """Whether the record at `offset` in `epoch` is here, in a batch or in the snapshot before the log's start."""
        if offset < self.start.offset:
            return True
        held = self.at(offset)
        return held is not None and held.epoch == epoch

    def from_start(self) -> list[Batch]:
        """Return the batches from the log's start on."""
        first = bisect_left(self.batches, self.start.offset, key=lambda batch: batch.base_offset)
        return self.batches[first:]

    def at(self, offset: int) -> Batch | None:
        """Return the batch that holds `offset`; None if there is none."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1
        if index < 0 or self.batches[index].end_offset <= offset:
            return None
        return self.batches[index]

    def refresh(self, files: MemoryFileSystem, directory: str) -> None:
        """Read the files again."""
        named = files.durable_files(directory) if files.exists(directory) else {}
        self.start = _durable_start(named)
        segments = [
            _SeenFile(name, named[name], len(named[name].data))
            for name in sorted(named)
            if parse_segment_name(name) is not None
        ]
        changed = self._first_change(segments)
        self._files = segments
        while self._frames and (self._frames[-1].segment, self._frames[-1].end_position) > changed:
            self._frames.pop()
        kept = self._frames[-1].batch_count if self._frames else 0
        self.first_changed = kept
        del self.batches[kept:]
        self._decode()

    def _first_change(self, segments: Sequence[_SeenFile]) -> tuple[int, int]:
        """Return the index of the first segment that has changed, and the first byte that differs."""
        changes = []
        for index, seen in enumerate(segments):
            changed_from = seen.file.take_changed_from()
            before = self._files[index] if index < len(self._files) else None
            if before is None or before.name != seen.name or not before.file.is_same(seen.file):
                changes.append((index, 0))
            elif changed_from < before.size or seen.size != before.size:
                changes.append((index, min(changed_from, before.size)))
        return min(changes, default=(len(segments), 0))

    def _decode(self) -> None:
        """Decode from the end of the last frame that has not changed."""
        last = self._frames[-1] if self._frames else None
        segment, position, crc = (last.segment, last.end_position, last.crc) if last else (0, 0, NO_CRC)
        while segment < len(self._files):
            seen = self._files[segment]
            base_offset = parse_segment_name(seen.name)
            next_offset = self.batches[-1].end_offset if self.batches else base_offset
            if position == 0 and base_offset != next_offset:
                return
            tail = bytes(seen.file.data[position:])
            data_position = position
            while (frame := decode_frame(tail, position, data_position)) is not None and (
                frame.previous_crc == crc or (base_offset and segment == position == 0)
            ):
                if frame.batch is not None:
                    if frame.batch.base_offset != (self.batches[-1].end_offset if self.batches else base_offset):
                        return
                    self.batches.append(frame.batch)
                position, crc = frame.end_position, frame.crc
                self._frames.append(_SeenFrame(segment, frame.position, position, crc, len(self.batches)))
            segment, position = segment + 1, 0


def _durable_start(named: Mapping[str, DurableFile]) -> OffsetAndEpoch:
    file = named.get(LOG_START_NAME)
    return LOG_BEGINNING if file is None else decode_log_start(bytes(file.data), LOG_START_NAME)
