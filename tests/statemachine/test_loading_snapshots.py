"""A snapshot in the place of the database: what the store puts there, and what a crash in the middle leaves."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raft.core.errors import CorruptSnapshot, OutOfSpace, StorageError
from raft.core.types import Offset, StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine import schema
from statemachine import store as store_module
from statemachine.image import load_image
from statemachine.schema import install, open_database, open_reader
from statemachine.store import MetadataStore
from statemachine.tables import MetadataTables, StoreUnavailable
from tests.statemachine.builders import CLUSTER_ID, batch, config, log_of, no_op, topic
from tests.statemachine.snapshots import RUNS, content, content_of, filled, load, posix_snapshots, snapshot_of
from tests.statemachine.waiting import turns, until

ROOT = Path(__file__).resolve().parents[2]

LOG = log_of(RUNS)


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    return posix_snapshots(tmp_path / "snapshots")


@pytest.fixture
def whole(snapshots: SnapshotStore, tmp_path: Path) -> SnapshotStore:
    """One snapshot, after all of RUNS, of `source.db`."""
    with closing(filled(tmp_path / "source.db")) as store:
        snapshot_of(store, snapshots)
    return snapshots


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Where a node's database is: in a directory of its own."""
    (tmp_path / "node").mkdir()
    return tmp_path / "node" / "metadata.db"


def newest(snapshots: SnapshotStore) -> SnapshotReader:
    (snapshot_id,) = snapshots.ids()
    return snapshots.open(snapshot_id)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


# --- what is there afterwards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [[], RUNS[:1], [[config("gone", "x", "1"), no_op()]]], ids=["new", "behind", "other"])
def test_the_store_holds_what_the_snapshot_does_and_nothing_else(
    whole: SnapshotStore, old: Path, tmp_path: Path, runs: list[Any]
) -> None:
    with closing(MetadataStore.open(old, CLUSTER_ID)) as store, newest(whole) as reader:
        store.apply(log_of(runs))
        load(store, reader)
        assert store.applied_end_offset == reader.snapshot_id.offset
        assert store.applied_bytes == 0  # nothing was applied since
        assert content(store.reader) == content_of(tmp_path / "source.db")
    assert content_of(old) == content_of(tmp_path / "source.db")
    assert names(old) == ["metadata.db"]


