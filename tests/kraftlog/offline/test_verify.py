"""`kraftlog verify`: what is sound, what is damaged, what the next start does; and nothing changes."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.election_state import ElectionState
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch, RecoveringLog
from raft.storage.frame import MAGIC
from raft.storage.quorum_state import encode_copy
from raft.storage.recovering_file import RECOVERING_NAME, encode_recovering
from snapshot.names import part_name, snapshot_name
from snapshot.store import SnapshotStore
from statemachine.store.snapshot_worker import take_snapshot
from tests.kraftlog.command_line import Finished, Run
from tests.kraftlog.node_directories import CLUSTER_ID, contents, flip, make_node_directory, segments
from tests.statemachine.store.sealing import seal


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The data directory of a node that was stopped."""
    return make_node_directory(tmp_path / "node")


def verify(run: Run, node: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and each file's row; the table says the same, and nothing changes."""
    before = contents(node)
    said = run("verify", node, "--output", "json")
    assert said.errors == ""
    found = json.loads(said.output)
    table = run("verify", node)
    assert contents(node) == before
    assert found["Directory"] == str(node)
    assert found["IsSound"] == (said.code == 0) == all(row["Status"] != "damaged" for row in found["Files"])
    assert (table.code, table.errors) == (said.code, "")
    assert table.output.endswith(f"{node} is {'sound' if found['IsSound'] else 'damaged'}.\n")
    for row in found["Files"]:
        for word in (row["Found"], row.get("Reason", ""), row.get("NextStart", "")):
            assert word in table.output
    return said.code, {row["File"]: row for row in found["Files"]}


def not_sound(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {file: row["Status"] for file, row in rows.items() if row["Status"] != "sound"}


def name_of(segment: Path) -> str:
    return f"log/{segment.name}"


def test_a_node_that_was_stopped_is_sound(run: Run, node: Path) -> None:
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (0, {})
    assert list(rows) == [
        "meta.properties",
        "quorum-state-0",
        "quorum-state-1",
        *map(name_of, segments(node)),
        "metadata.db",
    ]
    assert len(segments(node)) > 2
    assert rows[name_of(segments(node)[0])]["Found"] == "offsets 0 to 13, 7 batches"
    assert not any("NextStart" in row for row in rows.values())


def test_a_directory_that_was_only_formatted_is_sound(run: Run, node: Path) -> None:
    for path in sorted(node.rglob("*"), reverse=True):
        if path.name not in ("meta.properties", ".lock"):
            path.rmdir() if path.is_dir() else path.unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (0, {})


def test_a_byte_that_flipped_is_found_and_so_is_the_next_one(run: Run, node: Path) -> None:
    first, second, third = segments(node)
    flip(first, 400)
    flip(second, -20)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {name_of(first): "damaged", name_of(second): "damaged"})
    (problem,) = rows[name_of(first)]["Problems"]
    assert problem["From"] == 357 < 400 < problem["To"] == 501
    assert "its CRC does not match" in problem["Problem"]
    assert f"{first} is damaged at byte 357" in rows[name_of(first)]["Reason"]
    assert "recovers the rest from the other voters; a sole voter does not start" in rows[name_of(first)]["NextStart"]
    assert len(rows[name_of(second)]["Problems"]) == 1
    assert "sets this segment aside" in rows[name_of(second)]["NextStart"]
    assert "sets this segment aside" in rows[name_of(third)]["NextStart"]


def test_a_torn_tail_is_sound_and_is_cut_at_the_next_start(run: Run, node: Path) -> None:
    last = segments(node)[-1]
    size = last.stat().st_size
    with last.open("ab") as file:
        file.write(b"torn" + MAGIC + b"half a frame" + bytes(500))
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (0, {name_of(last): "mended"})
    assert rows[name_of(last)]["NextStart"] == f"truncates 20 bytes at byte {size}"


def test_a_lost_sector_of_what_was_flushed_is_damage(run: Run, node: Path) -> None:
    middle = segments(node)[1]
    data = middle.read_bytes()
    middle.write_bytes(data[:512] + bytes(512) + data[1024:])
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {name_of(middle): "damaged"})
    assert "a sector of zeros" in rows[name_of(middle)]["Problems"][0]["Problem"]


@pytest.mark.parametrize("index", [0, 1])
def test_a_missing_segment_is_damage(run: Run, node: Path, index: int) -> None:
    paths = segments(node)
    paths[index].unlink()
    code, rows = verify(run, node)
    assert code == 1
    before = paths[max(0, index - 1)]
    assert rows[name_of(before)]["Status"] == "damaged"
    assert "sets this segment aside" in rows[name_of(paths[2])]["NextStart"]
    if index:
        (problem,) = rows[name_of(paths[2])]["Problems"]  # not the chain too: what the first frame follows is gone
        assert problem == {"From": 0, "To": 0, "Problem": "the segment before ends at offset 13"}
    else:
        assert rows[name_of(before)]["Found"] == "missing"


