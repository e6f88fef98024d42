"""`kraftlog snapshot` on files: list, inspect, verify; damage of every kind, and nothing changes on the disk."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.files.posix import PosixFile, PosixFileSystem
from kraftlog.offline.snapshot_files import timestamp_text
from snapshot.names import part_name, snapshot_name
from tests.kraftlog.command_line import Finished, Run
from tests.kraftlog.node_directories import contents, flip, make_node_directory, make_node_with_snapshot, only_snapshot
from tests.snapshot.builders import an_id


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The data directory of a node that was stopped and has a snapshot."""
    return make_node_with_snapshot(tmp_path / "node")


@pytest.fixture
def snapshot(node: Path) -> Path:
    return only_snapshot(node)


def look(run: Run, node: Path, *arguments: object) -> Finished:
    """Run a command that must change nothing on the disk."""
    before = contents(node.parent)
    said = run(*arguments)
    assert contents(node.parent) == before
    return said


def test_inspect_tells_what_there_is(run: Run, node: Path, snapshot: Path) -> None:
    found = look(run, node, "snapshot", "inspect", snapshot, "--output", "json").json()
    by_type = found["RecordsByType"]
    assert list(by_type) == [
        "APPLIED_STATE_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
    ]
    assert found["Records"] == sum(by_type.values())
    assert by_type["APPLIED_STATE_RECORD"] == 1
    assert snapshot.name == snapshot_name(an_id(found["EndOffset"], found["Epoch"]))
    assert (found["SizeBytes"], found["Batches"], found["Version"]) == (snapshot.stat().st_size, 1, 0)
    assert found["LastContainedLogTimestamp"].startswith("2023-11-14T22:13:")
    assert re.fullmatch("[0-9a-f]{64}", found["Digest"])
    lines = look(run, node, "snapshot", "inspect", snapshot).lines()
    fields = [line.split() for line in lines[: lines.index("")]]
    assert fields == [[f"{name}:", str(value)] for name, value in found.items() if name != "RecordsByType"]
    rows = [line.split() for line in lines[lines.index("") + 3 :]]
    assert rows == [[name, str(count)] for name, count in by_type.items()]


def test_records_are_printed_as_watch_prints_them(run: Run, node: Path, snapshot: Path) -> None:
    lines = look(run, node, "snapshot", "inspect", snapshot, "--records").lines()
    records = [json.loads(line) for line in lines]
    assert all(list(record) == ["type", "data"] for record in records)
    assert records[0]["type"] == "APPLIED_STATE_RECORD"
    in_log = [
        record for line in run("dump-log", node, "--decode").lines() for record in json.loads(line).get("records", ())
    ]
    topics = [record["data"] for record in records if record["type"] == "TOPIC_RECORD"]
    assert topics
    assert all(topic in [record["data"] for record in in_log] for topic in topics)


def test_verify_says_of_each_file_whether_it_is_whole_and_where_not(run: Run, node: Path, snapshot: Path) -> None:
    said = look(run, node, "snapshot", "verify", snapshot, "--output", "json").json()
    (row,) = said["Files"]
    assert (said["IsSound"], row["File"], row["Status"]) == (True, str(snapshot), "sound")
    assert row["Found"].endswith(f" records, {snapshot.stat().st_size} bytes")
    assert row["Found"] in look(run, node, "snapshot", "verify", snapshot).lines()[-1]
    bad = snapshot.with_name(snapshot_name(an_id(1, 1)))
    bad.write_bytes(snapshot.read_bytes()[:-40])
    cut = node.parent / snapshot.name
    cut.write_bytes(snapshot.read_bytes()[:-40])
    said = look(run, node, "snapshot", "verify", snapshot, bad, cut, "--output", "json")
    rows = json.loads(said.output)["Files"]
    assert (said.code, json.loads(said.output)["IsSound"]) == (1, False)
    assert [row["Status"] for row in rows] == ["sound", "damaged", "damaged"]
    assert "the batch at byte 0 has offset 0 and epoch 3, not 0 and 1" in rows[1]["Reason"]
    assert "at byte " in rows[2]["Reason"]
    table = look(run, node, "snapshot", "verify", snapshot, bad, cut)
    assert (table.code, table.errors) == (1, "")
    assert f"{cut}: {rows[2]['Reason']}" in table.output.splitlines()


