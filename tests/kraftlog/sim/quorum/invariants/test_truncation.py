"""Logs are never cut below what is committed, and leaders' logs never."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.truncation import CommittedIsKept, LeaderNeverCuts
from raft.core.actions import TruncateFullyAndStartAt, TruncateLog
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.storage.builders import segment_paths


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


def test_a_leader_puts_no_snapshot_in_the_place_of_its_log() -> None:
    cluster = Cluster()
    invariant = LeaderNeverCuts(cluster)
    anew = TruncateFullyAndStartAt(at(3))
    invariant.after_step(cluster.step(1, actions=[anew]))
    cluster.become(1, role=Role.LEADER)
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[anew]))


def test_what_is_below_the_logs_start_is_kept_in_a_snapshot() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1, 1)))
    invariant.after_step(cluster.advance(1, at(2)))
    with violates(invariant):
        invariant.after_step(cluster.cut(1, 2))


def test_so_it_is_in_one_that_takes_the_place_of_the_log() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    log = batches(1, 1, 1, 1)
    cluster.commit(*log)
    invariant.after_step(cluster.store(1, *log[:1]))
    invariant.after_step(cluster.truncate_fully_and_start_at(1, at(3)))
    invariant.after_step(cluster.store(1, *log[3:]))
    with violates(invariant):
        invariant.after_step(cluster.cut(1, 3))


def test_a_log_that_is_gone_before_its_new_start_is_written_was_cut() -> None:
    cluster = Cluster()
    invariant = CommittedIsKept(cluster)
    cluster.commit(*batches(1, 1))
    invariant.after_step(cluster.store(1, *batches(1, 1)))
    files = cluster.files[1]
    for path in segment_paths(files):
        files.remove(path)
    files.fsync_directory("data/log")
    with violates(invariant):
        invariant.after_step(cluster.disk_changed(1))
