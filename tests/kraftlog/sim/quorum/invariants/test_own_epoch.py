"""Older epochs are committed by the leader's own."""

from __future__ import annotations

from typing import Any

from kraftlog.sim.quorum.invariants.own_epoch import OwnEpoch
from raft.core.states import Leader
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import replica


def leading() -> tuple[Cluster, OwnEpoch, Any]:
    """A real leader whose log had five records of epoch 1; its own epoch starts at 5."""
    harness = replica(1, log=[(1, 5)]).make_leader()
    cluster = Cluster()
    cluster.nodes[1].replica = harness.replica
    invariant = OwnEpoch(cluster)
    invariant.after_step(cluster.step(1))
    assert isinstance(harness.state, Leader) and harness.state.epoch_start_offset == 5
    return cluster, invariant, harness.replica_state


def test_a_high_watermark_past_the_epochs_start_is_fine() -> None:
    cluster, invariant, replica_state = leading()
    replica_state.high_watermark = 6
    invariant.after_step(cluster.step(1))


def test_one_up_to_the_epochs_start_is_not() -> None:
    cluster, invariant, replica_state = leading()
    replica_state.high_watermark = 5
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_what_it_knew_when_it_was_elected_stays() -> None:
    harness = replica(1, log=[(1, 5)]).make_leader()
    harness.replica_state.high_watermark = 3  # type: ignore[assignment]
    cluster = Cluster()
    cluster.nodes[1].replica = harness.replica
    invariant = OwnEpoch(cluster)
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.step(1))


def test_a_follower_may_learn_any() -> None:
    cluster = Cluster()
    invariant = OwnEpoch(cluster)
    for high_watermark in (-1, 0, 4):
        cluster.become(1, epoch=2, leader_id=2, high_watermark=high_watermark)
        invariant.after_step(cluster.step(1))
