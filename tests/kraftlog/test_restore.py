"""`kraftlog restore`: the directories that it makes of a snapshot, what it refuses, and what an interruption leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kraftlog import restore
from kraftlog.cluster_directory import open_or_create
from kraftlog.config import render_config
from kraftlog.restore import EPOCH_JUMP, EPOCH_MAX, restore_cluster, restore_directory, usable_snapshot
from kraftlog.verification import verify_directory
from raft.core.election import ElectionState
from raft.core.errors import CorruptSnapshot, DirectoryError, ErrorCode, FlushFailed, StorageError
from raft.core.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raft.core.validation import EPOCH_JUMP_MAX
from raft.storage.batch import batch_body, encode_body
from raft.storage.directory import DataDirectory, DirectoryIdentity
from raft.storage.files import join
from raft.storage.identifiers import random_uuid, uuid_to_text
from raft.storage.log_start import write_log_start
from raft.storage.memory import MemoryFileSystem
from raft.storage.posix import PosixFileSystem
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import SegmentedLog
from snapshot.format import SnapshotHeader
from snapshot.names import snapshot_name
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.snapshotting import take_snapshot
from statemachine.store import MetadataStore
from tests.kraftlog.commands import Finished, Run
from tests.kraftlog.node_directories import CLUSTER_ID, contents, flip, make_node_directory
from tests.raft.storage.crash_points import stop_everywhere
from tests.statemachine.snapshots import TABLES, content

FILES = PosixFileSystem()
NEW_ID = "AAAAAAAAQACAAAAAAAAAAQ"
NODE_DIRECTORY = {
    *(".lock", "log", "log/log-start", "meta.properties", "quorum-state-0", "quorum-state-1", "snapshots"),
}


def an_id(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))


@pytest.fixture(scope="module")
def old_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a node of the old cluster, which was stopped and has a snapshot."""
    path = make_node_directory(tmp_path_factory.mktemp("old") / "node")
    take_snapshot(path / "metadata.db", SnapshotStore(FILES, str(path / "snapshots")))
    return path


