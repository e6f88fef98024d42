"""Whether a node's log is sound: recovery is run without writing, and every segment is read to its end. Recovery stops
at the first damage. The reading continues after it, so that an operator sees all damage at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from kraftbase.errors import StorageError
from kraftbase.types import Offset
from kraftlog.offline.file_reports import FileReport, FileStatus, Problem
from raft.core.epochs import LOG_BEGINNING, EpochCache
from raft.core.types import OffsetAndEpoch
from raft.storage.copies import copy_paths
from raft.storage.directory import LOG_NAME
from raft.storage.inspection import (
    DamagedStretch,
    FoundFrame,
    LogCursor,
    rehearse_recovery,
    segment_base_offsets,
    walk_segment,
)
from raft.storage.log_start_file import LOG_START_NAME, decode_log_start
from raft.storage.quorum_state import COPY_NAMES
from raft.storage.recovering_file import RECOVERING_NAME, decode_recovering
from raft.storage.recovery import DamagedLog, RecoveredLog
from raft.storage.segment import segment_name

RECOVERS: Final = "keeps the log before this and recovers the rest from the other voters; a sole voter does not start"
SET_ASIDE: Final = "sets this segment aside and recovers it too"
DOES_NOT_START: Final = "does not start"
REMOVES: Final = "removes it"
FETCHES_ALL: Final = "fetches the whole log again from the other voters; a sole voter does not start"
MENDS: Final = "restores it from the other copy"
GOES_ON_FETCHING: Final = "continues to fetch it from the leader, and neither votes nor counts until then"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The findings for a node's log."""

    reports: list[FileReport]
    end_offset: Offset | None
    """The log end offset at the next start; None if that start finds the log damaged."""
    epochs: EpochCache | None = None


def verify_log(directory: Path) -> LogCheck:
    """Check the log of the node whose data is in `directory`. Raises OSError for a file that cannot be read."""
    log_directory = directory / LOG_NAME
    start, reports = _log_start(log_directory)
    reports += _recovering(log_directory)
    bases = segment_base_offsets(log_directory) if log_directory.exists() else []
    if not bases:
        if start is not None and start.offset > 0:
            begins = FileReport(
                LOG_NAME, found="no segments", next_start=f"begins an empty log at offset {start.offset}"
            )
            return LogCheck([*reports, begins], start.offset, EpochCache(start=start))
        if not reports and any((directory / name).exists() for name in COPY_NAMES):
            lost = FileReport(
                LOG_NAME, FileStatus.DAMAGED, "no segments", "a log is missing: a quorum state exists", RECOVERS
            )
            return LogCheck([lost], None)
        return LogCheck([*reports, FileReport(LOG_NAME, found="no segments")], None if start is None else Offset(0))
    holding_start = max(0, bisect_right(bases, LOG_BEGINNING.offset if start is None else start.offset) - 1)
    reports += [_below_start(base) for base in bases[:holding_start]]
    bases = bases[holding_start:]
    cursor = LogCursor.at_segment(bases[0])
    segments = {base: _segment(log_directory, base, cursor) for base in bases}
    if start is None:
        return LogCheck([*reports, *segments.values()], None)
    try:
        recovered = rehearse_recovery(log_directory)
    except DamagedLog as damage:
        return LogCheck([*reports, *_with_damage(segments, damage)], None)
    except StorageError as error:
        refused = FileReport(LOG_NAME, FileStatus.DAMAGED, "cannot be opened", str(error), DOES_NOT_START)
        return LogCheck([*reports, *segments.values(), refused], None)
    if recovered.report.has_begun_anew:
        _note_replaced(segments, start.offset)
    else:
        _note_torn_tail(segments[bases[-1]], recovered)
    end_offset = recovered.report.log_end_offset
    return LogCheck([*reports, *segments.values()], end_offset, recovered.epochs)


def _recovering(log_directory: Path) -> list[FileReport]:
    """The finding for damage that an earlier start found."""
    said, damaged = _copies(log_directory, RECOVERING_NAME, decode_recovering)
    if not said:
        return [replace(report, next_start=FETCHES_ALL) for report in damaged]
    until_offset = max(recovering.until_offset for recovering in said)
    recovering = said[0]._replace(until_offset=until_offset)
    known_offset = recovering.known_until_offset
    what = "all that the leader has" if known_offset is None else f"offsets below {known_offset}"
    found = f"{what} must be fetched again"
    return [
        FileReport(_relative(RECOVERING_NAME), FileStatus.DAMAGED, found, recovering.reason, GOES_ON_FETCHING),
        *(replace(report, next_start=MENDS) for report in damaged),
    ]


