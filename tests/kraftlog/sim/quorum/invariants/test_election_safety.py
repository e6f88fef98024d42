"""One leader an epoch, in memory and on disks."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.election_safety import ElectionSafety
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import election_state


def test_one_leader_an_epoch_is_fine_whoever_knows_it() -> None:
    cluster = Cluster()
    invariant = ElectionSafety(cluster)
    for node_id, epoch, leader_id in [(1, 1, 1), (2, 1, 1), (2, 2, 2), (3, 2, None), (1, 2, 2), (3, 1, 1)]:
        cluster.become(node_id, epoch=epoch, leader_id=leader_id)
        cluster.nodes[node_id].durable_election = election_state(epoch, leader_id)
        invariant.after_step(cluster.step(node_id, disk_changed=True))


def test_two_leaders_of_one_epoch_are_not() -> None:
    cluster = Cluster()
    invariant = ElectionSafety(cluster)
    cluster.become(1, epoch=4, leader_id=1)
    invariant.after_step(cluster.step(1))
    cluster.become(2, epoch=4, leader_id=2)
    with violates(invariant):
        invariant.after_step(cluster.step(2))


def test_a_leader_is_remembered_after_everybody_moved_on_or_died() -> None:
    cluster = Cluster()
    invariant = ElectionSafety(cluster)
    cluster.become(1, epoch=4, leader_id=1)
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.kill(1))
    cluster.nodes[2].durable_election = election_state(4, leader_id=2)
    with violates(invariant):
        invariant.after_step(cluster.step(2, disk_changed=True))
