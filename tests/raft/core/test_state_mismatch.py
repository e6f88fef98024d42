"""State machines that differ: which is right, which replica is notified, what a fenced replica still does (RF-113)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.core.actions import Action, FenceStateMachine, Send
from raft.core.events import ShutdownRequested, StateDigestReported
from raft.core.messages import DescribeQuorumRequest, EndQuorumEpochRequest, FetchResponse, VoteRequest
from raft.core.state_digests import STATE_DIGESTS_MAX
from raft.core.states import Resigned, Role
from raft.core.types import RecoveringLog, StateDigest
from tests.effort import examples
from tests.raft.core.builders import (
    CONFIG,
    OBSERVER_ID,
    Harness,
    batch,
    end_quorum_epoch,
    endpoint,
    fetch,
    fetch_response,
    of_type,
    replica,
    vote,
)
from tests.raft.core.fetching import (
    END,
    EPOCH,
    committed_leader,
    fetch_replies,
    fetch_request,
    follower,
    leader,
    the_fetch,
)


def digest(end_offset: int, name: str) -> StateDigest:
    """The digest of a state machine there; `name` stands for the state."""
    return StateDigest(Offset(end_offset), name.encode() * 16)


def report(harness: Harness, end_offset: int, name: str) -> list[Action]:
    """The replica's own state machine reaches a checkpoint."""
    return harness.step(StateDigestReported(digest(end_offset, name)))


def tell(harness: Harness, sender_id: int, end_offset: int, name: str, max_wait_ms: int = 0) -> FetchResponse | None:
    """A fetch at the end of the log that carries a checkpoint; its answer, None if it is parked."""
    request = fetch(
        sender_id,
        harness.epoch,
        harness.replica.log_end_offset,
        harness.epoch,
        max_wait_ms=max_wait_ms,
        high_watermark=max(harness.replica.high_watermark, 0),
        state_digest=digest(end_offset, name),
    )
    response = harness.ask(request)
    assert response is None or isinstance(response, FetchResponse)
    return response


def diverged(harness: Harness) -> list[int]:
    """The node ids of the replicas that the description shows as diverged."""
    answer = harness.ask(DescribeQuorumRequest())
    return [line.key.node_id for line in (*answer.voters, *answer.observers) if line.has_diverged]


def fences(actions: list[Action]) -> list[FenceStateMachine]:
    return of_type(FenceStateMachine, actions)


# --- the right digest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own_is_last", [False, True])
@pytest.mark.parametrize(
    ("own", "others", "wrong"),
    [
        pytest.param("a", "", [], id="a sole voter has nobody to differ from"),
        pytest.param("a", "a", [], id="two agree"),
        pytest.param("a", "b", [], id="of two neither is believed"),
        pytest.param("a", "aa", [], id="three agree"),
        pytest.param("a", "ba", [2], id="one of three differs"),
        pytest.param("a", "ab", [3], id="the other differs"),
        pytest.param("a", "bb", [1], id="the leader differs"),
        pytest.param("a", "bc", [], id="all differ: nobody is believed"),
        pytest.param("a", "b-", [], id="one is missing, and the two do not agree"),
        pytest.param("a", "a-", [], id="one is missing, and the two agree"),
        pytest.param("-", "aa", [], id="the leader is missing"),
        pytest.param("-", "ab", [], id="the leader is missing, and the others do not agree"),
        pytest.param("a", "aab-", [4], id="three of five agree"),
        pytest.param("a", "aabb", [4, 5], id="two of five differ"),
        pytest.param("a", "abbb", [1, 2], id="three of five differ from the leader"),
        pytest.param("a", "abbc", [], id="two and two and one: nobody is believed"),
        pytest.param("a", "abb-", [], id="two and two and one missing"),
        pytest.param("-", "aaab", [5], id="the leader is missing, and the others are enough"),
    ],
)
def test_who_is_right_at_one_end_offset(own: str, others: str, wrong: list[int], own_is_last: bool) -> None:
    harness = replica(voter_count=len(others) + 1)
    if others:
        harness.make_leader()
    actions: list[Action] = []
    if own != "-" and not own_is_last:
        actions += report(harness, 10, own)
    for node_id, name in enumerate(others, 2):
        if name != "-" and harness.role is Role.LEADER:
            request = fetch(node_id, EPOCH, END, EPOCH, max_wait_ms=0, state_digest=digest(10, name))
            actions += harness.deliver(request)
    if own != "-" and own_is_last:
        actions += report(harness, 10, own)
    if 1 in wrong:
        assert fences(actions) == [FenceStateMachine(digest(10, "b"), digest(10, "a"))]
        assert harness.role is Role.RESIGNED
    else:
        assert fences(actions) == []
        assert diverged(harness) == wrong


