"""What a leader calls committed is on a majority of disks."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.committed_on_quorum import CommittedOnQuorum
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates


def leading(disks: int) -> tuple[Cluster, CommittedOnQuorum]:
    """Node 1 leads and calls two batches committed, which are on that many disks, its own first."""
    cluster = Cluster()
    cluster.commit(*batches(1, 1))
    for node_id in range(1, disks + 1):
        cluster.store(node_id, *batches(1, 1))
    for node_id in range(disks + 1, 4):
        cluster.store(node_id, *batches(1))
    cluster.become(1, role=Role.LEADER, leader_id=1, high_watermark=2)
    return cluster, CommittedOnQuorum(cluster)


def test_two_disks_of_three_are_enough() -> None:
    cluster, invariant = leading(2)
    invariant.after_step(cluster.step(1))


def test_one_disk_of_three_is_not() -> None:
    cluster, invariant = leading(1)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_an_observer_does_not_count() -> None:
    cluster, invariant = leading(1)
    cluster.store(9, *batches(1, 1))
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_what_is_only_in_memory_does_not_count() -> None:
    cluster, invariant = leading(1)
    cluster.append(2, *batches(1, 1)[1:])
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_another_epochs_batch_there_does_not_count() -> None:
    cluster, invariant = leading(1)
    cluster.store(2, *batches(1, 2)[1:])
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_disk_that_lost_its_data_had_it() -> None:
    cluster, invariant = leading(1)
    cluster.lose(3)
    invariant.after_step(cluster.step(1))


def test_a_follower_repeats_what_it_was_told() -> None:
    cluster, invariant = leading(1)
    cluster.become(2, high_watermark=1)
    invariant.after_step(cluster.step(2))


def test_each_new_high_watermark_is_judged() -> None:
    cluster, invariant = leading(2)
    invariant.after_step(cluster.step(1))
    cluster.commit(*batches(1, 1, 1))
    cluster.store(1, *batches(1, 1, 1)[2:])
    cluster.replicas[1].high_watermark = 3
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_leader_whose_orders_are_not_carried_out_yet_is_judged_when_they_are() -> None:
    cluster = Cluster()
    invariant = CommittedOnQuorum(cluster)
    cluster.store(1, *batches(1, 1))
    cluster.become(1, role=Role.LEADER, high_watermark=2)
    cluster.nodes[1].is_behind = True
    invariant.after_step(cluster.step(1))
    cluster.nodes[1].is_behind = False
    cluster.commit(*batches(1, 1))
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_leader_that_cannot_read_what_it_commits_is_not_judged_by_what_nobody_knows() -> None:
    cluster, invariant = leading(1)
    cluster.commit(*batches(1))
    cluster.nodes[1].has_lost_data = True
    invariant.after_step(cluster.step(1))


def test_nothing_committed_needs_no_disk() -> None:
    cluster = Cluster()
    cluster.become(1, role=Role.LEADER, leader_id=1, high_watermark=0)
    CommittedOnQuorum(cluster).after_step(cluster.step(1))


def test_a_snapshot_before_the_log_counts() -> None:
    cluster, invariant = leading(1)
    cluster.truncate_fully_and_start_at(2, at(2))
    invariant.after_step(cluster.step(1))


def test_one_that_ends_before_does_not() -> None:
    cluster = Cluster()
    cluster.commit(*batches(1, 1))
    cluster.store(1, *batches(1, 1))
    cluster.truncate_fully_and_start_at(2, at(1))
    cluster.become(1, role=Role.LEADER, leader_id=1, high_watermark=2)
    invariant = CommittedOnQuorum(cluster)
    with violates(invariant):
        invariant.after_step(cluster.step(1))
