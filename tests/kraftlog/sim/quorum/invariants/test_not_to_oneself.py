"""No node sends a request to itself."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.not_to_oneself import NotToOneself
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import endpoint, fetch, vote


def test_requests_go_to_others_and_never_to_oneself() -> None:
    cluster = Cluster()
    invariant = NotToOneself(cluster)
    cluster.become(1, endpoint=endpoint(1))
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.step(1, actions=[send(fetch(1, 1), 2), send(vote(1, 1), 3)]))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[send(fetch(1, 1), 2), send(vote(1, 1), 1)]))
