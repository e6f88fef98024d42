"""A replica whose fetch is parked knows what the leader knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.staleness import StalenessBounded
from kraftlog.sim.quorum.observation.step import Step
from raft.core.events import TimePassed
from raft.core.purgatory import ParkedFetch, Purgatory
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import Harness, replica

LEADER, FOLLOWER = 1, 2


class Waiting:
    """Node 1 leads and has committed its first record; it holds the fetch of node 2, which knows what a test says."""

    def __init__(self, *, fetch_version: int, known: int) -> None:
        self.cluster = Cluster()
        self.leader: Harness = replica(LEADER).make_leader()
        self.follower: Harness = replica(FOLLOWER).make_follower(LEADER, self.leader.replica.epoch)
        environment = self.follower.environment
        environment.config = replace(environment.config, fetch_version=fetch_version)
        self.follower.replica_state.high_watermark = Offset(known)
        for harness, node_id in ((self.leader, LEADER), (self.follower, FOLLOWER)):
            self.cluster.nodes[node_id].replica = harness.replica
            self.cluster.nodes[node_id].key = harness.environment.key
        state: Any = self.leader.replica_state.state
        state.high_watermark = Offset(1)
        self.purgatory: Purgatory = state.purgatory
        *_, sent = self.follower.sent
        said = Offset(known) if fetch_version >= 18 else HIGH_WATERMARK_NOT_SENT
        self.request = replace(sent.request, fetch_offset=Offset(1), high_watermark=said)
        self.invariant = StalenessBounded(self.cluster)
        self.invariant.after_step(self.cluster.step(FOLLOWER, actions=[send(self.request)]))
        self.purgatory.park(ParkedFetch(7, self.request, self.leader.now_ms + self.request.max_wait_ms))

    def later(self, by_ms: int) -> Step:
        """Time passes at the leader, which holds the fetch still."""
        self.leader.environment.now_ms += by_ms
        return self.cluster.step(LEADER, events=[TimePassed()])


@pytest.mark.parametrize(("fetch_version", "known"), [(18, 1), (17, 0), (17, -1)])
def test_who_knows_it_may_wait_and_an_older_version_whatever_it_knows(fetch_version: int, known: int) -> None:
    waiting = Waiting(fetch_version=fetch_version, known=known)
    waiting.invariant.after_step(waiting.later(0))
    waiting.invariant.after_step(waiting.later(waiting.request.max_wait_ms))


@pytest.mark.parametrize("known", [0, -1])
def test_who_says_how_much_it_knows_is_not_held_without_the_rest(known: int) -> None:
    waiting = Waiting(fetch_version=18, known=known)
    with violates(waiting.invariant):
        waiting.invariant.after_step(waiting.later(0))


def test_what_the_fetch_says_does_not_help() -> None:
    """The field is at its default, and the replica knows nothing."""
    waiting = Waiting(fetch_version=18, known=-1)
    waiting.request = replace(waiting.request, high_watermark=HIGH_WATERMARK_NOT_SENT)
    waiting.purgatory.take_all()
    waiting.invariant.after_step(waiting.cluster.step(FOLLOWER, actions=[send(waiting.request)]))
    waiting.purgatory.park(ParkedFetch(8, waiting.request, waiting.leader.now_ms))
    with violates(waiting.invariant):
        waiting.invariant.after_step(waiting.later(0))


def test_a_fetch_that_was_given_up_may_be_held() -> None:
    waiting = Waiting(fetch_version=18, known=0)
    waiting.invariant.after_step(
        waiting.cluster.step(
            FOLLOWER, actions=[send(replace(waiting.request, max_bytes=waiting.request.max_bytes + 1))]
        )
    )
    waiting.invariant.after_step(waiting.later(0))


def test_none_is_held_for_longer_than_it_asks() -> None:
    waiting = Waiting(fetch_version=17, known=1)
    waiting.invariant.after_step(waiting.later(0))
    with violates(waiting.invariant):
        waiting.invariant.after_step(waiting.later(waiting.request.max_wait_ms + 1))


def test_a_leader_that_has_no_time_told_is_not_judged_yet() -> None:
    waiting = Waiting(fetch_version=17, known=1)
    waiting.invariant.after_step(waiting.later(0))
    waiting.leader.environment.now_ms += waiting.request.max_wait_ms + 1
    waiting.invariant.after_step(waiting.cluster.step(LEADER))
