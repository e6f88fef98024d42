"""`kraftlog verify` of a broker's log directories: what is damaged is named with its file and position."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from kraftbase.errors import DirectoryError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.cli.main import app
from kraftlog.offline.broker_verification import verify_log_directory
from kraftlog.offline.file_reports import FileReport, FileStatus, is_sound
from kraftlog.offline.in_use import LOCKS
from kraftlog.offline.verification import verify_directory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.checkpoints import encode_epochs, encode_offsets, encode_partition_metadata
from raft.storage.directory import LOCK_NAME
from tests.kraftlog.command_line import Run
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TOPIC_ID,
    TRANSACTIONAL,
    append,
    batch,
    marker,
    open_directory,
    produced,
)

CONFIG = PartitionLogConfig(segment_bytes=700, index_interval_bytes=0)
FIRST = "clicks-0/00000000000000000000"
INVENTORY = "kraftlog-inventory"


def make(path: Path) -> list[str]:
    """A log directory after a clean shutdown; returns the segments of its log, without suffix."""
    directory = open_directory(PosixFileSystem(), str(path), config=CONFIG)
    log = directory.create_log(CLICKS, TOPIC_ID, CONFIG, NOW_MS, UUID(int=1))
    log.assign_epoch(2)
    for index in range(9):
        append(log, batch(2, value=b"v" * 40, timestamp_ms=NOW_MS + 10 * index), epoch=2 + index // 5)
    append(log, produced(7, 0, attributes=TRANSACTIONAL), epoch=3)
    append(log, marker(7, aborts=True), epoch=3)
    log.advance_high_watermark(log.log_end_offset)
    directory.create_log(TopicPartition("orders", 3), TOPIC_ID, CONFIG, NOW_MS, UUID(int=2))
    directory.close(5)
    segments = sorted(file.stem for file in (path / "clicks-0").glob("*.log"))
    assert len(segments) > 2
    return segments


def bytes_of(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def change(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(bytes(data))


def bad(path: Path) -> dict[str, FileReport]:
    """What is not sound; nothing is written."""
    before = bytes_of(path)
    reports = verify_directory(path)
    assert bytes_of(path) == before
    return {report.file: report for report in reports if report.status is not FileStatus.SOUND}


def test_a_directory_after_a_clean_shutdown_is_sound_and_each_segment_is_named(tmp_path: Path) -> None:
    segments = make(tmp_path)
    assert bad(tmp_path) == {}
    names = [report.file for report in verify_directory(tmp_path)]
    assert [name for name in names if name.endswith(".log")] == [
        *(f"clicks-0/{segment}.log" for segment in segments), "orders-3/00000000000000000000.log",
    ]  # fmt: skip


def test_progress_goes_to_all_bytes_of_the_logs(tmp_path: Path) -> None:
    make(tmp_path)
    told: list[tuple[int, int | None]] = []
    verify_directory(tmp_path, lambda done, total: told.append((done, total)))
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.log"))
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_batch_that_has_changed_is_damage_and_its_position_is_named(tmp_path: Path, segment: int) -> None:
    name = f"clicks-0/{make(tmp_path)[segment]}.log"
    change(tmp_path / name, 100)
    damage = bad(tmp_path)
    assert damage[name].status is FileStatus.DAMAGED
    assert [problem.position for problem in damage[name].problems] == [0]
    assert "offline" in damage[name].next_start


def test_a_tail_that_was_not_flushed_is_mended_and_one_that_was_is_damage(tmp_path: Path) -> None:
    name = f"clicks-0/{make(tmp_path)[-1]}.log"
    with (tmp_path / name).open("ab") as file:
        file.write(batch(1)[:30])
    torn = bad(tmp_path)[name]
    assert (torn.status, torn.next_start.split()[:3]) == (FileStatus.MENDED, ["truncates", "30", "bytes"])
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-40])
    assert bad(tmp_path)[name].status is FileStatus.DAMAGED


@pytest.mark.parametrize(("suffix", "at", "position"), [(".index", 3, 0), (".index", 15, 8), (".timeindex", 7, 0)])
@pytest.mark.parametrize(
    ("segment", "was_clean", "status"),
    [(0, False, FileStatus.DAMAGED), (-1, False, FileStatus.MENDED), (-1, True, FileStatus.DAMAGED)],
)
def test_an_index_that_does_not_agree_with_the_log_is_named_with_the_entry(
    tmp_path: Path, suffix: str, at: int, position: int, segment: int, was_clean: bool, status: FileStatus
) -> None:
    name = f"clicks-0/{make(tmp_path)[segment]}{suffix}"
    change(tmp_path / name, at)
    if not was_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    report = bad(tmp_path)[name]
    assert report.status is status
    assert position in [problem.position for problem in report.problems]


def test_an_index_that_is_missing_is_made_again(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / f"{FIRST}.index").unlink()
    (report,) = bad(tmp_path).values()
    assert (report.file, report.status) == (f"{FIRST}.index", FileStatus.MENDED)


def test_the_zeros_that_kafka_leaves_behind_the_entries_of_an_index_are_none(tmp_path: Path) -> None:
    make(tmp_path)
    for suffix in (".index", ".timeindex"):
        with (tmp_path / (FIRST + suffix)).open("ab") as file:
            file.write(bytes(240))
    assert bad(tmp_path) == {}


def _lose_recovery_points(path: Path) -> str:
    (path / "recovery-point-offset-checkpoint").write_bytes(b"7\n")
    return "recovery-point-offset-checkpoint"


def _lose_log_starts(path: Path) -> str:
    (path / "log-start-offset-checkpoint").write_bytes(b"7\n")
    return "log-start-offset-checkpoint"


def _reach_further(path: Path) -> str:
    (path / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({CLICKS: 1_000}))
    return "clicks-0"


def _lose_a_log(path: Path) -> str:
    (path / "recovery-point-offset-checkpoint").write_bytes(encode_offsets({TopicPartition("views", 1): 3}))
    return "views-1"


def _change_epochs(path: Path) -> str:
    (path / "clicks-0/leader-epoch-checkpoint").write_bytes(encode_epochs([(2, 0), (3, 12)]))
    return "clicks-0/leader-epoch-checkpoint"


def _change_aborted(path: Path) -> str:
    (index,) = (path / "clicks-0").glob("*.txnindex")
    change(index, 25)
    return f"clicks-0/{index.name}"


def _change_snapshot(path: Path) -> str:
    snapshot = max((path / "clicks-0").glob("*.snapshot"))
    change(snapshot, -1)
    return f"clicks-0/{snapshot.name}"


def _change_topic_id(path: Path) -> str:
    (path / "clicks-0/partition.metadata").write_bytes(b"version: 9\n")
    return "clicks-0/partition.metadata"


def _change_identity(path: Path) -> str:
    (path / "meta.properties").write_bytes(b"version=9\n")
    return "meta.properties"


def _lose_high_watermarks(path: Path) -> str:
    (path / "replication-offset-checkpoint").write_bytes(b"0\n9\n")
    return "replication-offset-checkpoint"


def _set_aside(path: Path) -> str:
    (path / f"{FIRST}.log").rename(path / f"{FIRST}.log.damaged")
    return f"{FIRST}.log.damaged"


@pytest.mark.parametrize(
    ("harm", "status"),
    [
        (_lose_recovery_points, FileStatus.MENDED),
        (_lose_log_starts, FileStatus.DAMAGED),
        (_lose_high_watermarks, FileStatus.MENDED),
        (_reach_further, FileStatus.DAMAGED),
        (_lose_a_log, FileStatus.DAMAGED),
        (_change_epochs, FileStatus.DAMAGED),
        (_change_aborted, FileStatus.DAMAGED),
        (_change_snapshot, FileStatus.MENDED),
        (_change_topic_id, FileStatus.DAMAGED),
        (_change_identity, FileStatus.DAMAGED),
        (_set_aside, FileStatus.DAMAGED),
    ],
)
def test_what_else_is_wrong_is_named(tmp_path: Path, harm: Callable[[Path], str], status: FileStatus) -> None:
    make(tmp_path)
    (tmp_path / INVENTORY).unlink()
    name = harm(tmp_path)
    report = bad(tmp_path)[name]
    assert report.status is status
    assert report.next_start


def _lose_segment(path: Path) -> str:
    min((path / "clicks-0").glob("*[1-9].log")).unlink()
    return "clicks-0"


def _lose_last_segment(path: Path) -> str:
    max((path / "clicks-0").glob("*.log")).unlink()
    return "clicks-0"


def _shorten_segment(path: Path) -> str:
    log = path / f"{FIRST}.log"
    log.write_bytes(log.read_bytes()[: len(log.read_bytes()) // 2])
    return "clicks-0"


def _lose_directory(path: Path) -> str:
    shutil.rmtree(path / "clicks-0")
    return "clicks-0"


def _name_another_topic(path: Path) -> str:
    (path / "clicks-0/partition.metadata").write_bytes(encode_partition_metadata(UUID(int=5)))
    return "clicks-0/partition.metadata"


def _lose_topic_id(path: Path) -> str:
    (path / "clicks-0/partition.metadata").unlink()
    return "clicks-0/partition.metadata"


def _let_kafka_run(path: Path) -> str:
    (path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":57}')
    return INVENTORY


def _damage_inventory(path: Path) -> str:
    change(path / INVENTORY, 100)
    return INVENTORY


@pytest.mark.parametrize(
    ("harm", "status", "words"),
    [
        (_lose_segment, FileStatus.DAMAGED, "is missing"),
        (_lose_last_segment, FileStatus.DAMAGED, "the last segment"),
        (_shorten_segment, FileStatus.DAMAGED, "bytes, and had"),
        (_lose_directory, FileStatus.DAMAGED, "the inventory lists it"),
        (_name_another_topic, FileStatus.MENDED, "and the inventory"),
        (_lose_topic_id, FileStatus.MENDED, ""),
        (_change_topic_id, FileStatus.MENDED, "topic id"),
        (_lose_log_starts, FileStatus.MENDED, "version"),
        (_let_kafka_run, FileStatus.MENDED, "another program"),
        (_damage_inventory, FileStatus.MENDED, "is damaged"),
    ],
)
def test_db89_what_a_start_will_miss_is_named(
    tmp_path: Path, harm: Callable[[Path], str], status: FileStatus, words: str
) -> None:
    """DB-89."""
    make(tmp_path)
    name = harm(tmp_path)
    report = bad(tmp_path)[name]
    assert report.status is status
    assert words in report.reason
    assert report.next_start


def test_db89_without_an_inventory_a_gap_is_a_line_and_no_damage(tmp_path: Path) -> None:
    """DB-89."""
    segments = make(tmp_path)
    for suffix in (".log", ".index", ".timeindex"):
        (tmp_path / f"clicks-0/{segments[1]}{suffix}").unlink()
    (tmp_path / INVENTORY).unlink()
    assert bad(tmp_path) == {}
    (line,) = [report for report in verify_directory(tmp_path) if report.file == "clicks-0"]
    assert line.found == f"no offsets {int(segments[1])} to {int(segments[2]) - 1}"
    assert "compacted" in line.next_start


def test_epochs_that_go_back_within_a_log_are_damage(tmp_path: Path) -> None:
    segments = make(tmp_path)
    path = tmp_path / f"clicks-0/{segments[-1]}.log"
    data = bytearray(path.read_bytes())
    data[12:16] = (1).to_bytes(4, "big")  # the leader epoch is not under the checksum
    path.write_bytes(bytes(data))
    report = bad(tmp_path)[f"clicks-0/{segments[-1]}.log"]
    assert report.status is FileStatus.DAMAGED
    assert "has epoch 1 after 3" in report.problems[0].text


def test_a_brokers_own_directory_is_verified_with_the_logs_in_it(tmp_path: Path) -> None:
    make(tmp_path / "partitions")
    (tmp_path / "log").mkdir()  # every broker's directory has it, as a node's
    (tmp_path / "meta.properties").write_bytes((tmp_path / "partitions/meta.properties").read_bytes())
    change(tmp_path / f"partitions/{FIRST}.log", 100)
    damage = [report.file for report in verify_directory(tmp_path) if report.status is FileStatus.DAMAGED]
    assert f"partitions/{FIRST}.log" in damage
    assert not {"log", "metadata.db", "quorum-state-0"} & set(damage)


def test_what_is_neither_a_nodes_directory_nor_a_brokers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryError, match="nor a broker's"):
        verify_directory(tmp_path)


def test_the_command_names_file_and_position_and_its_exit_code_tells_of_damage(tmp_path: Path) -> None:
    make(tmp_path)
    runner = CliRunner()
    assert runner.invoke(app, ["verify", str(tmp_path)]).exit_code == 0
    change(tmp_path / f"{FIRST}.log", 100)
    result = runner.invoke(app, ["verify", str(tmp_path), "--output", "json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["IsSound"] is False
    (damaged,) = [row for row in found["Files"] if row["File"] == f"{FIRST}.log"]
    assert damaged["Problems"][0]["From"] == 0
    assert not is_sound(verify_directory(tmp_path))


def test_records_that_were_cut_off_below_the_high_watermark_are_named_and_no_damage(tmp_path: Path) -> None:
    make(tmp_path)
    for suffix in ("cut", "cut-committed"):
        (tmp_path / f"clicks-0/00000000000000000005-7.{suffix}").write_bytes(b"")
    assert bad(tmp_path) == {}
    named = {report.file: report.found for report in verify_log_directory(tmp_path)}
    assert "clicks-0/00000000000000000005-7.cut" not in named
    assert "yours to delete" in named["clicks-0/00000000000000000005-7.cut-committed"]


def test_an_old_log_is_named_and_a_start_over_that_was_interrupted_is_what_a_start_mends(tmp_path: Path) -> None:
    make(tmp_path)
    old = tmp_path / "clicks-0/00000000000000000000-7.old"
    old.write_bytes(b"")
    assert bad(tmp_path) == {}
    named = {report.file: report.found for report in verify_log_directory(tmp_path)}
    assert "before it was replaced" in named["clicks-0/00000000000000000000-7.old"]
    (tmp_path / "clicks-0/00000000000000009000-7.start-over").write_bytes(b"")
    (found,) = [report for report in verify_log_directory(tmp_path) if report.file.endswith(".start-over")]
    assert (found.status, found.found) == (FileStatus.MENDED, "unfinished")
    assert "be replaced by one that starts at offset 9000" in found.reason
    assert is_sound(verify_directory(tmp_path))


@pytest.mark.skipif(not LOCKS.exists(), reason="it is the kernel's list of locks that tells")
def test_a_directory_in_use_is_refused_with_what_to_do(tmp_path: Path, run: Run) -> None:
    (tmp_path / PARTITIONS_NAME).mkdir()
    lock = PosixFileSystem().try_lock(str(tmp_path / LOCK_NAME))
    assert lock is not None
    said = run("verify", tmp_path)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"in use by process {os.getpid()}", "stop that node or broker")
    lock.close()
    assert "in use" not in run("verify", tmp_path).errors
