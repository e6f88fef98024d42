"""One segment of a broker's partition: its batches with their checksums, and whether its indexes agree with them.

Nothing is written. Batches are read as by a start after a crash (`SegmentScan`), so bytes that are not a batch are
classified as the next start does: a torn tail, or damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from kraftbase.files.posix import PosixFileSystem
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.offline.file_reports import FileReport, FileStatus, Problem
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.formats.batch_header import BatchHeader
from kraftlog.storage.formats.indexes import OFFSET_ENTRY, TIME_ENTRY, decode_aborted
from kraftlog.storage.formats.names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from kraftlog.storage.recovery import SegmentScan

MAKES_INDEX: Final = "rebuilds it from the log"
USES_INDEX: Final = "may use it unchanged: delete it while the broker is stopped, and it is rebuilt"
TAKES_OFFLINE: Final = "takes the partition offline when it reads this; nothing is deleted"
PROBLEMS_MAX: Final = 20
"""At most this many problems are named per file."""


@dataclass(slots=True)
class EpochRun:
    """Batches one after the other with the same leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class SegmentCheck:
    """The findings in a segment."""

    log: FileReport
    end_offset: int
    """The offset after its last valid batch."""
    epochs: list[EpochRun] = field(default_factory=list)
    others: list[FileReport] = field(default_factory=list)
    """The indexes that are not sound."""


