"""`kraftlog restore`: the directories that it makes of a snapshot, of one node or of a local cluster."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.types import Epoch, NodeId
from kraftbase.uuids import uuid_to_text
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.offline.restore import EPOCH_JUMP, EPOCH_MAX
from kraftlog.offline.verification import verify_directory
from raft.core.election_state import ElectionState
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX
from raft.storage.directory import DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import SegmentedLog
from snapshot.format import SnapshotHeader
from snapshot.names import BOOTSTRAP_NAME, snapshot_name
from snapshot.reader import SnapshotReader
from statemachine.store.store import MetadataStore
from tests.kraftlog.command_line import Run
from tests.kraftlog.node_directories import CLUSTER_ID, contents
from tests.kraftlog.offline.restore.builders import (
    FILES,
    NEW_ID,
    NODE_DIRECTORY,
    names_below,
    read,
    write_config,
    write_snapshot,
)
from tests.snapshot.builders import an_id
from tests.statemachine.snapshots import TABLES, content


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
        assert file.stat().st_mode & 0o777 == (0o700 if file.is_dir() else 0o400 if file == path else 0o600)
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


@pytest.mark.parametrize(
    ("old", "new"),
    [(EPOCH_MAX - EPOCH_JUMP, EPOCH_MAX), (EPOCH_MAX - EPOCH_JUMP + 1, 1), (2**31 - 2, 1)],
)
def test_a_cluster_whose_epochs_were_used_up_begins_in_the_first_one(
    snapshot: Path, run: Run, work: Path, tmp_path: Path, old: int, new: int
) -> None:
    late = write_snapshot(tmp_path / "late", an_id(30, old), read(snapshot)[1])
    said = run("restore", "--snapshot", late, "--dir", work / "new", "--voters", 1, "--output", "json").json()
    assert (said["FromEpoch"], said["Epoch"], said["EndOffset"]) == (old, new, 30)
    with closing(QuorumStateStore(FILES, str(work / "new" / "node-1"))) as quorum_state:
        assert quorum_state.load() == ElectionState(epoch=Epoch(new))


def test_an_empty_node_enters_the_epoch_of_a_restored_cluster_at_once() -> None:
    assert EPOCH_MAX + EPOCH_JUMP <= EPOCHS_AT_ONCE_MAX


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
    written = {(path.name, path.read_bytes()) for path in cluster.path.glob("node-*/snapshots/*")}
    assert sorted(name for name, _ in written) == [BOOTSTRAP_NAME, snapshot_name(an_id(30, 10_003))]


def test_a_local_cluster_has_three_voters_and_may_be_made_in_an_empty_directory(
    snapshot: Path, run: Run, work: Path
) -> None:
    lines = run("restore", "--snapshot", snapshot, "--dir", work).lines()
    assert lines[-1] == f"Start it: kraftlog up --dir {work}"
    assert [line.split()[0] for line in lines[-4:-1]] == ["1", "2", "3"]
    assert len(open_or_create(work).voter_ids) == 3
