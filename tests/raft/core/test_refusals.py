"""A leader whose address refuses connections is abandoned before the fetch timeout (RF-30)."""

from __future__ import annotations

from typing import Any

from raft.core.actions import Send
from raft.core.messages import FetchRequest, FetchSnapshotRequest
from raft.core.refusals import JITTER_MS, PAUSE_MS, REFUSED_MS, TURN_MS
from raft.core.states import Follower, Role
from tests.raft.core.builders import Harness, endpoint, fetch_response, replica, vote, vote_response

LEADER_ID = 3


class Follower3:
    """A replica that follows 3 in epoch 5, has fetched from it once, and whose fetches a test can fail."""

    def __init__(self, own_id: int = 1, **settings: Any) -> None:
        self.harness: Harness = replica(own_id, log=[(3, 4)], **settings).make_follower(LEADER_ID, 5)
        self.sent: list[Send] = []
        self._other_id = 2 if own_id == 1 else 1
        self.is_answered()

    @property
    def follows(self) -> bool:
        return self.harness.role is Role.FOLLOWER

    @property
    def state(self) -> Follower:
        assert isinstance(self.harness.state, Follower)
        return self.harness.state

    def next_fetch(self, node_id: int) -> Send | None:
        """The next fetch to that endpoint; others fail, and back-offs expire. None if the replica no longer follows."""
        for _ in range(500):
            self.sent += self.harness.sent
            if not self.follows:
                return None
            fetches = [send for send in self.sent if isinstance(send.request, FetchRequest | FetchSnapshotRequest)]
            self.sent.clear()
            for send in fetches[-1:]:
                if send.destination == endpoint(node_id):
                    return send
                self.harness.fail(send)
            self.harness.advance(5)
        raise AssertionError(f"it does not fetch from {node_id}")

    def is_refused(self, duration_ms: int = 1, *, by: int = LEADER_ID, connection_refused: bool = True) -> int:
        """An address refuses connections for that long, or until it asks for pre-votes. Returns for how long."""
        started_ms = self.harness.now_ms
        while self.harness.now_ms < started_ms + duration_ms:
            fetch = self.next_fetch(by)
            if fetch is None:
                break
            self.harness.fail(fetch, connection_refused=connection_refused)
        return self.harness.now_ms - started_ms

    def is_answered(self) -> None:
        fetch = self.next_fetch(LEADER_ID)
        assert fetch is not None
        self.harness.answer(fetch, fetch_response(LEADER_ID, 5))

    def grants_pre_vote(self) -> bool:
        granted: bool = self.harness.ask(
            vote(self._other_id, 5, last_epoch=4, last_offset=9, pre_vote=True)
        ).vote_granted
        return granted


def test_rf30_a_follower_whose_leader_refuses_connections_asks_soon_in_the_same_epoch() -> None:
    follower = Follower3()
    assert REFUSED_MS <= follower.is_refused(1_000) <= REFUSED_MS + JITTER_MS + 30
    assert (follower.harness.role, follower.harness.epoch) == (Role.PROSPECTIVE, 5)


def test_rf30_voters_take_turns_by_node_id() -> None:
    first, second = (Follower3(own_id).is_refused(1_000) for own_id in (1, 2))
    assert second - first >= TURN_MS - JITTER_MS