def test_digests_at_different_end_offsets_are_not_compared() -> None:
    harness = leader()
    report(harness, 10, "a")
    tell(harness, 2, 20, "b")
    tell(harness, 3, 30, "c")
    assert diverged(harness) == []


def test_a_voter_that_is_a_checkpoint_ahead_is_compared_where_it_was() -> None:
    harness = leader()
    tell(harness, 2, 10, "b")
    tell(harness, 2, 20, "b")
    report(harness, 10, "a")
    tell(harness, 3, 10, "a")
    assert diverged(harness) == [2]


def test_a_leader_that_differs_is_found_by_voters_that_are_never_at_the_same_checkpoint() -> None:
    harness = leader()
    report(harness, 10, "a")
    tell(harness, 2, 10, "b")
    report(harness, 20, "a")
    tell(harness, 2, 20, "b")
    tell(harness, 3, 10, "b")
    assert harness.role is Role.RESIGNED


def test_who_agrees_further_on_agreed_before_so_a_new_leader_finds_one_that_was_fenced_long_ago() -> None:
    harness = leader()
    for end_offset in (10, 20, 30):
        report(harness, end_offset, "a")
    tell(harness, 2, 10, "b")
    assert diverged(harness) == []
    tell(harness, 3, 30, "a")
    assert diverged(harness) == [2]


def test_who_differs_further_on_says_nothing_of_before() -> None:
    harness = leader()
    for end_offset in (10, 20, 30):
        report(harness, end_offset, "a")
    tell(harness, 2, 10, "b")
    tell(harness, 3, 30, "c")
    assert diverged(harness) == []


def test_checkpoints_of_long_ago_are_forgotten() -> None:
    harness = leader()
    for number in range(1, STATE_DIGESTS_MAX + 2):
        report(harness, 10 * number, "a")
        tell(harness, 3, 10 * number, "a")
        tell(harness, OBSERVER_ID, 10 * number, "a")
    tell(harness, 2, 10, "b")
    assert diverged(harness) == []
    tell(harness, 2, 20, "b")
    assert diverged(harness) == [2]
    assert len(list(reversed(harness.replica_state.state_machine.digests))) == STATE_DIGESTS_MAX
    (observer,) = harness.leading.observers.values()
    assert len(list(reversed(observer.state_digests))) == STATE_DIGESTS_MAX


def test_what_a_state_machine_came_to_before_it_was_made_anew_is_forgotten() -> None:
    harness = leader()
    tell(harness, 2, 20, "b")
    tell(harness, 2, 10, "a")
    report(harness, 20, "a")
    tell(harness, 3, 20, "b")
    assert (harness.role, diverged(harness)) == (Role.LEADER, [])


