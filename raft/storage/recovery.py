"""Opening a log: read every frame, tell a torn tail from damage, and leave a log whose every byte is durable.

All but the last segment is certainly durable, because a segment is flushed before the next one is made. So is what is
below `durable_before` of any valid frame, also of those behind damage, and below what the caller knows
(`minimum_durable_offset`). Bytes that are no valid next frame, and not just zeros up to the end of the file, are

- a torn tail, which is cut, when nothing there is certainly durable and either no valid frame follows, or the disk
  evidently lost a write there: a stretch up to a sector's border that still reads as zeros. A disk may write the
  sectors of one unflushed stretch in any order, so what follows a hole was not flushed either.
- damage to durable data otherwise: CorruptLog, and no byte of any file is changed; or, if the caller accepts a damaged
  log because others have its data, the undamaged part before it, and word that it recovers (`raft.storage.recovering`).

A crash, together with bits that rot in the last burst before any frame vouches for it, looks like a torn tail: a double
fault that this format accepts.

What is not certainly durable is written once more before it is flushed. After a failed fsync the kernel may keep pages
that never reached the disk and call them clean; reading them back proves nothing, and only a new write makes the next
flush carry them out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

from raft.core.epochs import EpochCache
from raft.core.errors import CorruptLog, StorageError
from raft.core.types import Epoch, Offset, RecoveringLog
from raft.storage.files import SECTOR_BYTES, FileSystem, join
from raft.storage.frame import NO_CRC, Frame, decode_frame, find_frames
from raft.storage.recovering import begin_recovering, read_recovering
from raft.storage.segment import Segment, parse_segment_name, segment_name

_ADVICE = (
    "Nothing was changed. There is no other voter to fetch it from: bring the directory back from a backup, or set it"
    " aside and begin a new cluster"
)


class DamagedLog(CorruptLog):
    """Durable data is damaged from byte `position` of the segment `base_offset` on; below it the log is whole."""

    def __init__(self, message: str, *, base_offset: Offset, position: int, durable_offset: Offset) -> None:
        super().__init__(f"{message}. {_ADVICE}")
        self.finding = message
        self.base_offset = base_offset
        self.position = position
        self.durable_offset = durable_offset
        """Offsets below this were certainly durable, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening a log found and did."""

    segment_count: int
    batch_count: int
    log_start_offset: Offset
    log_end_offset: Offset
    torn_bytes: int = 0
    """How many bytes of a torn tail were cut."""
    torn_path: str = ""
    torn_position: int = 0

    def __str__(self) -> str:
        found = (
            f"log of {self.segment_count} segments and {self.batch_count} batches,"
            f" offsets {self.log_start_offset} to {self.log_end_offset}"
        )
        if not self.torn_bytes:
            return f"{found}, intact"
        return f"{found}; cut a torn tail of {self.torn_bytes} bytes at byte {self.torn_position} of {self.torn_path}"


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """An open log: its segments in order, at least one, all of it durable."""

    segments: list[Segment]
    epochs: EpochCache
    vouched_offset: Offset
    """The largest `durable_before` of any frame."""
    report: RecoveryReport
    recovering: RecoveringLog | None
    """Set while data that was durable once is missing."""


def recover(
    files: FileSystem,
    directory: str,
    minimum_durable_offset: Offset,
    accept_damage_in_epoch: Epoch | None = None,
    *,
    may_create: bool = True,
) -> RecoveredLog:
    """Open the log in `directory`, which is made if it is missing, unless it is known to have been there.

    Raises CorruptLog if it is damaged, then nothing changed; with `accept_damage_in_epoch`, the replica's durable
    epoch, it opens what is undamaged and says that it recovers.
    """
    files.make_directories(directory)
    if read_recovering(files, directory) is not None:
        minimum_durable_offset, may_create = Offset(0), True  # it is known that less is there
    try:
        return _read(files, directory, minimum_durable_offset, may_create=may_create)
    except DamagedLog as damage:
        if accept_damage_in_epoch is None:
            raise
        begin_recovering(
            files,
            directory,
            epoch=accept_damage_in_epoch,
            reason=damage.finding,
            durable_offset=damage.durable_offset,
            base_offset=damage.base_offset,
            position=damage.position,
        )
    return _read(files, directory, Offset(0), may_create=True)


def _read(files: FileSystem, directory: str, minimum_durable_offset: Offset, *, may_create: bool) -> RecoveredLog:
    bases = sorted(base for name in files.list_directory(directory) if (base := parse_segment_name(name)) is not None)
    if not bases and minimum_durable_offset == 0 and may_create:
        bases = [Offset(0)]
        _create_first_segment(files, directory)
    elif not bases or bases[0] != 0:
        durable_offset = max(minimum_durable_offset, bases[0] if bases else Offset(0))
        raise DamagedLog(
            f"{join(directory, segment_name(Offset(0)))} is missing, though there was a log; offsets below"
            f" {durable_offset} were durable",
            base_offset=Offset(0),
            position=0,
            durable_offset=durable_offset,
        )
    recovery = _Recovery(files, directory, minimum_durable_offset)
    try:
        for base_offset, next_base_offset in zip(bases, [*bases[1:], None], strict=True):
            recovery.read_segment(base_offset, next_base_offset)
    except BaseException:
        for segment in recovery.segments:
            segment.file.close()
        raise
    files.fsync_directory(directory)
    recovering = read_recovering(files, directory)
    return RecoveredLog(recovery.segments, recovery.epochs, recovery.vouched_offset, recovery.report(), recovering)


def _create_first_segment(files: FileSystem, directory: str) -> None:
    file = files.open(join(directory, segment_name(Offset(0))), create=True)
    file.fsync()
    file.close()
    files.fsync_directory(directory)


class _Recovery:
    """Reads segments in order."""

    def __init__(self, files: FileSystem, directory: str, minimum_durable_offset: Offset) -> None:
        self.segments: list[Segment] = []
        self.epochs = EpochCache()
        self.vouched_offset = Offset(0)
        self._files = files
        self._directory = directory
        self._durable_offset = minimum_durable_offset
        self._batch_count = 0
        self._frame_ends: list[tuple[Offset, int]] = []
        self._torn_bytes = 0

    def read_segment(self, base_offset: Offset, next_base_offset: Offset | None) -> None:
        """Read one segment. If it is the last one, also cut what is torn and make everything durable."""
        last_crc = self.segments[-1].last_crc if self.segments else NO_CRC
        segment = Segment(self._files.open(join(self._directory, segment_name(base_offset))), base_offset, last_crc)
        self.segments.append(segment)
        try:
            data = segment.file.read_at(0, segment.file.size())
        except StorageError as error:
            durable_offset = max(self._durable_offset, base_offset, next_base_offset or Offset(0))
            raise DamagedLog(str(error), base_offset=base_offset, position=0, durable_offset=durable_offset) from None
        segment.reserved_size = len(data)
        self._frame_ends.clear()
        path = segment.file.path
        frame = decode_frame(data, 0, path=path)
        while frame is not None and self._follows(segment, frame):
            self._note(segment, frame)
            frame = decode_frame(data, segment.end_position, path=path)
        torn_end = len(data[segment.end_position :].rstrip(b"\0")) + segment.end_position
        if next_base_offset is not None:
            if torn_end > segment.end_position or segment.end_offset != next_base_offset:
                raise self._corrupt(segment, f"the segment after it starts at offset {next_base_offset}")
            return
        if torn_end > segment.end_position:
            self._judge_damage(segment, data[:torn_end])
        if segment.end_offset < self._durable_offset:
            raise self._corrupt(segment, f"offsets below {self._durable_offset} were durable")
        self._make_durable(segment, data, torn_end)

    def _follows(self, segment: Segment, frame: Frame) -> bool:
        """Whether the frame is the one that the log goes on with."""
        if (
            frame.previous_crc != segment.last_crc
            or not self.vouched_offset <= frame.durable_before <= segment.end_offset
        ):
            return False
        batch = frame.batch
        return batch is None or (batch.base_offset == segment.end_offset and batch.epoch >= self.epochs.last_epoch)

    def _note(self, segment: Segment, frame: Frame) -> None:
        segment.note_frame(frame)
        self.vouched_offset = frame.durable_before
        self._durable_offset = max(self._durable_offset, frame.durable_before)
        self._frame_ends.append((segment.end_offset, frame.end_position))
        if frame.batch is not None:
            self.epochs.assign(frame.batch.epoch, frame.batch.base_offset)
            self._batch_count += 1

    def _judge_damage(self, segment: Segment, data: bytes) -> None:
        """Raise CorruptLog unless what follows the segment's last frame in `data` is a torn tail."""
        first_behind: int | None = None
        for frame in find_frames(data, segment.end_position, path=segment.file.path):
            first_behind = frame.position if first_behind is None else first_behind
            self._durable_offset = max(self._durable_offset, frame.durable_before)
        if self._durable_offset > segment.end_offset:
            raise self._corrupt(segment, f"offsets below {self._durable_offset} were durable")
        if first_behind is not None and not has_lost_sector(data, segment.end_position, first_behind):
            raise self._corrupt(segment, f"a valid frame follows at byte {first_behind}")
        self._torn_bytes = len(data) - segment.end_position

    def _make_durable(self, segment: Segment, data: bytes, torn_end: int) -> None:
        """Cut the torn tail, write once more what is not certainly durable, and flush."""
        if torn_end > segment.end_position:
            segment.trim()
        durable_count = bisect_right(self._frame_ends, self._durable_offset, key=itemgetter(0))
        rewritten_from = self._frame_ends[durable_count - 1][1] if durable_count else 0
        if rewritten_from < segment.end_position:
            segment.file.write_at(rewritten_from, data[rewritten_from : segment.end_position])
        segment.file.fsync()

    def _corrupt(self, segment: Segment, evidence: str) -> DamagedLog:
        return DamagedLog(
            f"{segment.file.path} is damaged at byte {segment.end_position}: no valid frame with offset"
            f" {segment.end_offset} is there, but {evidence}",
            base_offset=segment.base_offset,
            position=segment.end_position,
            durable_offset=self._durable_offset,
        )

    def report(self) -> RecoveryReport:
        """What was found, once every segment is read."""
        last = self.segments[-1]
        return RecoveryReport(
            segment_count=len(self.segments),
            batch_count=self._batch_count,
            log_start_offset=self.segments[0].base_offset,
            log_end_offset=last.end_offset,
            torn_bytes=self._torn_bytes,
            torn_path=last.file.path if self._torn_bytes else "",
            torn_position=last.end_position if self._torn_bytes else 0,
        )


def has_lost_sector(data: bytes, start: int, end: int) -> bool:
    """Whether the part of some sector that lies between `start` and `end` reads as zeros."""
    while start < end:
        sector_end = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if data.count(0, start, sector_end) == sector_end - start:
            return True
        start = sector_end
    return False
