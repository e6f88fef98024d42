"""Logs are never cut below what is committed, and leaders' logs never."""

from __future__ import annotations

from raft.core.actions import TruncateLog
from raft.core.states import Role
from raft.core.types import Offset
from sim.invariants.truncation import CommittedIsKept, LeaderNeverCuts
from tests.sim.invariants.builders import Cluster, batches, violates


def test_a_tail_that_was_not_committed_may_be_cut() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1, 1)))
    invariant.after_step(cluster.cut(1, 2))


def test_what_is_committed_must_not_be_cut() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1, 1)))
    with violates(invariant):
        invariant.after_step(cluster.cut(1, 1))


def test_what_became_committed_later_counts_too_and_over_lives() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    invariant.after_step(cluster.store(1, *batches(1, 1)))
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.kill(1))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1)))


def test_what_was_replaced_by_another_epoch_was_cut() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1)))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1, 2, 2)))


def test_a_log_that_parts_below_what_is_committed_may_be_cut_there() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 2, 2))
    invariant.after_step(cluster.store(1, *batches(1, 1, 1)))
    invariant.after_step(cluster.cut(1, 1))


def test_what_damage_took_was_not_cut_and_counts_again_when_it_is_back() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1)))
    invariant.after_step(cluster.lose(1))
    cluster.nodes[1].has_lost_data = False
    invariant.after_step(cluster.disk_holds(1, *batches(1, 1)))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1)))


def test_a_leader_cuts_nothing() -> None:
    cluster = Cluster()
    invariant = LeaderNeverCuts(cluster)
    cut = TruncateLog(Offset(1))
    invariant.after_step(cluster.step(1, actions=[cut]))
    cluster.become(1, role=Role.LEADER)
    invariant.after_step(cluster.step(1))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[cut]))
