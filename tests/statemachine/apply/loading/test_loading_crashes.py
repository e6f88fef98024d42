"""A crash while a snapshot replaces the database leaves the old database or the new one, with and without readers."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kraftbase.types import Offset
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.store import store as store_module
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.store import MetadataStore
from statemachine.tables import database as schema
from statemachine.tables.database import install, open_reader
from tests.paths import ROOT
from tests.statemachine.apply.loading.builders import LOG, applied_there, names, newest
from tests.statemachine.builders import batch, no_op, topic
from tests.statemachine.snapshots import content, content_of, filled, load


class Moments:
    """Copies of a directory as a crash would leave it, before and after each noted event."""

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
    """While another connection has the old database open, SQLite leaves its write-ahead log next to it: no part of that
    log may get into the new database.
    """
    moments = Moments(old.parent, tmp_path / "moments")
    store = filled(old, LOG[:1])
    states = [content(store.reader)]
    store.write_ahead_log.start_over()
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
    """As after a kill of a node that was writing, and whose files were never opened again."""
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
    """And no write-ahead log of the old database may reappear once the new one has the name."""
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
    """Not every version of SQLite notices, when the last connection is closed, that the log is another's."""
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        connections = (store.reader, store._queries._connection, store._tables.connection)

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
from statemachine.tables.database import open_reader
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
    """Such as the process that takes snapshots. SQLite removes write-ahead logs by their names."""
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
