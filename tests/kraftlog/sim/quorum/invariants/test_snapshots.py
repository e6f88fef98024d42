"""Snapshots are whole, the same on all nodes, and hold what is committed."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.snapshots import SnapshotsAreEqual, SnapshotsAreWhole
from raft.core.types import OffsetAndEpoch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.storage.builders import data_batch
from tests.snapshot.builders import snapshot_bytes

OTHER = ((b"other",),)


def test_the_same_bytes_under_the_same_name_are_fine() -> None:
    cluster = Cluster()
    invariant = SnapshotsAreEqual(cluster)
    for node_id in (1, 2, 9):
        for offset in (3, 5):
            invariant.after_step(cluster.put_snapshot(node_id, at(offset)))
    invariant.after_step(cluster.put_snapshot(1, at(5, 2), snapshot_bytes(at(5, 2), OTHER)))


@pytest.mark.parametrize("node_id", [1, 2])
def test_other_bytes_under_the_same_name_are_not_at_whatever_time(node_id: int) -> None:
    cluster = Cluster()
    invariant = SnapshotsAreEqual(cluster)
    invariant.after_step(cluster.put_snapshot(1, at(3)))
    invariant.after_step(cluster.put_snapshot(1, at(5)))
    with violates(invariant):
        invariant.after_step(cluster.put_snapshot(node_id, at(3), snapshot_bytes(at(3), OTHER)))


@pytest.mark.parametrize("what", ["has_diverged", "has_damaged_snapshots"])
def test_one_that_a_fault_made_differ_is_left_out(what: str) -> None:
    cluster = Cluster()
    invariant = SnapshotsAreEqual(cluster)
    invariant.after_step(cluster.put_snapshot(1, at(3)))
    setattr(cluster.nodes[2], what, True)
    invariant.after_step(cluster.put_snapshot(2, at(3), snapshot_bytes(at(3), OTHER)))


def whole() -> tuple[Cluster, SnapshotsAreWhole]:
    cluster = Cluster()
    cluster.commit(*batches(1, 1, 2, 2))
    return cluster, SnapshotsAreWhole(cluster)


@pytest.mark.parametrize("snapshot_id", [at(1), at(2), at(4, 2)])
def test_a_whole_snapshot_of_what_is_committed_is_fine(snapshot_id: OffsetAndEpoch) -> None:
    cluster, invariant = whole()
    invariant.after_step(cluster.put_snapshot(1, snapshot_id))


@pytest.mark.parametrize("has_damaged_snapshots", [False, True])
@pytest.mark.parametrize(
    "data",
    [b"", snapshot_bytes(at(2))[:-1], snapshot_bytes(at(2)) + b"x", snapshot_bytes(at(1))],
    ids=["nothing in it", "cut off", "something behind it", "another's"],
)
def test_what_is_not_whole_must_not_have_the_name_unless_a_fault_made_it_so(
    data: bytes, has_damaged_snapshots: bool
) -> None:
    cluster, invariant = whole()
    cluster.nodes[1].has_damaged_snapshots = has_damaged_snapshots
    step = cluster.put_snapshot(1, at(2), data)
    if has_damaged_snapshots:
        invariant.after_step(step)
        return
    with violates(invariant):
        invariant.after_step(step)


@pytest.mark.parametrize("snapshot_id", [at(5, 2), at(2, 2), at(3, 1)], ids=["not committed", "later", "earlier"])
def test_its_end_must_be_committed_in_its_epoch(snapshot_id: OffsetAndEpoch) -> None:
    cluster, invariant = whole()
    with violates(invariant):
        invariant.after_step(cluster.put_snapshot(1, snapshot_id))


def test_it_must_not_end_within_a_batch() -> None:
    cluster, invariant = whole()
    cluster.commit(*batches(1, 1, 2), data_batch(3, 2, record_count=2))
    with violates(invariant):
        invariant.after_step(cluster.put_snapshot(1, at(4, 2)))
