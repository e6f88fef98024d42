"""Fenced state machines are rebuilt without an operator, one voter's at a time, and no voter waits for ever."""

from __future__ import annotations

from kraftbase.types import Offset
from raft.core.actions import Action, RebuildStateMachine
from raft.core.events import StateMachineFenced
from raft.core.messages import DescribeQuorumRequest, FetchResponse
from raft.core.rebuilding import REBUILD_LEASE_MS, REBUILD_WAIT_MS
from raft.core.states import Role
from raft.core.types import StateDigest
from tests.raft.core.builders import OBSERVER_ID, Harness, fetch, fetch_response, of_type, replica
from tests.raft.core.fetching import END, EPOCH, fetch_request, follower, leader, the_fetch

CAME_TO = StateDigest(Offset(10), bytes(16))


def rebuilds(actions: list[Action]) -> int:
    return len(of_type(RebuildStateMachine, actions))


def ask(
    harness: Harness, sender_id: int, *, wants_rebuild: bool = True, state_digest: StateDigest | None = None
) -> bool:
    """A voter or an observer fetches; whether it is permitted to rebuild."""
    request = fetch(sender_id, EPOCH, END, EPOCH, max_wait_ms=0, wants_rebuild=wants_rebuild, state_digest=state_digest)
    answer = harness.ask(request)
    assert isinstance(answer, FetchResponse)
    return answer.may_rebuild


def keep_leading(harness: Harness, ms: int) -> None:
    """Time passes while voter 3 fetches."""
    for _ in range(ms // 1_000):
        harness.advance(1_000)
        ask(harness, 3, wants_rebuild=False)


def test_one_voter_at_a_time_is_let() -> None:
    harness = leader()
    assert ask(harness, 2)
    assert not ask(harness, 3)
    assert ask(harness, 2)  # the answer may have been lost
    keep_leading(harness, 2_000)
    assert not ask(harness, 3)
    ask(harness, 2, wants_rebuild=False)  # it is back, and has no digest yet
    assert not ask(harness, 3)
    ask(harness, 2, wants_rebuild=False, state_digest=CAME_TO)
    assert ask(harness, 3)
    assert not ask(harness, 2)


def test_what_it_sends_before_it_goes_lets_nobody_else() -> None:
    harness = leader()
    assert ask(harness, 2)
    ask(harness, 2, wants_rebuild=False, state_digest=CAME_TO)
    assert not ask(harness, 3)


def test_one_that_does_not_come_back_is_waited_for_so_long() -> None:
    harness = leader()
    assert ask(harness, 2)
    keep_leading(harness, REBUILD_LEASE_MS - 1_000)
    assert not ask(harness, 3)
    keep_leading(harness, 1_000)
    assert ask(harness, 3)


def test_observers_wait_for_nobody_and_nobody_for_them() -> None:
    harness = leader()
    assert ask(harness, OBSERVER_ID)
    assert ask(harness, 2)
    assert ask(harness, OBSERVER_ID)


def test_who_asks_for_none_is_let_none_and_who_asks_is_shown() -> None:
    harness = leader()
    assert not ask(harness, 2, wants_rebuild=False)
    ask(harness, 3)
    answer = harness.ask(DescribeQuorumRequest())
    assert [line.key.node_id for line in answer.voters if line.has_diverged] == [3]


def test_a_follower_asks_until_it_is_let_and_begins_once() -> None:
    harness = follower()
    send = the_fetch(harness)
    assert not fetch_request(send).wants_rebuild
    assert rebuilds(harness.answer(send, fetch_response(2, EPOCH, may_rebuild=True))) == 0
    assert rebuilds(harness.step(StateMachineFenced())) == 0
    harness.answer(the_fetch(harness), fetch_response(2, EPOCH))
    send = the_fetch(harness)
    assert fetch_request(send).wants_rebuild
    assert rebuilds(harness.answer(send, fetch_response(2, EPOCH, may_rebuild=True))) == 1
    send = the_fetch(harness)
    assert not fetch_request(send).wants_rebuild
    assert rebuilds(harness.answer(send, fetch_response(2, EPOCH, may_rebuild=True))) == 0


def test_without_a_leader_that_lets_it_a_fenced_replica_goes_ahead_after_a_while() -> None:
    harness = follower()
    harness.step(StateMachineFenced())
    assert rebuilds(harness.advance(REBUILD_WAIT_MS - 1)) == 0
    assert rebuilds(harness.advance(REBUILD_WAIT_MS + 1)) == 1
    assert rebuilds(harness.advance(REBUILD_WAIT_MS)) == 0


def test_a_leader_resigns_first() -> None:
    harness = leader()
    assert rebuilds(harness.step(StateMachineFenced())) == 0
    assert harness.role is Role.RESIGNED


def test_a_sole_voter_begins_at_once() -> None:
    harness = replica(voter_count=1)
    assert harness.role is Role.LEADER
    assert rebuilds(harness.step(StateMachineFenced())) == 1
