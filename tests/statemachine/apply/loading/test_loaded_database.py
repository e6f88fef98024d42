"""A snapshot in place of the database: the content of the store then, and what happens to the snapshots."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kraftbase.runtime import awaited
from raft.core.types import StateDigest
from snapshot.store import SnapshotStore
from statemachine.store import store as store_module
from statemachine.store.store import MetadataStore
from statemachine.tables import database as schema
from statemachine.tables.database import open_database
from tests.statemachine.apply.loading.builders import LOG, names, newest
from tests.statemachine.builders import CLUSTER_ID, batch, config, log_of, no_op, topic
from tests.statemachine.snapshots import RUNS, content, content_of, filled, load, posix_snapshots, snapshot_of


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
        asyncio.run(awaited(store.use_loaded))
        assert store.applied_end_offset == LOG[-1].end_offset


def test_what_comes_next_is_applied_durably(whole: SnapshotStore, old: Path) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        load(store, reader)
        assert store._tables.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._tables.connection.execute("PRAGMA synchronous").fetchone() == (1,)
        store.apply([batch(store.applied_end_offset, [topic("later", 8)])])
        after = content(store.reader)
        store.write_ahead_log.start_over()
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
            assert other.take_state_digests() == []  # it did not compute it itself
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