@pytest.fixture
def snapshot(old_node: Path, tmp_path: Path) -> Path:
    """A copy of that snapshot."""
    (path,) = (old_node / "snapshots").iterdir()
    (tmp_path / "backup").mkdir()
    return Path(shutil.copy(path, tmp_path / "backup"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where everything is made, and nothing is that is refused."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def write_config(path: Path, node_id: int = 1, **settings: object) -> Path:
    """A node's configuration, its data beside it."""
    voters = [f"{number}@localhost:{9090 + number}" for number in (1, 2, 3)]
    base = {"node.id": node_id, "log.dir": f"node-{node_id}", "listeners": f"localhost:{9090 + node_id}"}
    path.write_text(render_config({**base, "controller.quorum.voters": voters, **settings}))
    return path


@pytest.fixture
def config(work: Path) -> Path:
    return write_config(work / "node-1.toml")


def names_below(path: Path) -> set[str]:
    return {str(entry.relative_to(path)) for entry in path.rglob("*")}


def read(path: Path) -> tuple[SnapshotHeader, list[tuple[int, bytes]]]:
    """A whole snapshot's header, and its batches without what the id decides."""
    with SnapshotReader(FILES, str(path)) as reader:
        reader.verify()
        return reader.header, [(batch.record_count, batch_body(batch)) for batch in reader.batches()]


def write_snapshot(
    directory: Path, snapshot_id: OffsetAndEpoch, content: list[tuple[int, bytes]], cluster_id: str = CLUSTER_ID
) -> Path:
    """A whole snapshot of these batches."""
    writer = SnapshotStore(FILES, str(directory)).create(snapshot_id, SnapshotHeader(5, cluster_id))
    assert writer is not None
    with writer:
        for count, body in content:
            writer.append(body, count)
        writer.freeze()
    return Path(writer.path)


# --- what is made -----------------------------------------------------------------------------------------------------


def test_a_node_begins_with_the_snapshot_in_another_cluster_and_a_higher_epoch(
    run: Run, snapshot: Path, config: Path, work: Path
) -> None:
    old_header, old_batches = read(snapshot)
    said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID, "--output", "json").json()
    node, new_id = work / "node-1", an_id(30, 3 + EPOCH_JUMP)
    path = node / "snapshots" / snapshot_name(new_id)
    assert names_below(node) == {*NODE_DIRECTORY, f"snapshots/{path.name}"}
    header, batches = read(path)
    assert header == SnapshotHeader(old_header.last_contained_log_timestamp_ms, NEW_ID)
    assert batches == old_batches
    with DataDirectory.open(FILES, str(node), cluster_id=NEW_ID, node_id=NodeId(1)) as directory:
        identity = directory.identity
    with closing(QuorumStateStore(FILES, str(node))) as quorum_state:
        assert quorum_state.load() == ElectionState(epoch=new_id.epoch, leader_id=None, voted_key=None)
    for file in (*node.rglob("*"), node):
        assert file.stat().st_mode & 0o777 == (0o700 if file.is_dir() else 0o600)
    inspected = run("snapshot", "inspect", path, "--output", "json").json()
    assert said == {
        "ClusterId": NEW_ID,
        "EndOffset": 30,
        "Epoch": 3 + EPOCH_JUMP,
        "Records": inspected["Records"],
        "Digest": inspected["Digest"],
        "FromClusterId": CLUSTER_ID,
        "FromEpoch": 3,
        "Directories": [{"NodeId": 1, "DirectoryId": uuid_to_text(identity.directory_id), "Path": str(node)}],
    }


def test_the_log_begins_where_the_snapshot_ends(snapshot: Path, config: Path, run: Run, work: Path) -> None:
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0
    with closing(SegmentedLog.open(FILES, str(work / "node-1" / "log"), may_create=False)) as log:
        assert (log.log_start_offset, log.log_end_offset, log.recovering) == (30, 30, None)
        assert log.epochs.last_epoch == 3 + EPOCH_JUMP


def test_verify_finds_it_sound_before_its_first_start(snapshot: Path, config: Path, run: Run, work: Path) -> None:
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0
    said = run("verify", work / "node-1", "--output", "json")
    assert (said.json()["IsSound"], len(verify_directory(work / "node-1"))) == (True, len(said.json()["Files"]))


def test_a_database_that_is_made_of_it_has_the_same_rows(
    snapshot: Path, config: Path, run: Run, work: Path, old_node: Path, tmp_path: Path
) -> None:
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0
    (restored,) = (work / "node-1" / "snapshots").iterdir()
    shutil.copy(old_node / "metadata.db", tmp_path / "old.db")
    with (
        closing(MetadataStore.open(tmp_path / "old.db", CLUSTER_ID)) as old,
        closing(MetadataStore.open(tmp_path / "filled", NEW_ID)) as empty,
        SnapshotReader(FILES, str(restored)) as reader,
    ):
        empty.load(reader)
        with closing(MetadataStore.open(tmp_path / "filled.new", NEW_ID)) as new:
            before, after = content(old.reader), content(new.reader)
            assert new.applied == old.applied._replace(epoch=Epoch(3 + EPOCH_JUMP))
            assert new.state_digest == old.state_digest
    assert {name: before[name] for name in TABLES[:-1]} == {name: after[name] for name in TABLES[:-1]}
    assert any(before[name] for name in TABLES[:-1])


def test_every_node_gets_the_same_bytes_and_an_id_of_its_own(snapshot: Path, work: Path, run: Run) -> None:
    said = []
    for node_id in (1, 2, 7):
        config = write_config(work / f"node-{node_id}.toml", node_id)
        said.append(
            run(
                "restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID, "--output", "json"
            ).json()
        )
    (name,) = {path.name for path in work.glob("node-*/snapshots/*")}
    assert len({(work / f"node-{node_id}" / "snapshots" / name).read_bytes() for node_id in (1, 2, 7)}) == 1
    assert len({row["Digest"] for row in said}) == 1
    assert len({row["Directories"][0]["DirectoryId"] for row in said}) == 3


def test_a_random_cluster_id_is_told_for_the_other_nodes(snapshot: Path, config: Path, run: Run, work: Path) -> None:
    lines = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", "random").lines()
    cluster_id = lines[0].split()[1]
    assert lines[0].split() == ["ClusterId:", cluster_id]
    assert f"--cluster-id {cluster_id}" in lines[-1]
    DataDirectory.open(FILES, str(work / "node-1"), cluster_id=cluster_id).close()


def test_a_restored_cluster_can_be_restored(snapshot: Path, config: Path, run: Run, work: Path) -> None:
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0
    (first,) = (work / "node-1" / "snapshots").iterdir()
    again = ("restore", "--snapshot", first, "--dir", work / "again", "--voters", 1, "--output", "json")
    said = run(*again).json()
    assert (said["FromClusterId"], said["Epoch"], said["EndOffset"]) == (NEW_ID, 3 + 2 * EPOCH_JUMP, 30)


def test_an_empty_node_believes_the_epoch_of_a_cluster_that_was_restored_often() -> None:
    assert 50 * EPOCH_JUMP <= EPOCH_JUMP_MAX


def test_a_local_cluster_is_what_up_makes_with_other_data(snapshot: Path, run: Run, work: Path) -> None:
    options = ("--dir", work / "cluster", "--voters", 2, "--observers", 1)
    said = run("restore", "--snapshot", snapshot, *options, "--output", "json").json()
    assert [row["Path"] for row in said["Directories"]] == [str(work / "cluster" / f"node-{n}") for n in (1, 2, 3)]
    before = contents(work)
    cluster = open_or_create(work / "cluster", voters=2, observers=1)
    configs = cluster.load_configs()
    assert contents(work) == before
    assert cluster.cluster_id == said["ClusterId"] not in (CLUSTER_ID, "")
    assert [config.is_voter for config in configs.values()] == [True, True, False]
    assert sorted(path.name for path in cluster.path.iterdir()) == sorted(
        ["cluster.toml", "logs", *(f"node-{n}" for n in (1, 2, 3)), *(f"node-{n}.toml" for n in (1, 2, 3))]
    )
    for node_id, config in configs.items():
        assert config.directory == cluster.data_path(node_id)
        assert names_below(config.directory) > NODE_DIRECTORY
        DataDirectory.open(FILES, str(config.directory), cluster_id=cluster.cluster_id, node_id=node_id).close()
    assert len({path.read_bytes() for path in cluster.path.glob("node-*/snapshots/*")}) == 1


def test_a_local_cluster_has_three_voters_and_may_be_made_in_an_empty_directory(
    snapshot: Path, run: Run, work: Path
) -> None:
    lines = run("restore", "--snapshot", snapshot, "--dir", work).lines()
    assert lines[-1] == f"Start it: kraftlog up --dir {work}"
    assert [line.split()[0] for line in lines[-4:-1]] == ["1", "2", "3"]
    assert len(open_or_create(work).voter_ids) == 3


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(run: Run, snapshot: Path, config: Path, work: Path):
    """Restores a node and a local cluster, both of which must be refused with the same words and change nothing."""

    def refused(code: ErrorCode, *words: str, snapshot: Path = snapshot) -> None:
        before = contents(work)
        for options in (("--config", config, "--cluster-id", NEW_ID), ("--dir", work / "cluster")):
            said = run("restore", "--snapshot", snapshot, *options)
            assert said.is_error(code, *words), said
            assert contents(work) == before

    return refused


def test_a_file_that_is_no_whole_snapshot_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    data = snapshot.read_bytes()
    for damaged, words in (
        (b"", "is damaged: it ends at byte 0 without a footer"),
        (data[:-1], "is damaged"),
        (data + b"more", "is damaged: 4 bytes follow its footer"),
        (b"[node]\nid = 1\n" * 20, "is damaged"),
    ):
        snapshot.write_bytes(damaged)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), words, "restore from another copy")
    for position in range(0, len(data), 101):
        snapshot.write_bytes(data)
        flip(snapshot, position)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), "is damaged")