def test_a_missing_last_segment_is_known_from_what_was_applied(run: Run, node: Path) -> None:
    segments(node)[-1].unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"metadata.db": "damaged"})
    assert rows["metadata.db"]["Reason"] == "the log, that ends at 26, does not have all that is applied"
    assert "recovers a voter's log" in rows["metadata.db"]["NextStart"]


def test_a_log_that_is_being_recovered_says_so(run: Run, node: Path) -> None:
    path = node / "log" / RECOVERING_NAME
    path.write_bytes(encode_recovering(RecoveringLog(Offset(77), Epoch(3), "a bad disk")))
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {f"log/{RECOVERING_NAME}": "damaged"})
    assert rows[f"log/{RECOVERING_NAME}"]["Reason"] == "a bad disk"
    assert "77" in rows[f"log/{RECOVERING_NAME}"]["Found"]
    flip(path, 3)
    code, rows = verify(run, node)
    assert (code, rows[f"log/{RECOVERING_NAME}"]["NextStart"]) == (
        1,
        "fetches the whole log again from the other voters; a sole voter does not start",
    )


class UnreadableFile(io.BytesIO):
    def seek(self, *_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read(self, *_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def opening(monkeypatch: pytest.MonkeyPatch, path: Path, open_it: Callable[[], io.BytesIO]) -> None:
    """From now on opening that file raises this. File modes would not do: root may still read it."""
    open_file = io.open

    def guarded(name: Any, *arguments: Any, **options: Any) -> Any:
        return open_it() if str(name) == str(path) else open_file(name, *arguments, **options)

    monkeypatch.setattr(io, "open", guarded)
    monkeypatch.setattr(builtins, "open", guarded)


def test_a_segment_that_the_disk_does_not_give_back_is_damaged(
    run: Run, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = segments(node)[1]
    opening(monkeypatch, broken, UnreadableFile)
    said = run("verify", node, "--output", "json")
    rows = {row["File"]: row for row in json.loads(said.output)["Files"]}
    assert (said.code, not_sound(rows)) == (1, {name_of(broken): "damaged"})
    assert rows[name_of(broken)]["Found"] == "cannot be read: Input/output error"
    assert "recovers the rest from the other voters" in rows[name_of(broken)]["NextStart"]


# --- identity and quorum state ----------------------------------------------------------------------------------------


def test_an_unreadable_meta_file_is_damage(run: Run, node: Path) -> None:
    flip(node / "meta.properties", 30)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"meta.properties": "damaged"})
    assert rows["meta.properties"]["NextStart"] == "does not start"
    (node / "meta.properties").unlink()
    code, rows = verify(run, node)
    assert (code, rows["meta.properties"]["Found"]) == (1, "missing")


def test_one_bad_copy_of_the_quorum_state_is_mended_and_two_are_the_end(run: Run, node: Path) -> None:
    flip(node / "quorum-state-1", 20)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"quorum-state-1": "damaged"})
    assert rows["quorum-state-1"]["NextStart"] == "repairs it from the other copy"
    (node / "quorum-state-0").unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"quorum-state-0": "damaged", "quorum-state-1": "damaged"})
    assert rows["quorum-state-0"]["NextStart"] == rows["quorum-state-1"]["NextStart"] == "does not start"
    (node / "quorum-state-1").unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"quorum-state-0": "damaged", "quorum-state-1": "damaged"})
    assert "a vote may be lost" in rows["quorum-state-0"]["Reason"]


def test_what_a_crash_leaves_of_the_quorum_state_is_sound(run: Run, node: Path, tmp_path: Path) -> None:
    state = ElectionState(epoch=Epoch(3), leader_id=None, voted_key=None)
    (node / "quorum-state-0").write_bytes(encode_copy(7, state))
    for sequence, status, exit_code in [(6, "mended", 0), (5, "damaged", 1)]:
        (node / "quorum-state-1").write_bytes(encode_copy(sequence, state))
        code, rows = verify(run, node)
        assert (code, not_sound(rows)) == (exit_code, {"quorum-state-1": status})
    (node / "quorum-state-1").unlink()
    assert verify(run, node)[0] == 1
    (node / "quorum-state-0").write_bytes(encode_copy(1, state))  # the first save makes one file after the other
    assert verify(run, node)[0] == 0


# --- the database -----------------------------------------------------------------------------------------------------


def spoil_header(path: Path) -> None:
    path.write_bytes(b"no database" * 500)


