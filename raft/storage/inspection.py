"""Inspects a log's files without changing them: every frame, every damaged stretch, and the outcome of the next start.

Nothing here writes, locks or makes a file. `walk_segment` continues behind damage, so that an operator sees all of it;
`rehearse_recovery` runs the real recovery on files that drop changes, so that its result is that of the next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from kraftbase.checksum import crc32c
from kraftbase.errors import ApiError, InvariantViolation, StorageError
from kraftbase.files.files import Lock, Space, join, parent_directory
from kraftbase.types import Offset
from raft.storage.batch import CRC_BYTES, decode_batch
from raft.storage.frame import BATCH_KIND, HEAD, HEAD_BYTES, MAGIC, NO_CRC, Frame, decode_frame
from raft.storage.recovery import RecoveredLog, has_lost_sector, recover
from raft.storage.segment import parse_segment_name


class FoundFrame(NamedTuple):
    """A whole frame, and whether it follows the previous one."""

    frame: Frame
    is_chained: bool | None
    """Whether it has the CRC of the previous frame; None where that CRC is not known, such as behind damage."""
    misfits: tuple[str, ...]
    """Why it cannot be the next frame of the log, apart from the chain of CRCs."""


class DamagedStretch(NamedTuple):
    """Bytes of a segment that are no frame, and not just the zeros at its end."""

    position: int
    end_position: int
    looks_like: str
    has_lost_sector: bool
    """Whether a part of a sector reads as zeros, as when the disk lost a write."""


@dataclass(slots=True)
class LogCursor:
    """The position of a walk through a log, with the state after the previous frames. None stands for unknown."""

    last_crc: int | None = None
    end_offset: Offset | None = None
    last_epoch: int = 0
    durable_before: int = 0

    @classmethod
    def at_segment(cls, base_offset: Offset | None) -> LogCursor:
        """The cursor before a segment that is inspected alone; only the first frame of a log has none before it."""
        return cls(NO_CRC if base_offset == 0 else None, base_offset)

    def enter_segment(self, base_offset: Offset) -> bool:
        """Continue in the segment that starts at `base_offset`; whether the log was known to reach it."""
        is_reached = self.end_offset == base_offset
        if not is_reached:
            self.lose_track()
        self.end_offset = base_offset
        return is_reached

    def lose_track(self) -> None:
        """Damage follows: the frame before the next whole one is unknown."""
        self.last_crc = None
        self.end_offset = None

    def take(self, frame: Frame) -> FoundFrame:
        """Check the next frame, and continue from it."""
        is_chained = None if self.last_crc is None else frame.previous_crc == self.last_crc
        misfits = tuple(self._misfits(frame))
        self.last_crc = frame.crc
        self.durable_before = frame.durable_before
        if frame.batch is not None:
            self.end_offset = frame.batch.end_offset
            self.last_epoch = frame.batch.epoch
        return FoundFrame(frame, is_chained, misfits)

    def _misfits(self, frame: Frame) -> Iterator[str]:
        batch = frame.batch
        if batch is not None and self.end_offset is not None and batch.base_offset != self.end_offset:
            yield f"it starts at offset {batch.base_offset}, where {self.end_offset} is next"
        if batch is not None and batch.epoch < self.last_epoch:
            yield f"its epoch {batch.epoch} is below epoch {self.last_epoch} before it"
        if frame.durable_before < self.durable_before:
            yield f"it calls offsets below {frame.durable_before} durable, an earlier frame {self.durable_before}"
        end_offset = self.end_offset if self.end_offset is not None or batch is None else batch.base_offset
        if end_offset is not None and frame.durable_before > end_offset:
            yield f"it calls offsets below {frame.durable_before} durable, where the log ends at {end_offset}"


def walk_segment(data: bytes, cursor: LogCursor) -> Iterator[FoundFrame | DamagedStretch]:
    """Every frame and damaged stretch in a segment's bytes, in order; the cursor moves along.

    Zeros up to the end of the file are reserved room, and yield nothing.
    """
    end_position = len(data.rstrip(b"\0"))
    position = 0
    while position < len(data):
        frame = _frame_at(data, position)
        if frame is None:
            found = _next_frame(data, position)
            stretch_end = end_position if found is None else found.position
            if stretch_end > position:
                cursor.lose_track()
                is_lost = has_lost_sector(data, position, stretch_end)
                yield DamagedStretch(position, stretch_end, _describe(data, position, stretch_end), is_lost)
            if found is None:
                return
            frame = found
        yield cursor.take(frame)
        position = frame.end_position


def _frame_at(data: bytes, position: int) -> Frame | None:
    """The frame at `position`; None also if it is of an unknown version."""
    try:
        return decode_frame(data, position)
    except StorageError:
        return None


def _next_frame(data: bytes, start: int) -> Frame | None:
    """The first whole frame behind `start`."""
    magic_position = data.find(MAGIC, start + CRC_BYTES)
    while magic_position >= 0:
        frame = _frame_at(data, magic_position - CRC_BYTES)
        if frame is not None:
            return frame
        magic_position = data.find(MAGIC, magic_position + 1)
    return None


def _describe(data: bytes, position: int, end_position: int) -> str:
    """Describe a damaged stretch by its start."""
    if data.count(0, position, end_position) == end_position - position:
        return "zeros"
    if data[position + CRC_BYTES : position + CRC_BYTES + len(MAGIC)] != MAGIC:
        return "garbage"
    if len(data) - position < HEAD_BYTES:
        return "a frame cut off by the end of the file"
    crc, _, version, kind, _, length, own_position, _, _ = HEAD.unpack_from(data, position)
    if own_position != position:
        return f"a frame that belongs at byte {own_position}"
    if not HEAD_BYTES <= length <= len(data) - position:
        return f"a frame of {length} bytes, longer than the rest of the file"
    covered_bytes = HEAD_BYTES if length == HEAD_BYTES else HEAD_BYTES + CRC_BYTES
    if crc32c(data[position + CRC_BYTES : position + covered_bytes]) != crc:
        return "a frame whose checksum does not match"
    try:
        decode_frame(data, position)
    except StorageError:
        return f"a frame of version {version} and kind {kind}, which this program does not know"
    return _describe_batch(data, position) if kind == BATCH_KIND else "a marker with a batch"


def _describe_batch(data: bytes, position: int) -> str:
    try:
        decode_batch(data, position + HEAD_BYTES)
    except ApiError as error:
        return f"a frame whose batch is damaged: {str(error).partition('refused: ')[2]}"
    return "a frame whose batch has another length"


def segment_base_offsets(directory: Path) -> list[Offset]:
    """The base offsets of the segments in a log's directory, in order. Raises OSError."""
    names = (entry.name for entry in directory.iterdir())
    return sorted(base for name in names if (base := parse_segment_name(name)) is not None)