def test_a_file_that_is_not_named_like_a_snapshot_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    renamed = snapshot.rename(snapshot.with_name("backup.checkpoint"))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(renamed), "is not named like a snapshot", snapshot=renamed)
    refused(ErrorCode.KAFKA_STORAGE_ERROR, "is not named like a snapshot", snapshot=snapshot.parent)
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(snapshot), "No such file", snapshot=snapshot)
    other = renamed.rename(snapshot.with_name(snapshot_name(an_id(31, 3))))
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(other), "its digest is not that of its name", snapshot=other)
    directory = snapshot.with_name(snapshot_name(an_id(32, 3)))
    directory.mkdir()
    refused(ErrorCode.KAFKA_STORAGE_ERROR, str(directory), snapshot=directory)


def test_a_whole_snapshot_that_no_node_could_load_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    batches = read(snapshot)[1]
    for snapshot_id, batches_of, words in (
        (an_id(30, 3), [(2, encode_body([b"abc", b"de"]))], "is no MetadataBatch"),
        (an_id(30, 3), [], "does not say what its state machine had come to"),
        (an_id(30, 3), [*batches, *batches], "cannot be applied"),
        (an_id(0, 3), batches, "ends at offset 0"),
    ):
        path = write_snapshot(tmp_path / words.replace(" ", "-"), snapshot_id, batches_of)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, str(path), words, "restore from another copy", snapshot=path)


def test_a_snapshot_whose_epoch_leaves_no_room_is_refused(refused, snapshot: Path, tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "late", an_id(30, EPOCH_MAX - 7), read(snapshot)[1])
    refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the snapshot's epoch, {EPOCH_MAX - 7}, leaves no room", snapshot=path)


def test_the_old_clusters_id_and_what_is_no_id_are_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    before = contents(work)
    for cluster_id, words in (
        (CLUSTER_ID, f"{CLUSTER_ID} is the id of the cluster that {snapshot} is of; take a new one"),
        ("nonsense", "'nonsense' is no id"),
        ("A" * 22, "is zero"),
    ):
        said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", cluster_id)
        assert said.is_error(ErrorCode.INVALID_CONFIG, words)
        assert contents(work) == before


