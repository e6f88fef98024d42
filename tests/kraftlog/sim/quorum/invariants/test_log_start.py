"""A log starts at 0 or where a snapshot ends, and its start moves past no reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.log_start import LogStart, LogStartWaits
from kraftlog.sim.quorum.observation.step import Step
from raft.core.states import ReplicaProgress, Role
from snapshot.log_start_policy import LogStartPolicy
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.core.builders import key

LOG = batches(1, 1, 2, 2)


def beginning(at_offset: int, *snapshots: int) -> tuple[Cluster, LogStart, Step]:
    """Four records are committed and on the disk of node 1, whose log begins there; snapshots end there."""
    cluster = Cluster()
    cluster.commit(*LOG)
    cluster.store(1, *LOG)
    for offset in snapshots:
        cluster.put_snapshot(1, at(offset, LOG[offset - 1].epoch))
    step = cluster.advance(1, at(at_offset, LOG[at_offset - 1].epoch if at_offset else 0))
    return cluster, LogStart(cluster), step


@pytest.mark.parametrize(("start", "snapshots"), [(0, ()), (0, (2,)), (2, (2,)), (3, (2, 3, 4)), (4, (4,))])
def test_a_log_from_its_beginning_or_the_end_of_a_snapshot_is_fine(start: int, snapshots: tuple[int, ...]) -> None:
    _, invariant, step = beginning(start, *snapshots)
    invariant.after_step(step)


def test_a_log_that_begins_where_no_snapshot_ends_is_not() -> None:
    _, invariant, step = beginning(2, 1, 3)
    with violates(invariant):
        invariant.after_step(step)


def test_neither_when_its_snapshot_goes_later() -> None:
    cluster, invariant, step = beginning(2, 2)
    invariant.after_step(step)
    files = cluster.files[1]
    files.remove(f"data/snapshots/{files.list_directory('data/snapshots')[0]}")
    invariant.after_step(cluster.disk_changed(1))  # a power cut would bring it back
    files.fsync_directory("data/snapshots")
    with violates(invariant):
        invariant.after_step(cluster.disk_changed(1))


@pytest.mark.parametrize("what", ["has_damaged_snapshots", "has_diverged", "has_lost_data"])
def test_a_fault_may_have_taken_it(what: str) -> None:
    cluster, invariant, step = beginning(2)
    setattr(cluster.nodes[1], what, True)
    invariant.after_step(step)


def test_what_is_below_must_be_committed() -> None:
    cluster, invariant, step = beginning(4, 4)
    cluster.commit(*LOG[:3])
    with violates(invariant):
        invariant.after_step(step)


def test_it_begins_between_two_batches_in_the_epoch_of_the_one_before() -> None:
    cluster = Cluster()
    cluster.commit(*LOG)
    cluster.put_snapshot(1, at(3, 1))
    invariant = LogStart(cluster)
    with violates(invariant):
        invariant.after_step(cluster.truncate_fully_and_start_at(1, at(3, 1)))


# --- what it waits for ------------------------------------------------------------------------------------------------


def leading(*, listener: int = 4, replica: int = 4, heard_ms: int | None = 0) -> tuple[Cluster, LogStartWaits]:
    """Node 1 leads; its listener, and node 2 as of its fetch this long ago, are there."""
    cluster = Cluster()
    cluster.commit(*LOG)
    cluster.store(1, *LOG)
    node = cluster.nodes[1]
    node.now_ms = 1_000_000
    node.positions = (("state machine", Offset(listener)),)
    progress = ReplicaProgress(key(2))
    progress.end_offset = Offset(replica)
    progress.last_fetch_ms = None if heard_ms is None else node.now_ms - heard_ms
    cluster.become(1, role=Role.LEADER, followers=(progress,))
    invariant = LogStartWaits(cluster)
    invariant.after_step(cluster.step(1))
    return cluster, invariant


def test_it_moves_up_to_where_all_have_read() -> None:
    cluster, invariant = leading(listener=3, replica=3)
    for offset in (1, 3):
        invariant.after_step(cluster.advance(1, at(offset, LOG[offset - 1].epoch)))


@pytest.mark.parametrize(("listener", "replica", "heard_ms"), [(2, 4, 0), (-1, 4, 0), (4, 2, 0), (4, 2, 59_999)])
def test_it_must_not_move_past_a_listener_or_a_live_replica(listener: int, replica: int, heard_ms: int) -> None:
    cluster, invariant = leading(listener=listener, replica=replica, heard_ms=heard_ms)
    with violates(invariant):
        invariant.after_step(cluster.advance(1, at(3, 2)))


@pytest.mark.parametrize("heard_ms", [None, 60_000])
def test_who_was_not_heard_of_is_not_waited_for(heard_ms: int | None) -> None:
    cluster, invariant = leading(replica=0, heard_ms=heard_ms)
    invariant.after_step(cluster.advance(1, at(3, 2)))


@pytest.mark.parametrize("what", ["eager", "limit over", "leapt", "a new process", "a snapshot takes its place"])
def test_it_may_move_all_the_same(what: str) -> None:
    cluster, invariant = leading(listener=0, replica=0)
    match what:
        case "eager":
            cluster.log_start = replace(cluster.log_start, policy=LogStartPolicy.EAGER)
        case "limit over":
            cluster.now_us = cluster.log_start.lag_time_max_ms * 1_000
        case "leapt":
            cluster.nodes[1].has_leapt = True
    step = (
        cluster.truncate_fully_and_start_at(1, at(9, 2))
        if what.startswith("a snapshot")
        else cluster.advance(1, at(3, 2))
    )
    if what == "a new process":
        step = cluster.start(1, role=Role.LEADER)
    invariant.after_step(step)


def following(leader_start: int) -> tuple[Cluster, LogStartWaits]:
    """Node 1 led, and its log begins there; node 2 follows."""
    cluster, invariant = leading()
    if leader_start:
        invariant.after_step(cluster.advance(1, at(leader_start, LOG[leader_start - 1].epoch)))
    cluster.store(2, *LOG)
    cluster.nodes[2].positions = (("state machine", Offset(3)),)
    invariant.after_step(cluster.step(2))
    return cluster, invariant


def test_a_follower_goes_as_far_as_a_leader_went() -> None:
    cluster, invariant = following(2)
    invariant.after_step(cluster.advance(2, at(2)))


def test_a_follower_must_not_go_further() -> None:
    cluster, invariant = following(2)
    with violates(invariant):
        invariant.after_step(cluster.advance(2, at(3, 2)))


def test_a_follower_must_not_pass_its_listener_before_the_limit_is_over() -> None:
    cluster, invariant = following(4)
    with violates(invariant):
        invariant.after_step(cluster.advance(2, at(4, 2)))
    cluster, invariant = following(4)
    cluster.now_us = cluster.log_start.lag_time_max_ms * 1_000
    invariant.after_step(cluster.advance(2, at(4, 2)))


def test_a_leader_that_moves_it_and_resigns_at_once_is_judged_as_a_leader() -> None:
    cluster, invariant = leading()
    step = cluster.advance(1, at(2))
    cluster.become(1, role=Role.RESIGNED)
    invariant.after_step(step)
    with violates(invariant):
        invariant.after_step(cluster.advance(1, at(3, 2)))