@given(data=st.data())
@settings(max_examples=examples(150))
def test_whoever_agrees_with_the_majority_is_never_marked_and_in_the_end_everybody_else_is(data: st.DataObject) -> None:
    """Checkpoints are reported in any order among the replicas; a few state machines go wrong at one and stay so."""
    voter_count, checkpoint_count = data.draw(st.sampled_from([3, 5])), 4
    harness = replica(voter_count=voter_count).make_leader()
    wrong = data.draw(st.dictionaries(st.integers(1, voter_count), st.integers(0, 3), max_size=voter_count // 2))
    turns = data.draw(st.permutations([*range(1, voter_count + 1)] * checkpoint_count))
    reached = dict.fromkeys(turns, 0)
    actions: list[Action] = []
    for node_id in turns:
        name = "b" if reached[node_id] >= wrong.get(node_id, checkpoint_count) else "a"
        reached[node_id] += 1
        if harness.role is not Role.LEADER:
            break
        if node_id == 1:
            actions += report(harness, reached[node_id], name)
        else:
            checkpoint = digest(reached[node_id], name)
            actions += harness.deliver(fetch(node_id, EPOCH, END, EPOCH, max_wait_ms=0, state_digest=checkpoint))
        assert set(diverged(harness) if harness.role is Role.LEADER else []) <= set(wrong)
    assert (fences(actions) != []) == (harness.role is Role.RESIGNED) == (1 in wrong)
    assert harness.role is Role.RESIGNED or diverged(harness) == sorted(wrong)


# --- observers --------------------------------------------------------------------------------------------------------


def test_an_observer_is_compared_with_what_the_voters_came_to() -> None:
    harness = leader()
    tell(harness, OBSERVER_ID, 10, "b")
    report(harness, 10, "a")
    assert diverged(harness) == []  # the voters may still report b
    tell(harness, 2, 10, "a")
    assert diverged(harness) == [OBSERVER_ID]
    tell(harness, 8, 10, "b")
    tell(harness, 7, 10, "a")
    assert diverged(harness) == [OBSERVER_ID, 8]


def test_observers_have_no_say() -> None:
    harness = leader()
    report(harness, 10, "a")
    for observer_id in (7, 8, 9):
        tell(harness, observer_id, 10, "b")
    tell(harness, 2, 10, "a")
    assert (harness.role, diverged(harness)) == (Role.LEADER, [7, 8, 9])


def test_an_observer_is_compared_with_a_sole_voter() -> None:
    harness = replica(voter_count=1)
    harness.flush()
    report(harness, 10, "a")
    tell(harness, OBSERVER_ID, 10, "b")
    assert diverged(harness) == [OBSERVER_ID]


def test_of_two_voters_neither_is_believed_without_the_other() -> None:
    harness = replica(voter_count=2).make_leader()
    report(harness, 10, "a")
    tell(harness, OBSERVER_ID, 10, "b")
    assert diverged(harness) == []
    tell(harness, 2, 10, "a")
    assert diverged(harness) == [OBSERVER_ID]


# --- how the leader notifies ------------------------------------------------------------------------------------------


def one_diverged() -> Harness:
    """Leads three voters with the high watermark at the end of the log; voter 2 will report another digest at 10."""
    harness = replica(voter_count=3).make_leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH))
    report(harness, 10, "a")
    tell(harness, 3, 10, "a")
    return harness


def test_who_differs_is_told_at_once_and_then_waits_like_everybody() -> None:
    harness = one_diverged()
    first = tell(harness, 2, 10, "b", max_wait_ms=500)
    assert first is not None and first.error is ErrorCode.NONE
    assert first.expected_state_digest == digest(10, "a")
    assert tell(harness, 2, 10, "b", max_wait_ms=500) is None
    (second,) = fetch_replies(harness.advance(500))
    assert second.expected_state_digest == digest(10, "a")
    assert tell(harness, 2, 20, "b", max_wait_ms=500) is None


def test_data_flows_to_who_differs() -> None:
    harness = one_diverged()
    tell(harness, 2, 10, "b")
    answer = harness.ask(fetch(2, EPOCH, 0, 0, state_digest=digest(10, "b")))
    assert harness.reads is not None
    assert answer.expected_state_digest == digest(10, "a")


def test_who_differs_counts_for_the_high_watermark() -> None:
    harness = replica(voter_count=3).make_leader()
    report(harness, 10, "a")
    tell(harness, 2, 10, "b")
    tell(harness, 3, 10, "a")
    assert (diverged(harness), harness.replica.high_watermark) == ([2], END)


def test_nobody_else_is_told() -> None:
    harness = one_diverged()
    tell(harness, 2, 10, "b")
    for request in (fetch(None, EPOCH, END, EPOCH, max_wait_ms=0), fetch(8, EPOCH, END, EPOCH, max_wait_ms=0)):
        assert harness.ask(request).expected_state_digest is None


