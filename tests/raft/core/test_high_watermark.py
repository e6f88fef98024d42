"""When the high watermark moves, on the leader and on its followers (RF-40 to RF-48).

Rules that tests here are named after: RF-41, RF-42, RF-43, RF-44, RF-45, RF-46, RF-74.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT, UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.actions import AdvanceHighWatermark, AppendLeaderChange, CompleteAppend, FlushLog, PersistElectionState
from raft.core.events import LogFlushed
from raft.core.messages import LeaderChange
from raft.core.types import ReplicaKey
from tests.raft.core.builders import (
    Harness,
    batch,
    endpoint,
    fetch,
    fetch_response,
    key,
    of_type,
    replica,
    vote_response,
)
from tests.raft.core.fetching import END, EPOCH, append, committed_leader, follower, leader, the_fetch

# --- the leader -------------------------------------------------------------------------------------------------------


def test_rf40_a_new_leader_opens_its_epoch_with_one_control_record() -> None:
    harness = replica(log=[(1, 5)]).make_candidate()
    send = next(send for send in harness.sent if send.destination == endpoint(3))
    actions = harness.answer(send, vote_response(2, granted=True))
    (change,) = of_type(AppendLeaderChange, actions)
    voters = tuple(ReplicaKey(NodeId(node_id)) for node_id in (1, 2, 3))
    assert change == AppendLeaderChange(
        Offset(5), Epoch(2), LeaderChange(leader_id=NodeId(1), voters=voters, granting_voters=(voters[0], voters[2]))
    )
    assert of_type(FlushLog, actions) == [FlushLog(Offset(6))]
    assert actions.index(change) > actions.index(of_type(PersistElectionState, actions)[0])


def test_rf40_a_new_leader_notes_where_its_epoch_starts() -> None:
    harness = replica(log=[(1, 5)]).make_leader()
    assert harness.replica_state.log.epochs.entries() == [(1, 0), (2, 5)]
    assert harness.leading.epoch_start_offset == 5
    assert harness.replica.next_append_offset == 6


def test_rf41_the_high_watermark_is_what_a_majority_has() -> None:
    harness = leader(voter_count=5)
    append(harness, record_count=9)
    harness.flush()
    for voter_id, offset, expected in [(2, 8, -1), (3, 5, 5), (4, 3, 5), (5, 9, 8), (3, 10, 9), (2, 10, 10)]:
        harness.ask(fetch(voter_id, EPOCH, offset, EPOCH))
        assert harness.replica.high_watermark == expected


def test_rf41_two_voters_both_count() -> None:
    harness = leader(voter_count=2)
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK
    harness.ask(fetch(2, EPOCH, END, EPOCH))
    assert harness.replica.high_watermark == END


def test_rf42_the_leader_change_alone_on_a_majority_commits_the_log_up_to_it() -> None:
    harness = replica(log=[(1, 5)]).make_leader()
    actions = harness.deliver(fetch(2, 2, 6, 2))
    assert of_type(AdvanceHighWatermark, actions) == [AdvanceHighWatermark(Offset(6))]


@pytest.mark.parametrize("fetch_offset", [3, 5])
def test_rf42_records_of_earlier_epochs_on_a_majority_are_not_committed_by_themselves(fetch_offset: int) -> None:
    harness = replica(log=[(1, 5)]).make_leader()
    for voter_id in (2, 3):
        actions = harness.deliver(fetch(voter_id, 2, fetch_offset, 1))
        assert of_type(AdvanceHighWatermark, actions) == []
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_rf43_the_high_watermark_stays_when_a_voter_fetches_from_further_back() -> None:
    harness = committed_leader()
    append(harness)
    harness.flush()
    harness.ask(fetch(2, EPOCH, 2, EPOCH))
    actions = harness.deliver(fetch(2, EPOCH, 0, 0))
    assert harness.replica.high_watermark == 2
    assert of_type(AdvanceHighWatermark, actions) == []


def test_rf44_observers_and_tools_do_not_move_the_high_watermark() -> None:
    harness = leader()
    for sender_id in (8, 9, None):
        harness.ask(fetch(sender_id, EPOCH, END, EPOCH))
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_rf44_a_replica_that_claims_to_be_the_leader_does_not_count_twice() -> None:
    harness = leader()
    harness.ask(fetch(1, EPOCH, END, EPOCH))
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_rf45_the_leader_counts_what_it_has_flushed_and_no_more() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    harness.ask(fetch(2, EPOCH, 2, EPOCH))
    assert harness.replica.high_watermark == END  # one of three has it for good
    actions = harness.step(LogFlushed(Offset(2)))
    assert of_type(CompleteAppend, actions) == [CompleteAppend(7)]
    assert of_type(AdvanceHighWatermark, actions) == [AdvanceHighWatermark(Offset(2))]


def test_rf45_two_followers_commit_what_the_leader_has_not_flushed() -> None:
    harness = committed_leader()
    append(harness, append_id=7)
    harness.ask(fetch(2, EPOCH, 2, EPOCH))
    actions = harness.deliver(fetch(3, EPOCH, 2, EPOCH))
    assert of_type(CompleteAppend, actions) == [CompleteAppend(7)]


def test_rf45_the_only_voter_commits_when_its_flush_is_done() -> None:
    harness = replica(voter_count=1)
    assert harness.replica.is_leader
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK
    actions = harness.flush()
    assert of_type(AdvanceHighWatermark, actions) == [AdvanceHighWatermark(Offset(END))]


def test_rf45_a_flush_that_began_before_the_epoch_does_not_commit_its_first_record() -> None:
    harness = follower(log=[(1, 3)])
    harness.answer(the_fetch(harness), fetch_response(2, 1, batch(3, 2, 1)))
    harness.make_candidate()
    for send in harness.sent:
        if not harness.replica.is_leader:
            harness.answer(send, vote_response(2, granted=True))
    assert harness.replica.is_leader
    harness.ask(fetch(2, 2, 6, 2))
    assert harness.step(LogFlushed(Offset(5))) == [FlushLog(Offset(6))]
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK
    assert of_type(AdvanceHighWatermark, harness.step(LogFlushed(Offset(6)))) == [AdvanceHighWatermark(Offset(6))]


def test_rf74_a_fetch_of_version_17_moves_the_high_watermark_like_any_other() -> None:
    harness = leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, high_watermark=HIGH_WATERMARK_NOT_SENT))
    assert harness.replica.high_watermark == END


@pytest.mark.parametrize(("fetch_offset", "last_fetched_epoch"), [(END + 1, EPOCH), (END, 0)])
def test_rf50_a_fetch_that_diverges_says_nothing_of_what_the_voter_has(
    fetch_offset: int, last_fetched_epoch: int
) -> None:
    harness = leader()
    harness.ask(fetch(2, EPOCH, fetch_offset, last_fetched_epoch))
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK


# --- a follower -------------------------------------------------------------------------------------------------------


def following(high_watermark: int = UNKNOWN_HIGH_WATERMARK) -> Harness:
    """A follower whose log ends at 5, and which knows `high_watermark`; its next fetch is in progress."""
    harness = follower(log=[(1, 5)])
    harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=high_watermark))
    return harness


@pytest.mark.parametrize(("leader_knows", "known"), [(3, 3), (5, 5), (8, 5)])
def test_rf46_a_follower_knows_what_the_leader_does_as_far_as_its_log_goes(leader_knows: int, known: int) -> None:
    assert following(leader_knows).replica.high_watermark == known


def test_rf46_a_follower_tells_listeners_once() -> None:
    harness = following()
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=4))
    assert of_type(AdvanceHighWatermark, actions) == [AdvanceHighWatermark(Offset(4))]
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=4))
    assert of_type(AdvanceHighWatermark, actions) == []


@pytest.mark.parametrize("lower", [2, UNKNOWN_HIGH_WATERMARK, -7])
def test_rf46_a_leader_that_knows_less_takes_nothing_back(lower: int) -> None:
    harness = following(4)
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=lower))
    assert of_type(AdvanceHighWatermark, actions) == []
    assert harness.replica.high_watermark == 4


def test_rf46_appended_batches_are_covered_by_the_high_watermark_that_came_with_them() -> None:
    harness = following(4)
    harness.answer(the_fetch(harness), fetch_response(2, 1, batch(5, 2, 1), high_watermark=7))
    assert harness.replica.high_watermark == 7


def test_rf10_a_follower_keeps_its_high_watermark_in_the_next_epoch() -> None:
    harness = following(4)
    harness.make_follower(3, 2)
    assert harness.replica.high_watermark == 4


def test_rf43_a_new_leader_keeps_what_it_knew_as_a_follower_but_does_not_answer_with_it() -> None:
    harness = following(4).make_leader()
    answer = harness.ask(fetch(2, 2, 0, 0))
    assert harness.replica.high_watermark == 4
    assert answer.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_rf43_a_majority_below_the_known_high_watermark_is_a_bug_that_ends_the_process() -> None:
    harness = leader()
    harness.replica_state.high_watermark = Offset(100)
    with pytest.raises(InvariantViolation, match="never decreases"):
        harness.deliver(fetch(2, EPOCH, END, EPOCH))


def test_rf41_a_static_voter_counts_whatever_directory_it_names() -> None:
    harness = leader()
    harness.ask(fetch(2, EPOCH, END, EPOCH, replica_key=ReplicaKey(NodeId(2), key(7).directory_id)))
    assert harness.replica.high_watermark == END