def test_what_cannot_be_read_does_not_keep_verify_from_the_others(run: Run, node: Path, snapshot: Path) -> None:
    named_wrong = node.parent / "backup.checkpoint"
    named_wrong.write_bytes(snapshot.read_bytes())
    said = look(run, node, "snapshot", "verify", named_wrong, node / "nowhere", snapshot)
    assert said.code == 1
    assert said.output.splitlines()[-1].startswith(f"{snapshot} ")
    assert said.errors.startswith(f"error: KAFKA_STORAGE_ERROR: {named_wrong} is not named like a snapshot")
    assert said.errors.endswith(f"; cannot open {node / 'nowhere'}: No such file or directory\n")
    said = look(run, node, "snapshot", "verify", node / "nowhere")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open {node / 'nowhere'}: No such file")


def test_a_disk_that_does_not_give_it_back_is_damage(
    run: Run, node: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("kraftbase.files.posix.os.pread", broken)
    said = run("snapshot", "verify", snapshot, "--output", "json")
    (row,) = json.loads(said.output)["Files"]
    assert (said.code, row["Status"], row["Found"]) == (1, "damaged", "cannot be read: Input/output error")


def test_a_damaged_snapshot_is_not_looked_into(run: Run, node: Path, snapshot: Path) -> None:
    flip(snapshot, 200)
    for options in ((), ("--records",), ("--output", "json")):
        said = look(run, node, "snapshot", "inspect", snapshot, *options)
        assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{snapshot} is damaged", "at byte ")
    rows = look(run, node, "snapshot", "list", node, "--output", "json").json()
    assert "Problem" not in rows[0]  # only its header was read
    flip(snapshot, 30)
    rows = look(run, node, "snapshot", "list", node, "--output", "json").json()
    assert (rows[0]["LastContainedLogTimestamp"], rows[0]["SizeBytes"]) == (None, snapshot.stat().st_size)
    table = look(run, node, "snapshot", "list", node).lines()
    assert table[-1] == f"{snapshot}: {rows[0]['Problem']}"


def test_a_snapshot_that_is_deleted_while_it_is_listed_is_none(
    run: Run, node: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = PosixFileSystem.open_to_read

    def late(files: PosixFileSystem, path: str) -> PosixFile:
        snapshot.unlink()
        return opened(files, path)

    monkeypatch.setattr(PosixFileSystem, "open_to_read", late)
    assert run("snapshot", "list", node, "--output", "json").json() == []


def test_a_file_that_may_only_be_read_is_enough(run: Run, node: Path, snapshot: Path) -> None:
    flags: list[int] = []

    def opening(path: str, flag: int, *arguments: int) -> int:
        flags.append(flag)
        return real(path, flag, *arguments)

    real = os.open
    with pytest.MonkeyPatch.context() as patch:  # the rights of the file would not do: root may write all the same
        patch.setattr("kraftbase.files.posix.os.open", opening)
        assert run("snapshot", "verify", snapshot).code == 0
    assert flags == [os.O_RDONLY | os.O_CLOEXEC]


def test_what_is_no_snapshot_is_one_line(run: Run, node: Path, snapshot: Path, tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "nowhere", "No such file"),
        (snapshot, "Not a directory"),
        (node / "log", "holds no snapshots"),
    ):
        assert look(run, node, "snapshot", "list", path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(path), words)
    said = look(run, node, "snapshot", "inspect", node / "meta.properties")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "is not named like a snapshot")
    directory = tmp_path / snapshot_name(an_id(9, 9))
    directory.mkdir()
    said = look(run, node, "snapshot", "inspect", directory)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "Is a directory")


def test_nothing_is_made_in_a_directory_that_is_only_listed(run: Run, tmp_path: Path) -> None:
    node = make_node_directory(tmp_path / "node")
    for place in (node / "snapshots", node / "log" / "snapshots"):
        assert look(run, node, "snapshot", "list", place).code == 1
    assert look(run, node, "snapshot", "list", node, "--output", "json").json() == []


def test_a_timestamp_beyond_the_calendar_is_a_number() -> None:
    assert timestamp_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert timestamp_text(2**63 - 1) == str(2**63 - 1)


def test_leftovers_are_not_listed(run: Run, node: Path, snapshot: Path) -> None:
    (snapshot.parent / part_name(an_id(9, 1), "c0ffee")).write_bytes(b"half")
    (snapshot.parent / f"{snapshot_name(an_id(8, 1))}.deleted").write_bytes(b"gone")
    rows = look(run, node, "snapshot", "list", node, "--output", "json").json()
    assert [row["Path"] for row in rows] == [str(snapshot)]
