"""A snapshot that cannot be loaded, or not now, leaves the store as it was, and no file next to it."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import CorruptSnapshot, OutOfSpace, StorageError
from kraftbase.runtime import awaited
from snapshot.store import SnapshotStore
from statemachine.store import store as store_module
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from tests.effort import some
from tests.snapshot.builders import overwrite
from tests.statemachine.apply.loading.builders import LOG, names, newest
from tests.statemachine.builders import CLUSTER_ID, batch, config
from tests.statemachine.snapshots import content, filled, load, snapshot_of


@pytest.mark.parametrize("part", ["middle", "end"])
def test_a_damaged_snapshot_leaves_the_store_as_it_was(whole: SnapshotStore, old: Path, part: str) -> None:
    path = Path(whole.path_of(whole.ids()[0]))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if part == "middle" else -1] ^= 1
    overwrite(path, data)
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
        asyncio.run(awaited(store.use_loaded))
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
    """A connection to a disk that is full at the statement with a certain number, and only then."""

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
        asyncio.run(awaited(store.use_loaded))
        assert store.applied_end_offset == LOG[-1].end_offset


@pytest.mark.parametrize("pages", [*some(range(1, 12), 4), 20])
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
