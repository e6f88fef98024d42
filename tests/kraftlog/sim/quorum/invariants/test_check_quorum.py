"""A leader without followers resigns."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.check_quorum import PATIENCE, CheckQuorum
from raft.core.events import RequestReceived
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import Harness, fetch, replica


def leading(voter_count: int) -> tuple[Cluster, CheckQuorum, Harness, int]:
    """Node 1 leads; the last is how long it may lead alone."""
    harness = replica(1, voter_count).make_leader() if voter_count > 1 else replica(1, 1)
    assert harness.replica.is_leader
    cluster = Cluster(voter_count)
    cluster.nodes[1].replica = harness.replica
    invariant = CheckQuorum(cluster)
    invariant.after_step(cluster.step(1))
    return cluster, invariant, harness, PATIENCE * harness.environment.config.check_quorum_timeout_ms


def hear(cluster: Cluster, invariant: CheckQuorum, node_id: int) -> None:
    invariant.after_step(cluster.step(1, events=[RequestReceived(1, fetch(node_id, 1))]))


def test_one_that_is_fetched_from_by_a_majority_goes_on() -> None:
    cluster, invariant, harness, patience_ms = leading(3)
    for _ in range(3):
        harness.environment.now_ms += patience_ms
        hear(cluster, invariant, 2)


def test_one_that_hears_nobody_must_not() -> None:
    cluster, invariant, harness, patience_ms = leading(3)
    harness.environment.now_ms += patience_ms
    invariant.after_step(cluster.step(1))
    harness.environment.now_ms += 1
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_observers_and_a_minority_do_not_help() -> None:
    cluster, invariant, harness, patience_ms = leading(5)
    harness.environment.now_ms += patience_ms
    hear(cluster, invariant, 2)
    harness.environment.now_ms += 1
    with violates(invariant):
        hear(cluster, invariant, 9)


def test_a_sole_voter_needs_nobody() -> None:
    cluster, invariant, harness, patience_ms = leading(1)
    harness.environment.now_ms += 2 * patience_ms
    invariant.after_step(cluster.step(1))


def test_another_epoch_begins_anew() -> None:
    cluster, invariant, harness, patience_ms = leading(3)
    harness.environment.now_ms += patience_ms + 1
    harness.leading.epoch += 1  # type: ignore[assignment]
    invariant.after_step(cluster.step(1))