def test_a_parked_fetch_tells_what_was_found_meanwhile() -> None:
    harness = committed_leader()
    report(harness, 10, "a")
    assert tell(harness, 2, 10, "b", max_wait_ms=500) is None
    tell(harness, 3, 10, "a")
    (answer,) = fetch_replies(harness.advance(500))
    assert answer.expected_state_digest == digest(10, "a")


@pytest.mark.parametrize(
    ("later", "is_marked"),
    [
        pytest.param(None, True, id="a fetch without a digest"),
        pytest.param((5, "a"), True, id="right before it differed"),
        pytest.param((10, "a"), False, id="right where it differed: its state was rebuilt"),
        pytest.param((20, "a"), False, id="right further on"),
        pytest.param((20, "b"), True, id="wrong further on"),
        pytest.param((15, "a"), True, id="further on, where nobody else has a checkpoint"),
    ],
)
def test_the_mark_stays_until_it_is_right_there_or_further_on(later: tuple[int, str] | None, is_marked: bool) -> None:
    harness = replica(voter_count=3).make_leader()
    for end_offset in (5, 10, 20):
        report(harness, end_offset, "a")
        tell(harness, 3, end_offset, "a")
    tell(harness, 2, 10, "b")
    assert diverged(harness) == [2]
    request = fetch(2, EPOCH, END, EPOCH, max_wait_ms=0, state_digest=None if later is None else digest(*later))
    answer = harness.ask(request)
    assert (diverged(harness) == [2], answer.expected_state_digest is not None) == (is_marked, is_marked)


def test_a_digest_below_zero_is_refused_and_changes_nothing() -> None:
    harness = one_diverged()
    before = harness.leading.voters[next(iter(harness.leading.voters))].last_fetch_ms
    harness.advance(1)
    answer = tell(harness, 2, -1, "b")
    assert answer is not None and answer.error is ErrorCode.INVALID_REQUEST
    assert harness.leading.voters[next(iter(harness.leading.voters))].last_fetch_ms == before
    report(harness, -1, "a")
    assert harness.replica_state.state_machine.digests.latest == digest(10, "a")


# --- a leader that differs --------------------------------------------------------------------------------------------


def fenced_leader() -> tuple[Harness, list[Action]]:
    """A leader of three voters, of which the other two have another digest."""
    harness = committed_leader()
    report(harness, 10, "a")
    _ = harness.sent  # from here on
    tell(harness, 2, 10, "b")
    request = fetch(3, EPOCH, END, EPOCH, state_digest=digest(10, "b"), high_watermark=END)
    return harness, harness.deliver(request)


def test_a_leader_that_differs_resigns_and_is_not_elected_again() -> None:
    harness, actions = fenced_leader()
    assert fences(actions) == [FenceStateMachine(digest(10, "b"), digest(10, "a"))]
    assert isinstance(harness.state, Resigned)
    assert {type(send.request) for send in harness.sent} == {EndQuorumEpochRequest}
    (answer,) = fetch_replies(actions)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    later = harness.advance(60_000)
    assert harness.role is Role.UNATTACHED
    assert fences(later) == []


def test_a_leader_prefers_candidates_that_do_not_differ() -> None:
    harness = committed_leader()
    report(harness, 10, "a")
    tell(harness, 2, 10, "b")
    tell(harness, 3, 10, "a")
    assert diverged(harness) == [2]
    harness.step(ShutdownRequested())
    ends = [send.request for send in harness.sent if isinstance(send.request, EndQuorumEpochRequest)]
    assert [[key.node_id for key in request.preferred_candidates] for request in ends] == [[3, 2]] * 2


# --- a follower that differs ------------------------------------------------------------------------------------------


def answered(harness: Harness, send: Send, expected: StateDigest) -> list[Action]:
    return harness.answer(send, fetch_response(2, harness.epoch, expected_state_digest=expected))


def fenced_follower() -> Harness:
    """Follows voter 2, which reported that this state machine differs; its next fetch is in progress."""
    harness = follower()
    report(harness, 10, "a")
    assert fences(answered(harness, the_fetch(harness), digest(10, "b"))) != []
    return harness


