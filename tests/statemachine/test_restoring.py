"""A database made anew from a snapshot: from which one, and what a crash in the middle leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from raft.core.epochs import EpochCache
from raft.core.types import Epoch, Offset, StateDigest
from snapshot.store import SnapshotStore
from statemachine import schema
from statemachine.restoring import forget_all, restore_if_empty
from statemachine.store import MetadataStore
from tests.statemachine.builders import CLUSTER_ID, log_of
from tests.statemachine.snapshots import RUNS, content, content_of, filled, posix_snapshots, snapshot_of


class FakeLog:
    """A log that ends somewhere, all of one epoch."""

    def __init__(self, log_end_offset: int = 1_000, epoch: int = 1) -> None:
        self.log_end_offset = Offset(log_end_offset)
        self.epochs = EpochCache()
        self.epochs.assign(Epoch(epoch), Offset(0))


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    return posix_snapshots(tmp_path / "snapshots")


@pytest.fixture
def two(snapshots: SnapshotStore, tmp_path: Path) -> SnapshotStore:
    """Snapshots after two runs and after all of RUNS."""
    for end in (2, len(RUNS)):
        with closing(filled(tmp_path / f"{end}.db", log_of(RUNS[:end]))) as store:
            snapshot_of(store, snapshots)
    return snapshots


def opened(path: Path) -> closing[MetadataStore]:
    return closing(MetadataStore.open(path, CLUSTER_ID))


def test_a_store_without_anything_gets_the_newest_snapshot(two: SnapshotStore, tmp_path: Path) -> None:
    with opened(tmp_path / "metadata.db") as store:
        assert restore_if_empty(store, two, FakeLog()) == two.latest()
    assert content_of(tmp_path / "metadata.db") == content_of(tmp_path / f"{len(RUNS)}.db")


def test_a_store_with_something_goes_on_from_there(two: SnapshotStore, tmp_path: Path) -> None:
    with closing(filled(tmp_path / "metadata.db", log_of(RUNS[:1]))) as store:
        before = content(store.reader)
        assert restore_if_empty(store, two, FakeLog()) is None
        assert content(store.reader) == before


def test_a_damaged_snapshot_is_deleted_and_the_one_before_it_taken(two: SnapshotStore, tmp_path: Path) -> None:
    older, newest = two.ids()
    path = Path(two.path_of(newest))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with opened(tmp_path / "metadata.db") as store:
        assert restore_if_empty(store, two, FakeLog()) == older
    assert two.ids() == (older,)
    assert content_of(tmp_path / "metadata.db") == content_of(tmp_path / "2.db")


@pytest.mark.parametrize("log", [FakeLog(log_end_offset=3), FakeLog(epoch=2)], ids=["short", "other"])
def test_snapshots_that_the_log_does_not_reach_are_left_alone(two: SnapshotStore, tmp_path: Path, log: FakeLog) -> None:
    before = two.ids()
    with opened(tmp_path / "metadata.db") as store:
        assert restore_if_empty(store, two, log) is None
        assert store.applied_end_offset == 0
    assert two.ids() == before


def test_without_snapshots_everything_comes_from_the_log(snapshots: SnapshotStore, tmp_path: Path) -> None:
    with opened(tmp_path / "metadata.db") as store:
        assert restore_if_empty(store, snapshots, FakeLog()) is None


def test_snapshots_of_a_database_that_differed_from_the_quorums_are_forgotten(
    two: SnapshotStore, tmp_path: Path
) -> None:
    path = tmp_path / "metadata.db"
    with closing(filled(path)) as store:
        store.mark_diverged("it differs")
    calls: list[str] = []

    def forget() -> None:
        assert not (tmp_path / "metadata.db.damaged").exists()  # a crash in between must not bring them back
        calls.append("forgotten")
        forget_all(two)

    with closing(MetadataStore.open(path, CLUSTER_ID, forget_snapshots=forget)) as store:
        assert store.applied_end_offset == 0
        assert restore_if_empty(store, two, FakeLog()) is None
    assert calls == ["forgotten"]
    assert two.ids() == ()


def test_snapshots_of_a_database_that_is_merely_damaged_are_kept(two: SnapshotStore, tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(b"no database")
    with closing(MetadataStore.open(path, CLUSTER_ID, forget_snapshots=lambda: forget_all(two))) as store:
        assert restore_if_empty(store, two, FakeLog()) == two.latest()


def moments_of(monkeypatch: pytest.MonkeyPatch, source: Path, target: Path) -> list[Path]:
    """Copy `source` before and after every change of a name and every sync, as a crash would leave it."""
    moments: list[Path] = []

    def copy() -> None:
        moments.append(target / str(len(moments)))
        shutil.copytree(source, moments[-1])

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            copy()
            try:
                return function(*arguments, **options)
            finally:
                copy()

        return call

    monkeypatch.setattr(schema, "_sync", noted(schema._sync))
    monkeypatch.setattr(Path, "replace", noted(Path.replace))
    monkeypatch.setattr(Path, "unlink", noted(Path.unlink))
    return moments


def test_a_crash_at_any_moment_leaves_the_old_database_or_the_new_one(
    two: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.mkdir()
    old = filled(node / "metadata.db", log_of(RUNS[:1]))
    before = content(old.reader)
    with closing(old), monkeypatch.context() as patches, two.open(two.ids()[-1]) as reader:
        moments = moments_of(patches, node, tmp_path / "moments")
        old.restore(reader)
        after = content(old.reader)
    assert before != after
    found = [content_of(moment / "metadata.db") for moment in moments]
    turning = found.index(after)
    assert found == [before] * turning + [after] * (len(found) - turning)
    assert 0 < turning < len(found) - 1
    for moment in moments:
        assert not (moment / "metadata.db.new").exists()


def test_the_state_digest_of_a_restored_store_is_that_of_the_one_it_was_taken_of(
    snapshots: SnapshotStore, tmp_path: Path
) -> None:
    with closing(filled(tmp_path / "a.db")) as store, opened(tmp_path / "b.db") as other:
        store._tables._state_digest = StateDigest(Offset(1), bytes(16))
        store._tables.connection.execute(
            "UPDATE applied SET state_digest_end_offset = 1, state_digest = ?", (bytes(16).hex(),)
        )
        snapshot_of(store, snapshots)
        restore_if_empty(other, snapshots, FakeLog())
        assert other.state_digest == StateDigest(Offset(1), bytes(16))