def rehearse_recovery(directory: Path) -> RecoveredLog:
    """The result of opening the log in `directory`; nothing is changed.

    Raises DamagedLog where a start would find durable data damaged, StorageError where it could not read a file.
    """
    return recover(UnchangedFiles(), str(directory), Offset(0))


class _UnchangedFile:
    """A file that is read from the disk, and whose changes are dropped."""

    def __init__(self, path: str) -> None:
        self.path = path

    def size(self) -> int:
        with _errors_of(self.path):
            return Path(self.path).stat().st_size

    def read_at(self, position: int, byte_count: int) -> bytes:
        with _errors_of(self.path), Path(self.path).open("rb") as file:
            file.seek(position)
            return file.read(byte_count)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        pass

    def reserve(self, size: int) -> None:
        pass

    def truncate(self, size: int) -> None:
        pass

    def fdatasync(self) -> None:
        pass

    def fsync(self) -> None:
        pass

    def make_read_only(self) -> None:
        pass

    def close(self) -> None:
        pass


class _PretendedFile(_UnchangedFile):
    """A file that is not on the disk, and stays empty."""

    def size(self) -> int:
        return 0

    def read_at(self, position: int, byte_count: int) -> bytes:
        return b""


class UnchangedFiles:
    """A file system on which recovery is rehearsed: reads are real, and changes are visible only through this object.

    Created files stay empty, removed files are hidden, and writes are dropped.
    """

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._removed: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> _UnchangedFile:
        """The file as it is on disk; an empty one if it was created here."""
        if create:
            if self.exists(path):
                raise StorageError(f"cannot create {path}: it exists")
            self._made.add(path)
        if path in self._made:
            return _PretendedFile(path)
        if path in self._removed:
            raise StorageError(f"cannot open {path}: there is no such file")
        with _errors_of(path), Path(path).open("rb"):
            return _UnchangedFile(path)

    def open_to_read(self, path: str) -> _UnchangedFile:
        """The file as it is on disk, or as it was created here."""
        return self.open(path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""
        return path in self._made or (path not in self._removed and Path(path).exists())

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        with _errors_of(path):
            names = {entry.name for entry in Path(path).iterdir() if join(path, entry.name) not in self._removed}
        return sorted(names | {made.rpartition("/")[2] for made in self._made if parent_directory(made) == path})

    def make_directories(self, path: str) -> None:
        """Does nothing: the directory exists, or listing it is an error."""

    def make_directory(self, path: str) -> None:
        """Refused."""
        _refuse_change(path)

    def fsync_directory(self, path: str) -> None:
        """Does nothing: no name has changed."""

    def rename(self, old_path: str, new_path: str) -> None:
        """Refused."""
        _refuse_change(old_path)

    def rename_directory(self, old_path: str, new_path: str) -> None:
        """Refused."""
        _refuse_change(old_path)

    def remove_directory(self, path: str) -> None:
        """Refused."""
        _refuse_change(path)

    def remove(self, path: str) -> None:
        """Hide the file."""
        if not self.exists(path):
            raise StorageError(f"cannot remove {path}: there is no such file")
        self._made.discard(path)
        self._removed.add(path)

    def space(self, path: str) -> Space:
        """Refused."""
        _refuse_change(path)

    def try_lock(self, path: str) -> Lock | None:
        """Refused."""
        _refuse_change(path)


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; check its rights and the disk") from error


def _refuse_change(path: str) -> NoReturn:
    raise InvariantViolation(f"{path} is open for inspection only; nothing in its directory changes")
