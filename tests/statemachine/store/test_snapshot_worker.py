"""Taking a snapshot of a database that is still being written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.types import Epoch, Offset
from raft.core.types import OffsetAndEpoch
from snapshot.store import SnapshotStore
from statemachine.store import snapshot_worker
from statemachine.store.image import write_image
from statemachine.store.snapshot_worker import decode_taken, encode_taken, take_snapshot
from statemachine.store.store import MetadataStore
from tests.paths import ROOT
from tests.snapshot.builders import overwrite
from tests.statemachine.builders import CLUSTER_ID, batch, no_op, topic
from tests.statemachine.snapshots import content, filled, load


@pytest.fixture
def store(database: Path) -> Iterator[MetadataStore]:
    with closing(filled(database)) as store:
        yield store


def advance(store: MetadataStore) -> None:
    store.apply([batch(store.applied_end_offset, [no_op()])])


def test_sn32_its_id_is_the_end_of_what_is_applied(store: MetadataStore, snapshots: SnapshotStore) -> None:
    taken = take_snapshot(store.path, snapshots)
    assert taken.snapshot_id == OffsetAndEpoch(epoch=Epoch(1), offset=store.applied_end_offset)
    assert taken.is_new
    assert Path(taken.path).stat().st_size == taken.size_bytes
    assert snapshots.ids() == (taken.snapshot_id,)
    assert decode_taken(encode_taken(taken)) == taken


def test_what_is_committed_meanwhile_is_not_in_it(
    store: MetadataStore, snapshots: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(store.reader)

    def commit_then_write(*arguments: object) -> None:
        store.apply([batch(store.applied_end_offset, [topic("meanwhile", 77)])])
        write_image(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_worker, "write_image", commit_then_write)
    taken = take_snapshot(store.path, snapshots)
    assert content(store.reader) != before
    with (
        snapshots.open(taken.snapshot_id) as reader,
        closing(MetadataStore.open(tmp_path / "restored.db", CLUSTER_ID)) as other,
    ):
        load(other, reader)
        assert content(other.reader) == before


def test_while_it_is_written_the_write_ahead_log_starts_over(
    store: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def start_over_then_write(*arguments: object) -> None:
        store.apply([batch(store.applied_end_offset, [topic("meanwhile", 77)])])
        assert store.write_ahead_log.start_over()
        sizes.append(store.write_ahead_log.size_bytes)
        write_image(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_worker, "write_image", start_over_then_write)
    take_snapshot(store.path, snapshots)
    assert sizes == [0]


def test_one_that_is_there_is_not_taken_again(store: MetadataStore, snapshots: SnapshotStore) -> None:
    first = take_snapshot(store.path, snapshots)
    modified = Path(first.path).stat().st_mtime_ns
    assert take_snapshot(store.path, snapshots) == first._replace(is_new=False)
    assert Path(first.path).stat().st_mtime_ns == modified


def test_one_that_is_damaged_is_taken_again(store: MetadataStore, snapshots: SnapshotStore) -> None:
    first = take_snapshot(store.path, snapshots)
    whole = Path(first.path).read_bytes()
    overwrite(Path(first.path), whole[:-1])
    assert take_snapshot(store.path, snapshots) == first
    assert Path(first.path).read_bytes() == whole


def test_older_ones_stay_until_the_node_deletes_them(store: MetadataStore, snapshots: SnapshotStore) -> None:
    taken = []
    for _ in range(6):
        advance(store)
        taken.append(take_snapshot(store.path, snapshots))
    assert snapshots.ids() == tuple(each.snapshot_id for each in taken)
    assert sorted(path.name for path in Path(snapshots.directory).iterdir()) == [Path(each.path).name for each in taken]


def test_of_nothing_there_is_none(database: Path, snapshots: SnapshotStore) -> None:
    MetadataStore.open(database, CLUSTER_ID).close()
    with pytest.raises(StorageError, match="nothing is applied"):
        take_snapshot(database, snapshots)
    assert snapshots.ids() == ()


def test_without_room_there_is_none_and_nothing_is_left(
    store: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = take_snapshot(store.path, snapshots)
    advance(store)

    def no_room(*_: object) -> None:
        raise OutOfSpace("no room")

    monkeypatch.setattr(snapshot_worker, "write_image", no_room)
    with pytest.raises(OutOfSpace):
        take_snapshot(store.path, snapshots)
    assert [path.name for path in Path(snapshots.directory).iterdir()] == [Path(first.path).name]


def run(database: Path, directory: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "statemachine.store.snapshot_worker", str(database), directory, "0a1b"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )


def test_a_process_says_on_one_line_what_came_of_it(store: MetadataStore, snapshots: SnapshotStore) -> None:
    finished = run(store.path, snapshots.directory)
    assert (finished.returncode, finished.stderr) == (0, "")
    taken = decode_taken(finished.stdout)
    assert taken.snapshot_id.offset == store.applied_end_offset > Offset(0)
    with snapshots.open(taken.snapshot_id) as reader:
        reader.verify()


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    finished = run(tmp_path / "none.db", str(tmp_path / "snapshots"))
    assert (finished.returncode, finished.stdout) == (1, "")
    assert finished.stderr.count("\n") == 1
    assert "cannot read the metadata database" in finished.stderr
