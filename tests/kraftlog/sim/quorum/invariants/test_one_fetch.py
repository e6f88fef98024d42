"""One fetch at a time."""

from __future__ import annotations

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.one_fetch import OneFetch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import Harness, begin_quorum_epoch, endpoint, fetch, fetch_response, replica


def following() -> tuple[Cluster, OneFetch, Harness]:
    """A real follower of node 2, with a fetch under way."""
    harness = replica(1).make_follower(2, 1)
    cluster = Cluster()
    cluster.nodes[1].replica = harness.replica
    assert harness.output.connections.has_fetch_under_way
    return cluster, OneFetch(cluster), harness


def test_one_after_another_is_fine() -> None:
    cluster, invariant, harness = following()
    *_, first = harness.sent
    invariant.after_step(cluster.step(1, actions=[first]))
    invariant.after_step(cluster.step(1, actions=harness.answer(first, fetch_response(2, 1))))


def test_one_that_was_given_up_does_not_count() -> None:
    cluster, invariant, harness = following()
    *_, given_up = harness.sent
    actions = harness.deliver(begin_quorum_epoch(3, 2))
    invariant.after_step(cluster.step(1, actions=[given_up, *actions]))


def test_two_at_a_time_are_not() -> None:
    cluster, invariant, harness = following()
    harness.output.connections.sent(endpoint(3), fetch(1, 1), Epoch(1), harness.now_ms)
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[send(fetch(1, 1))]))