def claim_for_another_cluster(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE applied SET cluster_id = 'another'")
        seal(connection)


def make_it_of_another_epoch(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE applied SET epoch = 2")
        seal(connection)


@pytest.mark.parametrize(
    ("spoil", "next_start"),
    [
        (spoil_header, "sets it aside and rebuilds it from the log"),
        (claim_for_another_cluster, "does not start"),
        (make_it_of_another_epoch, "sets it aside and rebuilds it from the log"),
    ],
)
def test_a_bad_database_is_damage(run: Run, node: Path, spoil: Callable[[Path], None], next_start: str) -> None:
    spoil(node / "metadata.db")
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"metadata.db": "damaged"})
    assert rows["metadata.db"]["NextStart"] == next_start
    assert "kraftlog-verify-" not in rows["metadata.db"]["Reason"]


def test_a_write_ahead_log_that_a_kill_left_is_read_and_stays_as_it_is(run: Run, node: Path) -> None:
    path = node / "metadata.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE applied SET end_offset = 29")
        seal(connection)
        killed = {name: (node / name).read_bytes() for name in ("metadata.db", "metadata.db-wal")}
    for entry in node.glob("metadata.db*"):
        entry.unlink()
    for name, data in killed.items():
        (node / name).write_bytes(data)
    code, rows = verify(run, node)
    assert (code, rows["metadata.db"]["Found"]) == (1, "offsets below 29 are applied")
    assert "the replayed log is at" in rows["metadata.db"]["Reason"]
    assert not (node / "metadata.db-shm").exists()


def test_a_missing_database_is_made_from_the_log(run: Run, node: Path) -> None:
    (node / "metadata.db").unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (0, {})
    assert rows["metadata.db"]["NextStart"] == "makes it from the log"


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(node: Path) -> Path:
    """The node's only snapshot, of all that is applied."""
    taken = take_snapshot(node / "metadata.db", SnapshotStore(PosixFileSystem(), str(node / "snapshots")))
    return Path(taken.path)


def name_of_snapshot(path: Path) -> str:
    return f"snapshots/{path.name}"


def under_another_id(snapshot: Path, offset: int, epoch: int) -> Path:
    """Where the snapshot with that id is."""
    return snapshot.with_name(snapshot_name(OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))))


def test_a_whole_snapshot_is_sound(run: Run, node: Path, snapshot: Path) -> None:
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (0, {})
    assert list(rows)[-2:] == [name_of_snapshot(snapshot), "metadata.db"]
    assert rows[name_of_snapshot(snapshot)]["Found"].endswith(f"records, {snapshot.stat().st_size} bytes")
    assert "NextStart" not in rows[name_of_snapshot(snapshot)]


def test_a_damaged_snapshot_stays_where_it_is_while_nobody_needs_it(run: Run, node: Path, snapshot: Path) -> None:
    flip(snapshot, 200)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {name_of_snapshot(snapshot): "damaged"})
    row = rows[name_of_snapshot(snapshot)]
    assert "at byte " in row["Reason"]
    assert row["NextStart"].startswith("leaves it, unless the database must be rebuilt: then it deletes this one")


def test_what_a_crash_leaves_of_a_snapshot_is_removed(run: Run, node: Path, snapshot: Path) -> None:
    unfinished = node / "snapshots" / part_name(OffsetAndEpoch(epoch=Epoch(3), offset=Offset(20)), "c0ffee")
    deleted = node / "snapshots" / f"{under_another_id(snapshot, 7, 1).name}.deleted"
    for path in (unfinished, deleted, node / "snapshots" / "notes.txt"):
        path.write_bytes(b"anything")
    code, rows = verify(run, node)
    assert code == 0
    assert not_sound(rows) == {name_of_snapshot(unfinished): "mended", name_of_snapshot(deleted): "mended"}
    assert [rows[name_of_snapshot(path)]["Found"] for path in (unfinished, deleted)] == [
        "was not finished",
        "was deleted",
    ]
    assert {rows[name_of_snapshot(path)]["NextStart"] for path in (unfinished, deleted)} == {"removes it"}
    SnapshotStore(PosixFileSystem(), str(node / "snapshots")).clean_up()  # as a start does
    assert not_sound(verify(run, node)[1]) == {}


@pytest.mark.parametrize(("offset", "epoch"), [(31, 3), (20, 9), (14, 1)])
def test_a_snapshot_of_what_the_log_does_not_have_is_damage(
    run: Run, node: Path, snapshot: Path, offset: int, epoch: int
) -> None:
    foreign = under_another_id(snapshot, offset, epoch)
    take_snapshot_as(node, foreign, offset, epoch)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {name_of_snapshot(foreign): "damaged"})
    row = rows[name_of_snapshot(foreign)]
    assert row["Reason"] == "the log, that ends at 30, does not have all that is in it"
    assert row["NextStart"] == "leaves it, and does not make a database of it"