class SegmentVerification:
    """Verifies one segment. `shown` is the partition's directory, as reports name it."""

    def __init__(
        self, path: Path, base_offset: int, shown: str, recovery_point: int, *, latest_epoch: int, was_clean: bool
    ) -> None:
        """`latest_epoch` is that of the segments before; `was_clean`: the broker was shut down cleanly."""
        self._path = path
        self._base_offset = base_offset
        self._shown = shown
        self._recovery_point = recovery_point
        self._latest_epoch = latest_epoch
        self._was_clean = was_clean
        self._batches: list[tuple[int, int, int]] = []  # position, last offset, largest timestamp
        self._problems: list[Problem] = []

    def verify(self, later: list[Path]) -> SegmentCheck:
        """Read the whole segment; `later` are the logs of the following segments. Raises OSError, StorageError."""
        scan = SegmentScan(PosixFileSystem(), str(self._path), self._base_offset)
        epochs: list[EpochRun] = []
        for position, header in scan.batches():
            self._note(position, header, epochs)
        report = FileReport(
            f"{self._shown}/{self._path.name}",
            found=f"offsets {self._base_offset} to {scan.end_offset}, {len(self._batches)} batches",
            problems=self._problems,
        )
        if self._problems:
            report.status, report.next_start = FileStatus.DAMAGED, "does not check this"
        self._check_tail(scan, later, report)
        check = SegmentCheck(report, scan.end_offset, epochs)
        is_rebuilt = not self._was_clean and (not later or _base_offset_of(later[0]) > self._recovery_point)
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            index = self._verify_index(suffix, scan.end_offset, is_rebuilt=is_rebuilt)
            if index is not None:
                check.others.append(index)
        return check

    def _note(self, position: int, header: BatchHeader, epochs: list[EpochRun]) -> None:
        self._batches.append((position, header.last_offset, header.max_timestamp_ms))
        latest = self._latest_epoch
        if header.leader_epoch < latest and len(self._problems) < PROBLEMS_MAX:
            text = f"the batch at offset {header.base_offset} has epoch {header.leader_epoch} after {latest}"
            self._problems.append(Problem(position, position + header.size_bytes, text))
        self._latest_epoch = max(latest, header.leader_epoch)
        if epochs and epochs[-1].epoch == header.leader_epoch:
            epochs[-1].last_offset = header.last_offset
        else:
            epochs.append(EpochRun(header.leader_epoch, header.base_offset, header.last_offset))

    def _check_tail(self, scan: SegmentScan, later: list[Path], report: FileReport) -> None:
        """A finding for the bytes after the last valid batch."""
        flushed = min(self._recovery_point, _base_offset_of(later[0])) if later else self._recovery_point
        try:
            scan.check_tail(flushed, is_last=not later, has_valid_successor=any(map(_begins_with_a_batch, later)))
        except DamagedSegment as error:
            report.status, report.reason, report.next_start = FileStatus.DAMAGED, str(error), TAKES_OFFLINE
            self._problems.append(Problem(scan.end_position, scan.file_bytes, "no valid batch"))
            return
        if scan.end_position < scan.file_bytes:
            torn_bytes = scan.file_bytes - scan.end_position
            if report.status is FileStatus.SOUND:
                report.status = FileStatus.MENDED
            report.reason = f"a torn tail, which was never flushed: the log ends at offset {scan.end_offset}"
            report.next_start = f"truncates {torn_bytes} bytes at byte {scan.end_position}"

    # --- indexes ------------------------------------------------------------------------------------------------------

    def _verify_index(self, suffix: str, end_offset: int, *, is_rebuilt: bool) -> FileReport | None:
        """A finding for an index; None if it is sound."""
        path = self._path.with_suffix(suffix)
        report = FileReport(f"{self._shown}/{path.name}", FileStatus.MENDED, next_start=MAKES_INDEX)
        if not path.exists():
            report.found = "missing"
            is_empty = self._path.stat().st_size == 0  # its indexes come with its first batch
            return None if suffix == TRANSACTION_INDEX_SUFFIX or is_empty else report
        data = path.read_bytes()
        if suffix == OFFSET_INDEX_SUFFIX:
            report.problems = self._offset_problems(data)
        elif suffix == TIME_INDEX_SUFFIX:
            report.problems = self._time_problems(data)
        else:
            report.problems = self._transaction_problems(data, str(path), end_offset)
        if not report.problems:
            return None
        report.found = f"{len(data)} bytes that do not agree with the log"
        del report.problems[PROBLEMS_MAX:]
        if not is_rebuilt:
            report.status, report.next_start = FileStatus.DAMAGED, USES_INDEX
        return report

    def _offset_problems(self, data: bytes) -> list[Problem]:
        ends = {position: last_offset for position, last_offset, _ in self._batches}
        entries, problems = _entries(data, OFFSET_ENTRY)
        for at, (relative_offset, position) in enumerate(entries):
            offset = self._base_offset + relative_offset
            if ends.get(position) != offset:
                problems.append(
                    _wrong(at, OFFSET_ENTRY, f"no batch that ends at offset {offset} is at byte {position} of the log")
                )
        return problems + _not_ascending(entries, OFFSET_ENTRY)

    def _time_problems(self, data: bytes) -> list[Problem]:
        entries, problems = _entries(data, TIME_ENTRY)
        batches = iter(self._batches)
        batch = next(batches, None)
        for at, (timestamp_ms, relative_offset) in enumerate(entries):
            offset = self._base_offset + relative_offset
            while batch is not None and batch[1] < offset:
                batch = next(batches, None)
            if batch is None or batch[2] != timestamp_ms:
                problems.append(
                    _wrong(at, TIME_ENTRY, f"the batch with offset {offset} does not have the timestamp {timestamp_ms}")
                )
        return problems + _not_ascending(entries, TIME_ENTRY)

    def _transaction_problems(self, data: bytes, path: str, end_offset: int) -> list[Problem]:
        try:
            found = decode_aborted(data, path)
        except MalformedBytes as error:
            return [Problem(0, len(data), str(error))]
        return [
            Problem(0, len(data), f"the marker at offset {one.last_offset} is not in the segment")
            for one in found
            if not self._base_offset <= one.last_offset < end_offset
        ]


def _entries(data: bytes, form: struct.Struct) -> tuple[list[tuple[int, int]], list[Problem]]:
    """The entries that were written, and a problem for a part of one at the end.

    Kafka makes the file of its last segment as large as an index may be: zeros at its end are no entries.
    """
    whole = len(data) - len(data) % form.size
    problems = [Problem(whole, len(data), "a part of an entry")] if whole < len(data) else []
    entries = [(first, second) for first, second in form.iter_unpack(data[:whole])]
    while entries and entries[-1] == (0, 0):
        entries.pop()
    return entries, problems


def _wrong(index: int, form: struct.Struct, text: str) -> Problem:
    return Problem(index * form.size, (index + 1) * form.size, text)


def _not_ascending(entries: list[tuple[int, int]], form: struct.Struct) -> list[Problem]:
    return [
        _wrong(at, form, f"the entry {after} follows {before}")
        for at, (before, after) in enumerate(pairwise(entries), 1)
        if not (after[0] > before[0] and after[1] >= before[1])
    ]


def _base_offset_of(path: Path) -> int:
    return int(path.stem)


def _begins_with_a_batch(path: Path) -> bool:
    scan = SegmentScan(PosixFileSystem(), str(path), _base_offset_of(path))
    return next(scan.batches(), None) is not None