def test_a_fetch_carries_the_last_checkpoint() -> None:
    harness = follower()
    first = the_fetch(harness)
    assert fetch_request(first).state_digest is None
    report(harness, 10, "a")
    report(harness, 20, "b")
    harness.answer(first, fetch_response(2, EPOCH))
    assert fetch_request(the_fetch(harness)).state_digest == digest(20, "b")


def test_who_is_told_fences_its_state_machine_once() -> None:
    harness = follower()
    report(harness, 10, "a")
    report(harness, 20, "c")
    actions = answered(harness, the_fetch(harness), digest(10, "b"))
    assert fences(actions) == [FenceStateMachine(digest(10, "b"), digest(10, "a"))]
    assert fences(answered(harness, the_fetch(harness), digest(10, "b"))) == []
    assert fences(answered(harness, the_fetch(harness), digest(20, "b"))) == []


@pytest.mark.parametrize("expected", [digest(10, "a"), digest(5, "b"), digest(15, "b"), digest(-1, "b")])
def test_what_it_cannot_compare_or_has_itself_changes_nothing(expected: StateDigest) -> None:
    harness = follower()
    report(harness, 10, "a")
    assert fences(answered(harness, the_fetch(harness), expected)) == []
    harness.time_out()
    assert harness.role is Role.PROSPECTIVE


def test_an_answer_of_an_earlier_epoch_fences_nobody() -> None:
    harness = follower()
    report(harness, 10, "a")
    send = the_fetch(harness)
    harness.make_follower(3, 2)
    assert fences(harness.answer(send, fetch_response(2, 1, expected_state_digest=digest(10, "b")))) == []


def test_a_fenced_follower_goes_on_fetching_and_appending() -> None:
    harness = fenced_follower()
    harness.answer(the_fetch(harness), fetch_response(2, EPOCH, batch(0, 3, EPOCH), high_watermark=3))
    harness.flush()
    assert (harness.replica.log_end_offset, harness.replica.high_watermark) == (3, 3)
    assert fetch_request(the_fetch(harness)).fetch_offset == 3


def test_a_fenced_voter_whose_leader_is_silent_asks_for_a_leader_and_for_no_votes() -> None:
    harness = fenced_follower()
    _ = harness.sent  # from here on
    harness.advance(60_000)
    assert (harness.role, harness.epoch) == (Role.FOLLOWER, EPOCH)
    sent = harness.sent
    assert all(fetch_request(send) for send in sent)
    assert {send.destination for send in sent} == {endpoint(2), endpoint(3)}


def test_a_fenced_voter_votes() -> None:
    harness = fenced_follower()
    assert harness.ask(vote(3, 2, last_epoch=1, last_offset=9)).vote_granted
    harness.advance(60_000)
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 2)


def test_a_fenced_voter_grants_pre_votes_when_its_leader_is_silent() -> None:
    harness = fenced_follower()
    request = vote(3, EPOCH, pre_vote=True)
    assert not harness.ask(request).vote_granted
    harness.now_ms += CONFIG.fetch_timeout_ms
    assert harness.ask(request).vote_granted


def test_a_fenced_voter_does_not_stand_when_the_leader_asks_it_to() -> None:
    harness = fenced_follower()
    harness.ask(end_quorum_epoch(2, EPOCH, preferred=[1, 3]))
    harness.advance(60_000)
    assert harness.role is Role.FOLLOWER


def test_a_fenced_voter_that_has_recovered_is_not_elected_either() -> None:
    harness = follower(recovering=RecoveringLog(Offset(3), Epoch(0), "a damaged segment"))
    report(harness, 10, "a")
    answer = fetch_response(2, EPOCH, batch(0, 3, EPOCH), expected_state_digest=digest(10, "b"))
    assert fences(harness.answer(the_fetch(harness), answer)) != []
    harness.ask(vote(3, 2, last_epoch=1, last_offset=9))
    harness.flush()
    assert (harness.role, harness.replica.is_recovering) == (Role.UNATTACHED, False)
    _ = harness.sent  # from here on
    harness.advance(60_000)
    assert not [send for send in harness.sent if isinstance(send.request, VoteRequest)]
