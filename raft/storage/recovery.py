"""Opening a log: read every frame, distinguish a torn tail from damage, and make every byte of the log durable.

All but the last segment is certainly durable, because a segment is flushed before the next one is made. So is
everything below the `durable_before` of any valid frame, also of those behind damage, and everything below
`minimum_durable_offset`, which the caller knows. Bytes that are no valid next frame, and not just zeros up to the end
of the file, are

- a torn tail, which is cut, when nothing there is certainly durable and either no valid frame follows, or the disk
  evidently lost a write there: a stretch up to a sector's border that still reads as zeros. A disk may write the
  sectors of one unflushed stretch in any order, so what follows a hole was not flushed either.
- damage to durable data otherwise: CorruptLog, and no byte of any file is changed; or, if the caller accepts a damaged
  log because other voters have its data, the undamaged part before it is opened, and the log recovers
  (`raft.storage.recovering_file`).

A crash, together with bit rot in the last burst before any later frame proves it durable, looks like a torn tail: a
double fault that this format accepts.

A log may start above offset 0, where a snapshot ends: its start is in the file `log-start`
(`raft.storage.log_start_file`). Missing durable data below the start is then no loss. Segments wholly below it are
removed: a crash interrupted their removal. For a log that ends below its start, or has lower epochs there, a crash
interrupted the replacement by a snapshot, which is completed now: the log starts over, empty, at its start.

Data that is not certainly durable is written again before it is flushed. After a failed fsync the kernel may keep pages
that never reached the disk and mark them clean; reading them back proves nothing, and only a new write makes the next
flush write them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import NoReturn

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import SECTOR_BYTES, FileSystem, join
from kraftbase.types import Epoch, Offset
from raft.core.epochs import EpochCache
from raft.core.types import UNKNOWN_UNTIL_OFFSET, Batch, OffsetAndEpoch, RecoveringLog
from raft.storage.advice import NOBODY_TO_FETCH_FROM
from raft.storage.frame import NO_CRC, Frame, decode_frame, find_frames
from raft.storage.log_start_file import LOG_START_NAME, LogStartUnknown, mend_log_start, read_log_start
from raft.storage.recovering_file import begin_anew, begin_recovering, is_recovering, mend_recovering, read_recovering
from raft.storage.segment import Segment, create_segment, parse_segment_name, segment_name


class DamagedLog(CorruptLog):
    """Durable data is damaged from byte `position` of the segment `base_offset` on; below it the log is whole."""

    def __init__(self, message: str, *, base_offset: Offset, position: int, durable_offset: Offset) -> None:
        super().__init__(f"{message}. {NOBODY_TO_FETCH_FROM}")
        self.finding = message
        self.base_offset = base_offset
        self.position = position
        self.durable_offset = durable_offset
        """Offsets below this were certainly durable, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The findings and actions of opening a log."""

    segment_count: int
    batch_count: int
    log_start_offset: Offset
    log_end_offset: Offset
    torn_bytes: int = 0
    """How many bytes of a torn tail were cut."""
    torn_path: str = ""
    torn_position: int = 0
    has_begun_anew: bool = False
    """Whether a crash had interrupted the replacement of the log by a snapshot, which is completed now."""

    def __str__(self) -> str:
        found = (
            f"log of {self.segment_count} segments and {self.batch_count} batches,"
            f" offsets {self.log_start_offset} to {self.log_end_offset}"
        )
        if self.has_begun_anew:
            return f"{found}; started over where a snapshot ends"
        if not self.torn_bytes:
            return f"{found}, intact"
        return f"{found}; cut a torn tail of {self.torn_bytes} bytes at byte {self.torn_position} of {self.torn_path}"


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """An open log: its segments in order, at least one, all of them durable."""

    segments: list[Segment]
    epochs: EpochCache
    vouched_offset: Offset
    """The largest `durable_before` of any frame."""
    report: RecoveryReport
    recovering: RecoveringLog | None
    """Set while data that was once durable is missing."""


def recover(
    files: FileSystem,
    directory: str,
    minimum_durable_offset: Offset,
    accept_damage_in_epoch: Epoch | None = None,
    *,
    may_create: bool = True,
) -> RecoveredLog:
    """Open the log in `directory`, which is created if it is missing, unless it is known to have existed.

    Raises CorruptLog if it is damaged, then nothing changed. With `accept_damage_in_epoch`, the replica's durable
    epoch, it opens the undamaged part and records that the log recovers.
    """
    files.make_directories(directory)
    if is_recovering(files, directory, accept_damage_in_epoch):
        minimum_durable_offset, may_create = Offset(0), True  # the log is known to be shorter
    try:
        return _read(files, directory, minimum_durable_offset, may_create=may_create)
    except LogStartUnknown as error:
        if accept_damage_in_epoch is None:
            raise
        lost = UNKNOWN_UNTIL_OFFSET  # the end of the log is unknown
        begin_anew(files, directory, epoch=accept_damage_in_epoch, reason=error.finding, durable_offset=lost)
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


def mend_copies_of(files: FileSystem, directory: str) -> None:
    """Rewrite missing copies of the small files of an opened log. Raises FlushFailed."""
    mend_recovering(files, directory)
    mend_log_start(files, directory)


def _read(files: FileSystem, directory: str, minimum_durable_offset: Offset, *, may_create: bool) -> RecoveredLog:
    start = read_log_start(files, directory)
    bases = sorted(base for name in files.list_directory(directory) if (base := parse_segment_name(name)) is not None)
    # A start without segments: left by a crash while the log started over, or made by a restore.
    is_made = not bases and minimum_durable_offset <= start.offset and (may_create or start.offset > 0)
    if is_made:
        create_segment(files, directory, start.offset)
        bases = [start.offset]
    if not bases or bases[0] > start.offset:
        raise _first_is_missing(directory, start.offset, max(minimum_durable_offset, *bases[:1], start.offset))
    holding_start = bisect_right(bases, start.offset) - 1
    recovery = _Recovery(files, directory, start, minimum_durable_offset)
    try:
        recovery.read_segments(bases[holding_start:])
        if recovery.begins_anew:
            recovery.begin_anew(bases)
        else:
            for base_offset in bases[:holding_start]:
                files.remove(join(directory, segment_name(base_offset)))
        files.fsync_directory(directory)
    except BaseException:
        for segment in recovery.segments:
            segment.file.close()
        raise
    recovering = read_recovering(files, directory)
    vouched_offset = max(recovery.vouched_offset, start.offset)
    report = recovery.report(has_begun_anew=recovery.begins_anew or (is_made and start.offset > 0))
    return RecoveredLog(recovery.segments, recovery.epochs, vouched_offset, report, recovering)


def _first_is_missing(directory: str, start_offset: Offset, durable_offset: Offset) -> DamagedLog:
    path = join(directory, segment_name(start_offset))
    what = f"{path} is missing" if start_offset == 0 else f"no segment in {directory} has offset {start_offset}"
    return DamagedLog(
        f"{what}, though there was a log; offsets below {durable_offset} were durable",
        base_offset=start_offset,
        position=0,
        durable_offset=durable_offset,
    )


class _Recovery:
    """Reads segments in order, from the one that holds the log's start."""

    def __init__(
        self, files: FileSystem, directory: str, start: OffsetAndEpoch, minimum_durable_offset: Offset
    ) -> None:
        self.segments: list[Segment] = []
        self.epochs = EpochCache()
        self.vouched_offset = Offset(0)
        self.begins_anew = False
        """Whether a crash had interrupted the replacement of what was read by a snapshot that ends at the start."""
        self._files = files
        self._directory = directory
        self._start = start
        self._higher_at_start: tuple[Segment, Batch] | None = None
        """A batch that ends at the start, of a higher epoch than the record before the start."""
        self._minimum_durable_offset = minimum_durable_offset
        self._durable_offset = minimum_durable_offset
        self._batch_count = 0
        self._frame_ends: list[tuple[Offset, int]] = []
        self._torn_bytes = 0

    def read_segments(self, base_offsets: list[Offset]) -> None:
        """Read those segments, or as many as needed to detect that the log starts over.

        If it does not, the torn tail is cut and everything is durable when this returns.
        """
        self.epochs = EpochCache(start=OffsetAndEpoch(epoch=Epoch(0), offset=base_offsets[0]))
        for base_offset, next_base_offset in zip(base_offsets, [*base_offsets[1:], None], strict=True):
            self._read_segment(base_offset, next_base_offset)
            if self.begins_anew:
                return
        self.epochs.advance_start(self._start)

    def begin_anew(self, base_offsets: list[Offset]) -> None:
        """Replace all those segments by an empty log at the start: `SegmentedLog.truncate_fully_and_start_at`."""
        for segment in self.segments:
            segment.file.close()
        self.segments.clear()
        for base_offset in reversed(base_offsets):
            self._files.remove(join(self._directory, segment_name(base_offset)))
            self._files.fsync_directory(self._directory)
        create_segment(self._files, self._directory, self._start.offset)
        file = self._files.open(join(self._directory, segment_name(self._start.offset)))
        self.segments.append(Segment(file, self._start.offset, NO_CRC))
        self.epochs = EpochCache(start=self._start)
        self.vouched_offset = self._start.offset
        self._batch_count = self._torn_bytes = 0

    def _read_segment(self, base_offset: Offset, next_base_offset: Offset | None) -> None:
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
        if frame is not None and len(self.segments) == 1 and base_offset > 0:
            segment.last_crc = frame.previous_crc  # the previous frame was removed with its segment, or was never here
        while frame is not None and self._follows(segment, frame):
            self._note(segment, frame)
            if self.begins_anew:
                return
            frame = decode_frame(data, segment.end_position, path=path)
        torn_end = len(data[segment.end_position :].rstrip(b"\0")) + segment.end_position
        if next_base_offset is not None:
            if torn_end > segment.end_position or segment.end_offset != next_base_offset:
                raise self._corrupt(segment, f"the segment after it starts at offset {next_base_offset}")
            return
        if torn_end > segment.end_position:
            self._classify_damage(segment, data, torn_end)
        if not self.begins_anew and self._durable_offset > max(segment.end_offset, self._start.offset):
            raise self._corrupt(segment, f"offsets below {self._durable_offset} were durable")
        # Consider a follower with records 300 to 899 that fetched the snapshot (1500, epoch 6). The file with the log
        # start is written first, then the segments are removed. After a crash in between the log must start at 1500,
        # and ends at 900: the replacement is completed now. A log that ends right at 1500 in epoch 7 is replaced, too:
        # its last record was never committed.
        if segment.end_offset < self._start.offset or self._higher_at_start is not None:
            self.begins_anew = True
        if not self.begins_anew:
            self._make_durable(segment, data, torn_end)

    def _follows(self, segment: Segment, frame: Frame) -> bool:
        """Whether the frame is the next one of the log."""
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
        batch = frame.batch
        if batch is None:
            return
        if self._higher_at_start is not None:
            self._refuse_start(*self._higher_at_start)
        self.epochs.assign(batch.epoch, batch.base_offset)
        self._batch_count += 1
        if self._is_replaced(batch):
            self._begin_anew_if_enough(segment)
        elif batch.base_offset < self._start.offset <= batch.end_offset:
            self._check_start(segment, batch)

    def _is_replaced(self, batch: Batch) -> bool:
        """Whether the batch shows that a snapshot was about to replace the log: its epoch is too low.

        Only the epoch shows that if the log reached past the snapshot; otherwise the log ends below the start, or right
        at it in a higher epoch, whose records were never committed.
        """
        return batch.end_offset >= self._start.offset and batch.epoch < self._start.epoch

    def _begin_anew_if_enough(self, segment: Segment) -> None:
        if self._minimum_durable_offset > self._start.offset:
            raise DamagedLog(
                f"{segment.file.path} is not of the log that starts at offset {self._start.offset} behind epoch"
                f" {self._start.epoch}, but offsets below {self._minimum_durable_offset} were durable",
                base_offset=segment.base_offset,
                position=0,
                durable_offset=self._minimum_durable_offset,
            )
        self.begins_anew = True

    def _check_start(self, segment: Segment, batch: Batch) -> None:
        """Raise LogStartUnknown unless the batch before the log's start is one that may be there."""
        found = OffsetAndEpoch(epoch=batch.epoch, offset=batch.end_offset)
        if found.offset == self._start.offset and found.epoch > self._start.epoch:
            self._higher_at_start = (segment, batch)  # correct if it is the last one
        elif found != self._start:
            self._refuse_start(segment, batch)

    def _refuse_start(self, segment: Segment, batch: Batch) -> NoReturn:
        path = join(self._directory, LOG_START_NAME)
        raise LogStartUnknown(
            f"{path} has offset {self._start.offset} as the log start, behind epoch {self._start.epoch}, but"
            f" {segment.file.path} has a batch with offsets {batch.base_offset} to {batch.last_offset} of epoch"
            f" {batch.epoch}: they are not of one log"
        )

    def _classify_damage(self, segment: Segment, data: bytes, torn_end: int) -> None:
        """Raise CorruptLog unless the data after the segment's last frame is a torn tail, or the log starts over.

        From `torn_end` on there are only zeros; the last frame may also end in zeros. A log that ends below its start
        has lost durable data, or a snapshot was about to replace it: then it has nothing behind the start.
        """
        # Consider a last segment with three frames:
        #
        #     A  records 100 to 104, durable before 100
        #     B  records 105 to 109, durable before 100: written with A, in one burst
        #     C  records 110 to 114, durable before 110: written after the flush of A and B
        #
        # - C does not read back, and nothing follows. Nothing shows that it was flushed: a torn tail, and the log ends
        #   at 110.
        # - C does not read back, but the state machine has applied 115, or a marker behind C has durable before 115. C
        #   was flushed, and may have been acknowledged: damage.
        # - B does not read back and C does. C proves that all below 110 was flushed: damage. Cut at 105 this log would
        #   lose acknowledged records.
        # - A does not read back, B does, and C was never written. B proves nothing from 100 on. If some sector of A
        #   still reads as zeros, the disk wrote the sectors of B before those of A and lost power in between: a torn
        #   tail, and both are cut. If A has other bytes everywhere, it was written whole and changed later: damage.
        start_offset = self._start.offset
        first_behind: int | None = None
        reaches_past_start = False
        for frame in find_frames(data, segment.end_position, path=segment.file.path):
            batch = frame.batch
            if batch is not None and self._is_replaced(batch):
                self._begin_anew_if_enough(segment)
                return
            first_behind = frame.position if first_behind is None else first_behind
            self._durable_offset = max(self._durable_offset, frame.durable_before)
            reaches_past_start |= batch is not None and batch.end_offset > start_offset
        if self._durable_offset > max(segment.end_offset, start_offset):
            raise self._corrupt(segment, f"offsets below {self._durable_offset} were durable")
        if segment.end_offset < start_offset:
            if reaches_past_start:
                raise self._corrupt(segment, f"a valid frame with records above the log's start {start_offset} follows")
        elif first_behind is not None and not has_lost_sector(data, segment.end_position, first_behind):
            raise self._corrupt(segment, f"a valid frame follows at byte {first_behind}")
        self._torn_bytes = torn_end - segment.end_position

    def _make_durable(self, segment: Segment, data: bytes, torn_end: int) -> None:
        """Cut the torn tail, rewrite what is not certainly durable, and flush."""
        if torn_end > segment.end_position:
            segment.trim()
        # In the example of `_classify_damage`, with all three frames whole: 110 is known to be durable, so C alone is
        # written again. It may be in the page cache only, since a flush that failed before the crash can leave pages
        # marked clean.
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

    def report(self, *, has_begun_anew: bool) -> RecoveryReport:
        """The findings, after every segment was read."""
        last = self.segments[-1]
        return RecoveryReport(
            segment_count=len(self.segments),
            batch_count=self._batch_count,
            log_start_offset=self._start.offset,
            log_end_offset=last.end_offset,
            torn_bytes=self._torn_bytes,
            torn_path=last.file.path if self._torn_bytes else "",
            torn_position=last.end_position if self._torn_bytes else 0,
            has_begun_anew=has_begun_anew,
        )


def has_lost_sector(data: bytes, start: int, end: int) -> bool:
    """Whether the part of some sector that lies between `start` and `end` reads as zeros."""
    while start < end:
        sector_end = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if data.count(0, start, sector_end) == sector_end - start:
            return True
        start = sector_end
    return False