def test_rf30_it_grants_pre_votes_from_then_on_and_not_before() -> None:
    follower = Follower3(own_id=2)
    follower.is_refused(REFUSED_MS // 2)
    assert not follower.grants_pre_vote()
    while not follower.state.is_given_up:
        follower.is_refused()
    assert follower.grants_pre_vote()


def test_rf30_requests_that_fail_otherwise_are_no_evidence() -> None:
    follower = Follower3()
    deadline_ms = follower.state.fetch_deadline_ms
    follower.is_refused(5 * REFUSED_MS, connection_refused=False)
    assert follower.state.fetch_deadline_ms == deadline_ms and not follower.grants_pre_vote()


def test_rf30_refusals_of_another_node_are_no_evidence() -> None:
    follower = Follower3()
    deadline_ms = follower.state.fetch_deadline_ms
    follower.is_refused(5 * REFUSED_MS, by=2)
    assert follower.state.fetch_deadline_ms == deadline_ms and not follower.grants_pre_vote()


def test_rf30_one_answer_of_the_leader_ends_a_row_of_refusals() -> None:
    follower = Follower3()
    follower.is_refused(REFUSED_MS - 40)
    follower.is_answered()
    deadline_ms = follower.state.fetch_deadline_ms
    follower.is_refused(REFUSED_MS - 40)
    assert follower.state.fetch_deadline_ms == deadline_ms and not follower.grants_pre_vote()


def test_rf30_an_answer_takes_back_that_the_leader_was_given_up() -> None:
    follower = Follower3(own_id=2)
    while not follower.state.is_given_up:
        follower.is_refused()
    follower.is_answered()
    assert not follower.state.is_given_up and not follower.grants_pre_vote()


def test_rf30_one_that_was_refused_pre_votes_pauses() -> None:
    follower = Follower3(fetch_timeout_ms=10 * PAUSE_MS)
    follower.is_refused(1_000)
    for asked in follower.sent:
        follower.harness.answer(asked, vote_response(5, leader_id=LEADER_ID, granted=False, pre_vote=True))
    assert follower.follows
    assert PAUSE_MS <= follower.is_refused(5 * PAUSE_MS) <= PAUSE_MS + REFUSED_MS + JITTER_MS + 60


def test_rf30_a_request_that_fails_otherwise_ends_a_row_of_refusals() -> None:
    follower = Follower3()
    follower.is_refused(REFUSED_MS - 40)
    follower.is_refused(1, connection_refused=False)
    follower.is_refused(REFUSED_MS - 40)
    assert not follower.state.is_given_up and not follower.grants_pre_vote()


def test_rf30_a_fetch_that_was_parked_between_two_refusals_begins_another_row() -> None:
    """A link that flaps twice for a moment, with a parked fetch in between."""
    follower = Follower3()
    follower.is_refused(1)
    parked = follower.next_fetch(LEADER_ID)
    assert parked is not None
    follower.harness.advance(300)
    follower.harness.fail(parked, connection_refused=True)
    assert not follower.state.is_given_up and not follower.grants_pre_vote()


def test_rf30_it_asks_no_other_node_meanwhile() -> None:
    """A node that is paused would take the place of the fetches that show that the leader is gone."""
    follower = Follower3(voter_count=5)
    follower.is_refused(1)
    follower.harness.advance(REFUSED_MS)
    assert [send.destination for send in follower.harness.sent] == [endpoint(LEADER_ID)]


def test_rf30_an_answer_ends_the_pause() -> None:
    follower = Follower3(fetch_timeout_ms=10 * PAUSE_MS)
    follower.is_refused(1_000)
    for asked in follower.sent:
        follower.harness.answer(asked, vote_response(5, leader_id=LEADER_ID, granted=False, pre_vote=True))
    follower.is_answered()
    assert follower.is_refused(5 * PAUSE_MS) <= REFUSED_MS + JITTER_MS + 30


def test_rf30_a_voter_that_rejected_a_pre_vote_is_asked_again_soon() -> None:
    """It may have been about to give the leader up as well."""
    follower = Follower3()
    follower.is_refused(1_000)
    (to_2,) = [asked for asked in follower.sent if asked.destination == endpoint(2)]
    follower.harness.answer(to_2, vote_response(5, leader_id=LEADER_ID, granted=False, pre_vote=True))
    follower.harness.advance(50)
    again = [send for send in follower.harness.sent if send.destination == endpoint(2)]
    follower.harness.answer(again[0], vote_response(5, leader_id=LEADER_ID, granted=True, pre_vote=True))
    assert follower.harness.role is Role.CANDIDATE


def test_rf30_an_observer_never_asks() -> None:
    follower = Follower3(observer=True)
    follower.is_refused(10 * REFUSED_MS)
    assert follower.follows
