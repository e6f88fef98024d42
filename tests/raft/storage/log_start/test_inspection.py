"""A log that starts above offset 0 is inspected as a start would open it, and nothing changes (SN-44)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.files.files import FileSystem
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Offset
from kraftlog.offline.file_reports import FileReport, FileStatus
from kraftlog.offline.log_verification import FETCHES_ALL, LogCheck, verify_log
from raft.core.types import OffsetAndEpoch
from raft.storage.copies import copy_paths
from raft.storage.directory import LOG_NAME
from raft.storage.inspection import rehearse_recovery
from raft.storage.log_start_file import LOG_START_NAME, write_log_start
from raft.storage.quorum_state import COPY_NAMES
from raft.storage.segment import segment_name
from raft.storage.segmented_log import SegmentedLog
from tests.raft.storage.log_start.builders import BATCHES, FOURS, point


def opened(node: Path, files: FileSystem | None = None) -> SegmentedLog:
    return SegmentedLog.open(files or PosixFileSystem(), str(node / LOG_NAME), config=FOURS)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    log = opened(tmp_path)
    for batch in BATCHES:
        log.append([batch])
    log.flush()
    log.write_marker()
    log.close()
    return tmp_path


def start_at(node: Path, start: OffsetAndEpoch) -> None:
    """As a crash may leave it: the start is written, and nothing else."""
    write_log_start(PosixFileSystem(), str(node / LOG_NAME), start)


def contents(node: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in sorted((node / LOG_NAME).iterdir())}


def verified(node: Path) -> LogCheck:
    """The verdict; nothing changes, and it has the log end that the next start finds."""
    before = contents(node)
    check = verify_log(node)
    assert contents(node) == before
    return check


def found(check: LogCheck, name: str) -> FileReport:
    (report,) = [report for report in check.reports if report.file == f"{LOG_NAME}/{name}"]
    return report


def statuses(check: LogCheck) -> list[FileStatus]:
    return [report.status for report in check.reports]


def test_a_log_that_starts_further_on_is_sound(node: Path) -> None:
    log = opened(node)
    log.advance_start(point(6, 2))
    log.close()
    check = verified(node)
    assert statuses(check) == [FileStatus.SOUND] * 3
    assert found(check, LOG_START_NAME).found == "the log starts at offset 6, behind epoch 2"
    assert check.end_offset == 12
    assert check.epochs is not None
    assert (check.epochs.start, check.epochs.entries()) == (point(6, 2), [(3, 8)])


def test_segments_below_the_start_are_removed_at_the_next_start(node: Path) -> None:
    start_at(node, point(9, 3))
    (node / LOG_NAME / segment_name(Offset(0))).write_bytes(b"whatever")
    (node / LOG_NAME / segment_name(Offset(4))).unlink()
    check = verified(node)
    assert statuses(check) == [FileStatus.SOUND, FileStatus.MENDED, FileStatus.SOUND]
    assert found(check, segment_name(Offset(0))).next_start == "removes it"
    assert check.end_offset == opened(node).log_end_offset == 12


@pytest.mark.parametrize("start", [point(500, 3), point(6, 9), point(8, 9)])
def test_a_log_that_a_snapshot_was_to_replace_is_removed_at_the_next_start(node: Path, start: OffsetAndEpoch) -> None:
    start_at(node, start)
    check = verified(node)
    assert statuses(check) == [FileStatus.SOUND] + [FileStatus.MENDED] * 3
    assert {report.next_start for report in check.reports[1:]} == {"removes it"}
    assert check.end_offset == start.offset
    assert check.epochs is not None
    assert check.epochs.start == start
    assert rehearse_recovery(node / LOG_NAME).report == opened(node).recovery


@pytest.mark.parametrize("has_quorum_state", [False, True])
def test_a_start_without_segments_is_an_empty_log(node: Path, has_quorum_state: bool) -> None:
    start_at(node, point(500, 3))
    for path in (node / LOG_NAME).glob("*.log"):
        path.unlink()
    if has_quorum_state:
        (node / COPY_NAMES[0]).write_bytes(b"")
    check = verified(node)
    assert statuses(check) == [FileStatus.SOUND] * 2
    assert check.reports[1].next_start == "begins an empty log at offset 500"
    assert check.end_offset == 500
    assert rehearse_recovery(node / LOG_NAME).report == opened(node).recovery


@pytest.mark.parametrize("has_segments", [True, False])
def test_a_damaged_start_is_found_and_so_is_what_the_segments_are(node: Path, has_segments: bool) -> None:
    start_at(node, point(6, 2))
    for name in copy_paths(str(node / LOG_NAME), LOG_START_NAME):
        Path(name).write_bytes(Path(name).read_bytes().replace(b"=6", b"=7"))
    for segment in [] if has_segments else (node / LOG_NAME).glob("*.log"):
        segment.unlink()
    check = verified(node)
    report = found(check, LOG_START_NAME)
    assert (report.status, report.next_start) == (FileStatus.DAMAGED, FETCHES_ALL)
    assert "it is unknown where this replica's log starts" in report.reason
    assert len(check.reports) == (5 if has_segments else 3)
    assert check.end_offset is None


def test_a_missing_segment_with_the_start_is_damage(node: Path) -> None:
    start_at(node, point(3, 1))
    (node / LOG_NAME / segment_name(Offset(0))).unlink()
    check = verified(node)
    assert check.end_offset is None
    damaged = [report for report in check.reports if report.status is FileStatus.DAMAGED]
    assert "has offset 3, though there was a log" in damaged[0].reason
    assert [report.next_start for report in check.reports[2:]] == ["sets this segment aside and recovers it too"] * 2


def test_a_start_of_another_log_is_a_log_that_cannot_be_opened(node: Path) -> None:
    start_at(node, point(6, 1))
    check = verified(node)
    assert "they are not of one log" in check.reports[-1].reason
    assert check.end_offset is None
