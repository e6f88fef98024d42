"""`kraftlog restore`: what a crash, an interruption or a disk that fails leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import CorruptSnapshot, DirectoryError, ErrorCode, FlushFailed, StorageError
from kraftbase.files.files import join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import NodeId
from kraftbase.uuids import random_uuid
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.offline import restore
from kraftlog.offline.restore import EPOCH_JUMP, restore_cluster, restore_directory, usable_snapshot
from raft.core.election_state import ElectionState
from raft.storage.directory import DataDirectory, DirectoryIdentity
from raft.storage.log_start_file import write_log_start
from raft.storage.quorum_state import QuorumStateStore
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from tests.kraftlog.command_line import Run
from tests.kraftlog.node_directories import contents, flip
from tests.kraftlog.offline.restore.builders import FILES, NEW_ID
from tests.raft.storage.crash_points import stop_everywhere
from tests.snapshot.builders import an_id


@pytest.fixture
def source(snapshot: Path) -> Iterator[SnapshotReader]:
    with usable_snapshot(snapshot) as (reader, _):
        yield reader


def test_a_crash_leaves_all_of_a_directory_or_one_that_does_not_start(source: SnapshotReader) -> None:
    identity = DirectoryIdentity(cluster_id=NEW_ID, node_id=NodeId(1), directory_id=random_uuid())
    new_id = an_id(30, 3 + EPOCH_JUMP)
    left = {"nothing": 0, "half": 0, "all": 0}

    def begin(files: MemoryFileSystem) -> list[bool]:
        files.make_directories("data")
        return []

    def story(files: MemoryFileSystem, done: list[bool]) -> None:
        restore_directory(files, "data/node-1", source, identity)
        done.append(True)

    def verify(files: MemoryFileSystem, done: list[bool]) -> None:
        try:
            DataDirectory.open(files, "data/node-1").close()
        except DirectoryError as error:
            assert "is not formatted" in str(error)
            assert not done
            left[_begun_again(files, identity, source)] += 1
            return
        left["all"] += 1
        snapshots = SnapshotStore(files, "data/node-1/snapshots")
        assert snapshots.ids() == (new_id,)
        with snapshots.open_whole(new_id) as reader:
            assert reader.header.cluster_id == NEW_ID
        with closing(QuorumStateStore(files, "data/node-1")) as quorum_state:
            assert quorum_state.load() == ElectionState(epoch=new_id.epoch)
        expected = MemoryFileSystem()
        expected.make_directories("log")
        write_log_start(expected, "log", new_id)
        assert files.list_directory("data/node-1/log") == expected.list_directory("log")
        for name in expected.list_directory("log"):
            assert read_whole(files, join("data/node-1/log", name)) == read_whole(expected, join("log", name))

    steps = stop_everywhere(begin, story, verify)
    assert steps > 20
    assert all(left.values()), left


def _begun_again(files: MemoryFileSystem, identity: DirectoryIdentity, source: SnapshotReader) -> str:
    """To format it, or restore into it, either makes it whole or is refused."""
    try:
        restore_directory(files, "data/node-1", source, identity)
    except DirectoryError as error:
        assert "the remains of an interrupted restore may be removed" in str(error)
    else:
        DataDirectory.open(files, "data/node-1").close()
        return "nothing"
    with pytest.raises(DirectoryError, match=r"not formatted,? but"):
        DataDirectory.format(files, "data/node-1", cluster_id=NEW_ID, node_id=NodeId(1))
    return "half"


@pytest.mark.parametrize("last", range(7))
def test_a_local_cluster_that_is_half_made_is_not_started(
    snapshot: Path, work: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Interrupted before the first node, between nodes, between configuration files, and before the last file."""
    path, steps = work / "cluster", 0

    def interrupting(function):
        def step(*arguments: object, **named: object):
            nonlocal steps
            if steps == last:
                raise KeyboardInterrupt
            steps += 1
            return function(*arguments, **named)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(restore, "restore_directory", interrupting(restore_directory))
        patch.setattr(restore, "write_new_file", _without_identities(interrupting(restore.write_new_file)))
        with pytest.raises(KeyboardInterrupt):
            restore_cluster(snapshot, path, voters=3)
    if last == 0:
        assert not path.exists()
        return
    before = contents(path)
    for again in (lambda: open_or_create(path), lambda: restore_cluster(snapshot, path)):
        with pytest.raises(DirectoryError, match="name an empty"):
            again()
    assert contents(path) == before


def _without_identities(step):
    """Only the files that `restore_cluster` writes itself are steps of their own."""

    def write(files, path: str, data: bytes) -> None:
        if path.endswith(".toml"):
            step(files, path, data)
        else:
            real(files, path, data)

    real = restore.write_new_file
    return write


def test_nothing_is_left_elsewhere(snapshot: Path, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    restore_cluster(snapshot, work / "one", voters=1)
    flip(snapshot, -1)
    with pytest.raises(CorruptSnapshot):
        restore_cluster(snapshot, work / "two", voters=1)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in work.iterdir()] == ["one"]


@pytest.mark.parametrize(
    "error", [FlushFailed("fsync of the directory failed"), StorageError("cannot write: no space left")]
)
def test_a_disk_that_fails_is_one_line(
    run: Run, snapshot: Path, config: Path, work: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(restore, "write_log_start", fail)
        said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    with pytest.raises(DirectoryError, match="is not formatted"):
        DataDirectory.open(FILES, str(work / "node-1"))
    said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "it holds log, snapshots; name an empty directory")