def test_the_store_goes_on_with_the_old_one_until_the_new_one_is_used(whole: SnapshotStore, old: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        before = content(store.reader)
        store.load(reader)
        assert content(store.reader) == before
        store.apply(LOG[1:2])
        assert store.applied_end_offset == LOG[1].end_offset
        asyncio.run(store.use_loaded())
        assert store.applied_end_offset == LOG[-1].end_offset


def test_what_comes_next_is_applied_durably(whole: SnapshotStore, old: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        load(store, reader)
        assert store._tables.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._tables.connection.execute("PRAGMA synchronous").fetchone() == (1,)
        store.apply([batch(store.applied_end_offset, [topic("later", 8)])])
        after = content(store.reader)
        store.checkpoint()
        assert content(store.reader) == after
    assert content_of(old) == after


def test_it_can_be_done_again(whole: SnapshotStore, old: Path, tmp_path: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        for _ in range(3):
            load(store, reader)
            assert content(store.reader) == content_of(tmp_path / "source.db")


def test_only_its_owner_may_read_a_database_that_was_loaded(whole: SnapshotStore, old: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        load(store, reader)
        store.apply([batch(store.applied_end_offset, [no_op()])])
        assert {path.name: path.stat().st_mode & 0o777 for path in old.parent.iterdir()} == dict.fromkeys(
            ("metadata.db", "metadata.db-wal", "metadata.db-shm"), 0o600
        )


def test_a_loaded_database_is_not_read_through_a_second_time(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, bool]] = []

    def note(path: Path, cluster_id: str, *, is_known_sound: bool = False) -> Any:
        opened.append((path.name, is_known_sound))
        return open_database(path, cluster_id, is_known_sound=is_known_sound)

    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        monkeypatch.setattr(store_module, "open_database", note)
        load(store, reader)
    assert opened == [("metadata.db.new", False), ("metadata.db", True)]


def test_what_is_known_to_be_sound_must_still_be_ours(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE holiday_pictures (name TEXT)")
    with pytest.raises(schema.UnusableDatabase, match="another program"):
        schema.open_database(foreign, CLUSTER_ID, is_known_sound=True)


def test_the_state_digest_of_a_loaded_store_is_that_of_the_one_it_was_taken_of(
    snapshots: SnapshotStore, tmp_path: Path
) -> None:
    with closing(filled(tmp_path / "a.db", [batch(0, [no_op()] * 1_500)])) as store:
        assert store.state_digest is not None
        snapshot_of(store, snapshots)
        with closing(MetadataStore.open(tmp_path / "b.db", CLUSTER_ID)) as other, newest(snapshots) as reader:
            load(other, reader)
            assert other.state_digest == store.state_digest
            assert other.take_state_digests() == []  # it did not come to it itself
        with closing(MetadataStore.open(tmp_path / "b.db", CLUSTER_ID)) as other:
            assert other.state_digest == store.state_digest


def test_a_snapshot_taken_right_after_is_the_same_bytes(snapshots: SnapshotStore, tmp_path: Path) -> None:
    runs = [*RUNS, [no_op()] * 1_500]
    with closing(filled(tmp_path / "a.db", log_of(runs, epoch=7))) as store:
        assert isinstance(store.state_digest, StateDigest)
        snapshot_of(store, snapshots)
    again = posix_snapshots(tmp_path / "again")
    with closing(MetadataStore.open(tmp_path / "b.db", CLUSTER_ID)) as other, newest(snapshots) as reader:
        load(other, reader)
        snapshot_of(other, again)
    assert again.ids() == snapshots.ids()
    (point,) = again.ids()
    assert Path(again.path_of(point)).read_bytes() == Path(snapshots.path_of(point)).read_bytes()


def test_snapshots_of_a_database_that_differed_from_the_quorums_are_forgotten_first(
    whole: SnapshotStore, old: Path
) -> None:
    with closing(filled(old)) as store:
        store.mark_diverged("it differs")
    calls: list[str] = []

    def forget() -> None:
        assert not (old.parent / "metadata.db.damaged").exists()  # a crash in between must not bring them back
        calls.append("forgotten")
        whole.delete_all()

    with closing(MetadataStore.open(old, CLUSTER_ID, forget_snapshots=forget)) as store:
        assert store.applied_end_offset == 0
    assert calls == ["forgotten"]
    assert whole.ids() == ()


def test_snapshots_of_a_database_that_is_merely_damaged_are_kept(whole: SnapshotStore, old: Path) -> None:
    old.write_bytes(b"no database")
    with (
        closing(MetadataStore.open(old, CLUSTER_ID, forget_snapshots=whole.delete_all)) as store,
        newest(whole) as reader,
    ):
        load(store, reader)
        assert store.applied_end_offset == LOG[-1].end_offset


# --- what does not work -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["middle", "end"])
def test_a_damaged_snapshot_leaves_the_store_as_it_was(whole: SnapshotStore, old: Path, part: str) -> None:
    path = Path(whole.path_of(whole.ids()[0]))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if part == "middle" else -1] ^= 1
    path.write_bytes(data)
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        before = content(store.reader), names(old)
        with pytest.raises(CorruptSnapshot):
            store.load(reader)
        assert (content(store.reader), names(old)) == before
        store.apply(LOG)
        assert store.applied_end_offset == LOG[-1].end_offset


def test_what_an_earlier_attempt_has_left_is_in_nobodys_way(whole: SnapshotStore, old: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        with closing(filled(old.with_name("metadata.db.new"), LOG[:1])):
            shutil.copytree(old.parent, old.parent.parent / "copy")
        for left in (old.parent.parent / "copy").glob("metadata.db.new*"):
            shutil.copy(left, old.parent / left.name)
        assert "metadata.db.new-wal" in names(old)
        store.load(reader)
        asyncio.run(store.use_loaded())
        assert store.applied_end_offset == LOG[-1].end_offset
    assert names(old) == ["metadata.db"]


def test_a_start_removes_what_a_crash_has_left(old: Path) -> None:
    filled(old, LOG[:1]).close()
    for suffix in ("", "-wal", "-shm", "-journal"):
        old.with_name("metadata.db.new" + suffix).write_bytes(b"half of something")
    with closing(MetadataStore.open(old, CLUSTER_ID)) as store:
        assert store.applied_end_offset == LOG[0].end_offset
    assert names(old) == ["metadata.db"]


class Full(sqlite3.Connection):
    """A connection to a disk that is full when the statement of a certain number comes, and only then."""

    statements = 0
    at = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*arguments)

    @classmethod
    def _count(cls) -> None:
        cls.statements += 1
        if cls.statements == cls.at:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


def test_without_room_at_any_moment_it_is_said_to_come_later_and_nothing_is_left(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    failures = 0
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        before = content(store.reader), names(old)
        while True:
            Full.statements, Full.at = 0, failures + 1
            with monkeypatch.context() as patches:
                patches.setattr(sqlite3, "connect", partial(connect, factory=Full))
                try:
                    store.load(reader)
                except (StoreUnavailable, OutOfSpace) as error:
                    assert "full" in str(error)
                else:
                    break
            assert (content(store.reader), names(old)) == before
            failures += 1
        assert failures > 20
        asyncio.run(store.use_loaded())
        assert store.applied_end_offset == LOG[-1].end_offset


@pytest.mark.parametrize("pages", [*range(1, 12), 20, 30])
def test_a_database_that_cannot_grow_is_no_room(
    snapshots: SnapshotStore, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    records = [config(f"topic-{number}", "retention.ms", "x" * 60) for number in range(2_000)]
    with closing(filled(tmp_path / "large.db", [batch(0, records)])) as store:
        snapshot_of(store, snapshots)
    connect = sqlite3.connect

    def small(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with closing(filled(old, LOG[:1])) as store, newest(snapshots) as reader:
        before = names(old)
        with monkeypatch.context() as patches:
            patches.setattr(sqlite3, "connect", small)
            with pytest.raises((StoreUnavailable, OutOfSpace)):
                store.load(reader)
        assert names(old) == before
        load(store, reader)


def test_without_room_for_the_files_name_it_is_no_room(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader, monkeypatch.context() as patches:
        patches.setattr(Path, "touch", no_room)
        with pytest.raises(OutOfSpace, match="No space left"):
            store.load(reader)


def test_another_error_of_the_disk_is_a_storage_error(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
        raise error

    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        before = names(old)
        monkeypatch.setattr(store_module, "load_image", broken)
        with pytest.raises(StorageError, match="I/O error") as raised:
            store.load(reader)
        assert not isinstance(raised.value, OutOfSpace)
        assert names(old) == before


# --- queries meanwhile ------------------------------------------------------------------------------------------------


def applied_there(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT end_offset FROM applied").fetchone()[0])


async def test_queries_that_run_see_the_old_one_to_their_end_and_those_that_come_see_the_new_one(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, running = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        running.set()
        assert goes_on.wait(20)
        return applied_there(connection)

    def slow_install(*paths: Path) -> None:
        assert not threading.Event().wait(0.1)  # a query that were not held would come now
        install(*paths)

    monkeypatch.setattr(store_module, "install", slow_install)
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        first = asyncio.create_task(store.query(slow))
        await until(running.is_set)
        using = asyncio.create_task(store.use_loaded())
        await turns()
        second = asyncio.create_task(store.query(applied_there))
        await turns()
        assert not using.done()
        assert applied_there(store.reader) == LOG[0].end_offset  # reads on the loop go on, too
        goes_on.set()
        assert await first == LOG[0].end_offset
        assert await second == LOG[-1].end_offset
        await using
        assert applied_there(store.reader) == LOG[-1].end_offset


async def test_who_gives_up_waiting_for_a_query_has_changed_nothing(whole: SnapshotStore, old: Path) -> None:
    goes_on, running = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        running.set()
        assert goes_on.wait(20)
        return applied_there(connection)

    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        first = asyncio.create_task(store.query(slow))
        await until(running.is_set)
        using = asyncio.create_task(store.use_loaded())
        await turns()
        using.cancel()
        await turns()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await using
        async with asyncio.timeout(20):
            assert await first == await store.query(applied_there) == LOG[0].end_offset
        await store.use_loaded()
        assert applied_there(store.reader) == LOG[-1].end_offset


async def test_who_may_not_any_more_when_the_queries_are_done_has_changed_nothing(
    whole: SnapshotStore, old: Path
) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        await store.use_loaded(unless=lambda: True)
        assert applied_there(store.reader) == await store.query(applied_there) == LOG[0].end_offset
        store.apply(LOG)


async def test_a_failure_holds_no_query_for_ever(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StorageError("no such luck")

    store = filled(old, LOG[:1])
    with newest(whole) as reader:
        store.load(reader)
    monkeypatch.setattr(store_module, "install", broken)
    with pytest.raises(StorageError, match="no such luck"):
        await store.use_loaded()
    async with asyncio.timeout(20):
        await asyncio.to_thread(store.close)
    assert content_of(old)["applied"][0][2] == LOG[0].end_offset


# --- crashes ----------------------------------------------------------------------------------------------------------


class Moments:
    """Copies of a directory as a crash would leave it, before and after whatever is noted."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target
        self.copies: list[tuple[str, Path]] = []
        self._is_copying = False

    def copy(self, at: str) -> None:
        if self._is_copying:
            return
        self._is_copying = True
        copy = self.target / str(len(self.copies))
        shutil.copytree(self.source, copy)
        self.copies.append((at, copy))
        self._is_copying = False

    def noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.copy(f"before {function.__name__}")
            try:
                return function(*arguments, **options)
            finally:
                self.copy(f"after {function.__name__}")

        return call

    def note(self, patches: pytest.MonkeyPatch) -> None:
        """Everything that changes a file or its name."""
        for owner, name in (
            (schema, "sync"),
            (store_module, "sync"),
            (store_module, "open_database"),
            (store_module, "open_reader"),
            (MetadataStore, "_close_connections"),
            (MetadataTables, "restore"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "touch"),
        ):
            patches.setattr(owner, name, self.noted(getattr(owner, name)))

        def load_traced(reader: SnapshotReader, tables: Any) -> None:
            tables.connection.set_trace_callback(lambda statement: self.copy(f"before {statement}"))
            load_image(reader, tables)
            tables.connection.set_trace_callback(None)

        patches.setattr(store_module, "load_image", load_traced)


@pytest.mark.parametrize("is_read_by_others", [False, True], ids=["alone", "while others read"])
def test_a_crash_at_any_moment_leaves_the_old_database_or_the_new_one(
    whole: SnapshotStore, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read_by_others: bool
) -> None:
    """While somebody else has the old one open, SQLite leaves its write-ahead log beside it: no part of that may come
    into the new one."""
    moments = Moments(old.parent, tmp_path / "moments")
    store = filled(old, LOG[:1])
    states = [content(store.reader)]
    store.checkpoint()
    store.apply(LOG[1:2])  # it is in the write-ahead log only
    states.append(content(store.reader))
    with closing(store), closing(open_reader(old)) as other, newest(whole) as reader:
        if is_read_by_others:
            other.execute("BEGIN")
            assert applied_there(other) == LOG[1].end_offset
        else:
            other.close()
        with monkeypatch.context() as patches:
            moments.note(patches)
            load(store, reader)
        states.append(content(store.reader))
        if is_read_by_others:
            assert applied_there(other) == LOG[1].end_offset
    assert len({str(state) for state in states}) == 3
    found = [(at, states.index(content_of(copy / "metadata.db"))) for at, copy in moments.copies]
    order = list(dict.fromkeys(state for _, state in found))
    assert order == ([1, 0, 2] if is_read_by_others else [1, 2])  # and never back
    assert [state for _, state in found] == sorted((state for _, state in found), key=order.index)
    assert any("COMMIT" in at for at, _ in found)
    for _, copy in moments.copies:
        assert not list(copy.glob("*.new*"))
        assert not list(copy.glob("*.damaged*"))


def test_a_write_ahead_log_that_was_left_beside_the_old_one_is_not_applied_to_the_new_one(
    whole: SnapshotStore, old: Path, tmp_path: Path
) -> None:
    """As after a crash of the node that was killed while it wrote, whose files were never opened again."""
    with closing(filled(old, LOG[:1])):
        shutil.copytree(old.parent, tmp_path / "left")
    left = tmp_path / "left" / "metadata.db"
    assert names(left) == ["metadata.db", "metadata.db-shm", "metadata.db-wal"]
    shutil.copy(tmp_path / "source.db", tmp_path / "left" / "metadata.db.new")
    schema.install(left.with_name("metadata.db.new"), left)
    assert names(left) == ["metadata.db"]
    assert content_of(left) == content_of(tmp_path / "source.db")


def test_the_new_one_is_durable_before_it_has_the_name_and_the_name_before_it_is_used(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no write-ahead log of the old one may come back once the new one has the name."""
    deeds: list[str] = []
    for suffix in ("", "-wal", "-shm", ".new"):
        old.with_name(old.name + suffix).touch()
    sync, unlink, replace = schema.sync, Path.unlink, Path.replace

    def noted_sync(path: Path) -> None:
        deeds.append(f"sync {path.name}")
        sync(path)

    def noted_unlink(path: Path, missing_ok: bool = False) -> None:
        deeds.append(f"unlink {path.name}")
        unlink(path, missing_ok)

    def noted_replace(path: Path, target: Path) -> Path:
        deeds.append(f"replace {target.name}")
        return replace(path, target)

    with monkeypatch.context() as patches:
        patches.setattr(schema, "sync", noted_sync)
        patches.setattr(Path, "unlink", noted_unlink)
        patches.setattr(Path, "replace", noted_replace)
        schema.install(old.with_name("metadata.db.new"), old)
    assert deeds == [
        "sync metadata.db.new",
        "unlink metadata.db-wal",
        "unlink metadata.db-shm",
        "sync node",
        "replace metadata.db",
        "sync node",
    ]


def test_the_old_one_is_closed_before_the_new_one_has_its_name(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every SQLite sees, when the last connection is closed, that the write-ahead log is another one's by then."""
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        connections = (store.reader, *(lane._connection for lane in store._lanes), store._tables.connection)

        def checked_install(*paths: Path) -> None:
            for connection in connections:
                with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                    connection.execute("SELECT 1")
            install(*paths)

        monkeypatch.setattr(store_module, "install", checked_install)
        load(store, reader)


def test_what_was_loaded_is_on_the_disk_when_it_is_said_to_be(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits for the disk, so that the event loop, which does it again, finds nothing to wait for."""
    synced: list[str] = []
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        monkeypatch.setattr(store_module, "sync", lambda path: synced.append(path.name))
        store.load(reader)
    assert synced == ["metadata.db.new"]


CHILD = """
import sys
from pathlib import Path
from statemachine.schema import open_reader
connection = open_reader(Path(sys.argv[1]))
connection.execute("BEGIN")
for _ in range(2):
    print(connection.execute("SELECT end_offset FROM applied").fetchone()[0], flush=True)
    sys.stdin.readline()
connection.close()
print("closed", flush=True)
"""


def test_a_process_that_reads_the_old_one_goes_on_and_takes_nothing_from_the_new_one(
    whole: SnapshotStore, old: Path, tmp_path: Path
) -> None:
    """Such as the one that takes snapshots. SQLite removes write-ahead logs by their names."""
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(old)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert child.stdin is not None
        assert child.stdout is not None
        with child:
            assert child.stdout.readline() == f"{LOG[0].end_offset}\n"
            load(store, reader)
            later: list[CommittedBatch] = [batch(store.applied_end_offset, [topic("later", 8)])]
            store.apply(later)
            after = content(store.reader)
            child.stdin.write("go on\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"{LOG[0].end_offset}\n"
            child.stdin.write("go on\n")
            child.stdin.flush()
            assert child.stdout.readline() == "closed\n"
        assert child.returncode == 0
        shutil.copytree(old.parent, tmp_path / "copy")
        assert content(store.reader) == content_of(tmp_path / "copy" / "metadata.db") == after
        store.apply([batch(Offset(later[0].end_offset), [no_op()])])
        assert store.applied_end_offset == later[0].end_offset + 1
