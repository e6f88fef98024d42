"""A leader that answers keeps its followers."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.sim.quorum.invariants.leader_kept import REFUSED_MS, LeaderIsKept
from raft.core.actions import Send
from raft.core.config import QuorumConfig
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.states import Role
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import endpoint, fetch, fetch_response, vote, vote_response

CONFIG = QuorumConfig()
EPOCH = 5


class Story:
    """Node 1 follows node 3, which leads epoch 5."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.invariant = LeaderIsKept(self.cluster)
        self.cluster.become(3, role=Role.LEADER, epoch=EPOCH, leader_id=3)
        self.now_ms = 1_000
        self._fetches = 0
        self.is_(Role.FOLLOWER)

    def is_(self, role: Role, *, epoch: int = EPOCH, after_ms: int = 0, contact: bool = False, **step: Any) -> None:
        """Some time later node 1 is in that role; `contact`: its leader has just answered a fetch."""
        self.now_ms += after_ms
        self.cluster.become(
            1,
            role=role,
            epoch=epoch,
            leader_id=3,
            leader_endpoint=endpoint(3),
            now_ms=self.now_ms,
            config=CONFIG,
            fetch_deadline_ms=self.now_ms + CONFIG.fetch_timeout_ms if contact else 0,
            has_fetched=contact,
        )
        self.invariant.after_step(self.cluster.step(1, **step))

    def fetches(self) -> int:
        """It fetches from its leader."""
        self._fetches += 1
        request = fetch(1, EPOCH)
        self.is_(Role.FOLLOWER, actions=[Send(self._fetches, endpoint(3), request)])
        return self._fetches

    def is_answered(self) -> None:
        self.is_(Role.FOLLOWER, contact=True, events=[ResponseReceived(self.fetches(), fetch_response(3, EPOCH))])

    def fails(self, *, connection_refused: bool, after_ms: int = 0, held_ms: int = 0) -> None:
        """A fetch that is sent some time later, and fails after some more."""
        self.now_ms += after_ms
        event = RequestFailed(self.fetches(), connection_refused=connection_refused)
        self.is_(Role.FOLLOWER, after_ms=held_ms, events=[event])

    def is_refused(self, after_ms: int = 0, held_ms: int = 0) -> None:
        self.fails(connection_refused=True, after_ms=after_ms, held_ms=held_ms)

    def grants_pre_vote(self, after_ms: int) -> None:
        granted = (vote(2, EPOCH, pre_vote=True), vote_response(EPOCH, granted=True, pre_vote=True))
        self.is_(Role.FOLLOWER, after_ms=after_ms, replies=[granted])


@pytest.fixture
def story() -> Story:
    story = Story()
    story.is_answered()
    return story


def test_silence_for_a_fetch_timeout_is_enough(story: Story) -> None:
    story.is_(Role.PROSPECTIVE, after_ms=CONFIG.fetch_timeout_ms)


def test_less_is_not(story: Story) -> None:
    with violates(story.invariant):
        story.is_(Role.PROSPECTIVE, after_ms=CONFIG.fetch_timeout_ms - 1)


def test_nor_may_it_grant_a_pre_vote(story: Story) -> None:
    with violates(story.invariant):
        story.grants_pre_vote(CONFIG.fetch_timeout_ms - 1)


def test_refused_connections_are_enough_if_nothing_else_comes_for_a_while(story: Story) -> None:
    story.is_refused()
    story.is_refused(REFUSED_MS)
    story.grants_pre_vote(0)
    story.is_(Role.PROSPECTIVE)


def test_an_answer_between_them_counts(story: Story) -> None:
    story.is_refused()
    story.is_answered()
    story.is_refused(REFUSED_MS)
    with violates(story.invariant):
        story.is_(Role.PROSPECTIVE)


def test_a_fetch_that_fails_otherwise_ends_the_row(story: Story) -> None:
    story.is_refused()
    story.fails(connection_refused=False, after_ms=10)
    story.is_refused(REFUSED_MS)
    with violates(story.invariant):
        story.is_(Role.PROSPECTIVE)


def test_a_fetch_that_was_held_and_then_refused_begins_another(story: Story) -> None:
    story.is_refused()
    story.is_refused(held_ms=REFUSED_MS)
    with violates(story.invariant):
        story.is_(Role.PROSPECTIVE)


def test_what_another_node_refuses_says_nothing(story: Story) -> None:
    story.is_(Role.FOLLOWER, events=[RequestFailed(77, connection_refused=True)])
    story.is_(Role.FOLLOWER, after_ms=REFUSED_MS, events=[RequestFailed(78, connection_refused=True)])
    with violates(story.invariant):
        story.is_(Role.PROSPECTIVE)


@pytest.mark.parametrize("leader", [{"role": Role.RESIGNED, "epoch": EPOCH}, {"role": Role.LEADER, "epoch": EPOCH + 1}])
def test_one_that_leads_no_more_may_be_given_up(story: Story, leader: dict[str, Any]) -> None:
    story.cluster.become(3, **leader)
    story.is_(Role.PROSPECTIVE)


def test_one_whose_process_has_ended_may_be_given_up(story: Story) -> None:
    story.cluster.kill(3)
    story.is_(Role.PROSPECTIVE)


def test_one_that_never_answered_may_be_given_up() -> None:
    Story().is_(Role.PROSPECTIVE)