def test_a_directory_that_holds_anything_is_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    def restored(*options: object) -> Finished:
        return run("restore", "--snapshot", snapshot, *options)

    node = ("--config", config, "--cluster-id", NEW_ID)
    assert run("format", "--config", config, "--cluster-id", NEW_ID).code == 0
    before = contents(work)
    formatted = f"{work / 'node-1'} is formatted, for node 1 of cluster {NEW_ID}; name an empty directory or a new one"
    assert restored(*node).is_error(ErrorCode.KAFKA_STORAGE_ERROR, formatted)
    for directory in (work, work / "node-1"):
        said = restored("--dir", directory)
        assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is not empty, it holds")
    said = restored("--dir", config)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(config))
    assert contents(work) == before
    (work / "node-1" / "meta.properties").unlink()
    (work / "node-1" / "thesis.txt").write_text("mine")
    before = contents(work)
    assert restored(*node).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "node-1 is not empty, it holds thesis.txt")
    assert contents(work) == before


def test_a_directory_that_is_in_use_is_refused(run: Run, snapshot: Path, config: Path, work: Path) -> None:
    FILES.make_directories(str(work / "node-1"))
    lock = FILES.try_lock(str(work / "node-1" / ".lock"))
    assert lock is not None
    with closing(lock):
        said = run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{work / 'node-1'} is in use by another process")
    assert names_below(work / "node-1") == {".lock"}
    assert run("restore", "--snapshot", snapshot, "--config", config, "--cluster-id", NEW_ID).code == 0


def test_counts_that_no_cluster_has_and_a_config_that_is_none_are_refused(
    run: Run, snapshot: Path, config: Path, work: Path
) -> None:
    before = contents(work)
    said = run("restore", "--snapshot", snapshot, "--dir", work / "cluster", "--voters", 0)
    assert said.is_error(ErrorCode.INVALID_CONFIG, "0 voters; a local cluster has from 1")
    said = run("restore", "--snapshot", snapshot, "--config", work / "none.toml", "--cluster-id", NEW_ID)
    assert said.is_error(ErrorCode.INVALID_CONFIG, "none.toml: there is no such file")
    assert contents(work) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--config / --dir"),
        (("--config", "a", "--dir", "b"), "--config / --dir"),
        (("--config", "a"), "kraftlog random-uuid"),
        (("--config", "a", "--cluster-id", NEW_ID, "--voters", 3), "--voters"),
        (("--config", "a", "--cluster-id", NEW_ID, "--observers", 3), "--observers"),
        (("--dir", "a", "--cluster-id", NEW_ID), "--cluster-id"),
        (("--dir", ""), "name a path"),
    ],
)
def test_options_that_do_not_go_together_are_usage_errors(run: Run, options: tuple[object, ...], words: str) -> None:
    said = run("restore", "--snapshot", "x.checkpoint", *options)
    assert (said.code, said.output, words in said.errors, said.errors.count("\n")) == (2, "", True, 1)
    assert run("restore", *options).code == 2


# --- what an interruption leaves --------------------------------------------------------------------------------------


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
            assert _read(files, join("data/node-1/log", name)) == _read(expected, join("log", name))

    steps = stop_everywhere(begin, story, verify)
    assert steps > 20
    assert all(left.values()), left


def _begun_again(files: MemoryFileSystem, identity: DirectoryIdentity, source: SnapshotReader) -> str:
    """To format it, or restore into it, either makes it whole or is refused."""
    try:
        restore_directory(files, "data/node-1", source, identity)
    except DirectoryError as error:
        assert "what an interrupted restore left may be removed" in str(error)
    else:
        DataDirectory.open(files, "data/node-1").close()
        return "nothing"
    with pytest.raises(DirectoryError, match="not formatted but not empty"):
        DataDirectory.format(files, "data/node-1", cluster_id=NEW_ID, node_id=NodeId(1))
    return "half"


def _read(files: MemoryFileSystem, path: str) -> bytes:
    with closing(files.open(path)) as file:
        return file.read_at(0, file.size())


@pytest.mark.parametrize("last", range(7))
def test_a_local_cluster_that_is_half_made_is_not_started(
    snapshot: Path, work: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Interrupted before the first node, between nodes, between configuration files, and before the last file."""
    path, steps = work / "cluster", 0

    def interrupting(function):
        def step(*arguments: object):
            nonlocal steps
            if steps == last:
                raise KeyboardInterrupt
            steps += 1
            return function(*arguments)

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