def take_snapshot_as(node: Path, path: Path, offset: int, epoch: int) -> None:
    """A whole snapshot under that id, of a database that says so."""
    copy = node.parent / "copy.db"
    with closing(sqlite3.connect(node / "metadata.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("UPDATE applied SET end_offset = ?, epoch = ?", (offset, epoch))
        seal(target)
        target.commit()
    taken = take_snapshot(copy, SnapshotStore(PosixFileSystem(), str(node.parent / "taken")))
    Path(taken.path).rename(path)


def test_a_snapshot_of_another_cluster_is_damage(run: Run, node: Path, snapshot: Path) -> None:
    with closing(sqlite3.connect(node / "metadata.db", isolation_level=None)) as connection:
        connection.execute("UPDATE applied SET cluster_id = 'another'")
        seal(connection)
        snapshot.unlink()
        take_snapshot(node / "metadata.db", SnapshotStore(PosixFileSystem(), str(node / "snapshots")))
        connection.execute("UPDATE applied SET cluster_id = ?", (CLUSTER_ID,))
        seal(connection)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {name_of_snapshot(snapshot): "damaged"})
    assert rows[name_of_snapshot(snapshot)]["Reason"] == "it is of cluster another"
    assert "deletes this one" in rows[name_of_snapshot(snapshot)]["NextStart"]


def test_a_new_database_begins_with_a_snapshot_unless_they_are_not_believed(
    run: Run, node: Path, snapshot: Path
) -> None:
    make_it_of_another_epoch(node / "metadata.db")
    assert verify(run, node)[1]["metadata.db"]["NextStart"] == (
        "sets it aside and rebuilds it from the newest snapshot that is whole, then the log"
    )
    with closing(sqlite3.connect(node / "metadata.db", isolation_level=None)) as connection:
        connection.execute("UPDATE applied SET diverged = 'it differs'")
    assert verify(run, node)[1]["metadata.db"]["NextStart"] == (
        "deletes the snapshots, sets it aside and rebuilds it from the log"
    )
    for path in node.glob("metadata.db*"):
        path.unlink()
    assert verify(run, node)[1]["metadata.db"]["NextStart"] == (
        "makes it from the newest snapshot that is whole, then the log"
    )


def test_a_snapshot_that_may_not_be_read_is_one_line(
    run: Run, node: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("kraftlog.offline.snapshot_files.os.open", forbidden)
    assert is_refused(run("verify", node), snapshot)


# --- what is not a node's directory -----------------------------------------------------------------------------------


def is_refused(said: Finished, path: Path) -> bool:
    return said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(path))


def test_what_is_no_nodes_directory_is_one_line(run: Run, tmp_path: Path, node: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path, node / "meta.properties"):
        assert is_refused(run("verify", path), path)
    assert run("verify").code == run("verify", node, "--output", "yaml").code == run("verify", "").code == 2


@pytest.mark.parametrize("name", ["meta.properties", "quorum-state-0", "log/00000000000000000013.log", "metadata.db"])
def test_a_file_that_may_not_be_read_is_one_line(
    run: Run, node: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden() -> io.BytesIO:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(node / name))

    opening(monkeypatch, node / name, forbidden)
    assert is_refused(run("verify", node), node / name)


@pytest.mark.parametrize("has_database", [True, False])
def test_a_log_that_is_gone_is_missed_by_the_quorum_state(run: Run, node: Path, has_database: bool) -> None:
    for segment in segments(node):
        segment.unlink()
    if not has_database:
        for path in node.glob("metadata.db*"):
            path.unlink()
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"log": "damaged"})
    assert "recovers the rest from the other voters; a sole voter does not start" in rows["log"]["NextStart"]


def test_a_log_that_recovers_to_an_end_that_nobody_knows(run: Run, node: Path) -> None:
    recovering = RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(1), "everything was lost")
    (node / "log" / RECOVERING_NAME).write_bytes(encode_recovering(recovering))
    code, rows = verify(run, node)
    assert code == 1
    assert rows[f"log/{RECOVERING_NAME}"]["Found"] == "all that the leader has must be fetched again"


def test_rows_that_rotted_are_damage(run: Run, node: Path) -> None:
    with closing(sqlite3.connect(node / "metadata.db", isolation_level=None)) as connection:
        connection.execute("UPDATE topics SET name = name || 'x'")
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"metadata.db": "damaged"})
    assert "table topics: its rows do not add up" in rows["metadata.db"]["Reason"]


def test_rows_that_the_log_does_not_say_are_damage_though_they_add_up(run: Run, node: Path) -> None:
    with closing(sqlite3.connect(node / "metadata.db", isolation_level=None)) as connection:
        connection.execute("UPDATE topics SET name = name || 'x'")
        seal(connection)
    code, rows = verify(run, node)
    assert (code, not_sound(rows)) == (1, {"metadata.db": "damaged"})
    assert rows["metadata.db"]["Reason"] == "its rows differ from those of the replayed log, in topics"