def _log_start(log_directory: Path) -> tuple[OffsetAndEpoch | None, list[FileReport]]:
    """Where the log starts, None if it cannot be determined; and the findings for the files that record it."""
    said, damaged = _copies(log_directory, LOG_START_NAME, decode_log_start)
    if not said:
        reports = [replace(report, next_start=FETCHES_ALL) for report in damaged]
        return (None, reports) if damaged else (LOG_BEGINNING, [])
    start = max(said, key=lambda start: start.offset)
    found = f"the log starts at offset {start.offset}, behind epoch {start.epoch}"
    return start, [
        FileReport(_relative(LOG_START_NAME), found=found),
        *(replace(report, next_start=MENDS) for report in damaged),
    ]


def _copies(log_directory: Path, name: str, decode: Callable[[bytes, str], T]) -> tuple[list[T], list[FileReport]]:
    """The contents of the whole copies of a small file, and findings for those that are damaged."""
    said, damaged = [], []
    for path in map(Path, copy_paths(str(log_directory), name)):
        if path.exists():
            try:
                said.append(decode(path.read_bytes(), str(path)))
            except StorageError as error:
                damaged.append(
                    FileReport(_relative(path.name), FileStatus.DAMAGED, "damaged", str(error), DOES_NOT_START)
                )
    return said, damaged


def _segment(log_directory: Path, base_offset: Offset, cursor: LogCursor) -> FileReport:
    """One segment, walked to its end."""
    name = segment_name(base_offset)
    path = log_directory / name
    before = cursor.end_offset
    problems: list[Problem] = []
    if not cursor.enter_segment(base_offset) and before is not None:
        problems.append(Problem(0, 0, f"the segment before ends at offset {before}"))
    try:
        data = path.read_bytes()
    except PermissionError:
        raise
    except OSError as error:
        cursor.lose_track()
        return FileReport(_relative(name), FileStatus.DAMAGED, f"cannot be read: {error.strerror}")
    batch_count = 0
    end_offset = base_offset
    for item in walk_segment(data, cursor):
        problems += _problems(item)
        if isinstance(item, FoundFrame) and item.frame.batch is not None:
            batch_count += 1
            end_offset = item.frame.batch.end_offset
    return FileReport(
        _relative(name),
        status=FileStatus.DAMAGED if problems else FileStatus.SOUND,
        found=f"offsets {base_offset} to {end_offset}, {batch_count} batches",
        problems=problems,
    )


def _problems(item: FoundFrame | DamagedStretch) -> list[Problem]:
    if isinstance(item, DamagedStretch):
        lost = ", and a sector of zeros" if item.has_lost_sector and item.looks_like != "zeros" else ""
        return [Problem(item.position, item.end_position, item.looks_like + lost)]
    misfits = [*item.misfits]
    if item.is_chained is False:
        misfits.insert(0, "it does not name the previous frame")
    if not misfits:
        return []
    frame = item.frame
    return [Problem(frame.position, frame.end_position, f"a frame that does not continue here: {', '.join(misfits)}")]


def _note_torn_tail(last: FileReport, recovered: RecoveredLog) -> None:
    report = recovered.report
    if report.torn_bytes:
        last.status = FileStatus.MENDED
        last.reason = f"a torn tail, which was never flushed: the log ends at offset {report.log_end_offset}"
        last.next_start = f"truncates {report.torn_bytes} bytes at byte {report.torn_position}"


def _below_start(base_offset: Offset) -> FileReport:
    """A segment whose removal a crash interrupted. The next start does not read it."""
    reason = "all of it is below the log's start: it was being removed"
    return FileReport(
        _relative(segment_name(base_offset)), FileStatus.MENDED, f"offsets from {base_offset}", reason, REMOVES
    )


def _note_replaced(segments: dict[Offset, FileReport], start_offset: Offset) -> None:
    """A snapshot was replacing the log: the next start removes the whole log."""
    for report in segments.values():
        report.status = FileStatus.MENDED
        report.reason = f"a snapshot that ends at offset {start_offset} was replacing the log"
        report.next_start = REMOVES
        report.problems.clear()


def _with_damage(segments: dict[Offset, FileReport], damage: DamagedLog) -> list[FileReport]:
    """The findings of all segments, and what the next start does about each from the damaged one on."""
    for base_offset, report in segments.items():
        if base_offset > damage.base_offset:
            report.next_start = SET_ASIDE
    damaged = segments.get(damage.base_offset)
    if damaged is None:
        missing = FileReport(
            _relative(segment_name(damage.base_offset)), FileStatus.DAMAGED, "missing", damage.finding, RECOVERS
        )
        return [missing, *segments.values()]
    damaged.status = FileStatus.DAMAGED
    damaged.reason = damage.finding
    damaged.next_start = RECOVERS
    return list(segments.values())


def _relative(name: str) -> str:
    return f"{LOG_NAME}/{name}"
