"""How the leader describes every replica that it knows (RF-47, RF-48).

Rules that tests here are named after: RF-38, RF-73.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from kraftbase.types import NodeId, Offset
from raft.core.messages import DescribeQuorumRequest, ReplicaDescription
from raft.core.serving import OBSERVERS_MAX
from raft.core.states import Role
from raft.core.types import ReplicaKey
from tests.raft.core.builders import CLUSTER_ID, Harness, endpoint, fetch, key, leader_and_epoch, replica
from tests.raft.core.fetching import END, EPOCH, append, committed_leader, follower, leader


def described(harness: Harness, node_id: int) -> ReplicaDescription:
    answer = harness.ask(DescribeQuorumRequest())
    (found,) = [line for line in (*answer.voters, *answer.observers) if line.key.node_id == node_id]
    assert isinstance(found, ReplicaDescription)
    return found


def fetch_at(harness: Harness, fetch_offset: int, sender_id: int = 2) -> ReplicaDescription:
    """A fetch that is not parked, and the description of its sender after it."""
    harness.ask(fetch(sender_id, EPOCH, fetch_offset, EPOCH, max_wait_ms=0))
    return described(harness, sender_id)


# --- the answer as a whole --------------------------------------------------------------------------------------------


def test_the_leader_names_itself_its_high_watermark_and_its_voters_in_order() -> None:
    answer = committed_leader().ask(DescribeQuorumRequest(cluster_id=CLUSTER_ID))
    assert answer.error is ErrorCode.NONE
    assert (answer.leader, answer.leader_endpoint) == (leader_and_epoch(1, EPOCH), endpoint(1))
    assert answer.high_watermark == END
    assert [(line.key.node_id, line.endpoint) for line in answer.voters] == [(n, endpoint(n)) for n in (1, 2, 3)]
    assert answer.observers == ()


def test_a_leader_that_has_committed_nothing_says_so() -> None:
    assert leader().ask(DescribeQuorumRequest()).high_watermark == UNKNOWN_HIGH_WATERMARK


def test_who_does_not_lead_says_who_does() -> None:
    answer = follower(4).ask(DescribeQuorumRequest())
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.leader, answer.leader_endpoint) == (leader_and_epoch(2, 4), endpoint(2))
    assert (answer.voters, answer.observers) == ((), ())


@pytest.mark.parametrize("cluster_id", ["another", ""])
def test_another_clusters_description_is_not_given(cluster_id: str) -> None:
    answer = committed_leader().ask(DescribeQuorumRequest(cluster_id=cluster_id))
    assert (answer.error, answer.voters) == (ErrorCode.INCONSISTENT_CLUSTER_ID, ())


# --- a line of it -----------------------------------------------------------------------------------------------------


def test_rf48_the_leader_describes_itself_as_caught_up_now() -> None:
    harness = committed_leader()
    harness.advance(300)
    append(harness, record_count=4)
    assert described(harness, 1) == ReplicaDescription(
        key=key(1),
        endpoint=endpoint(1),
        log_end_offset=Offset(END + 4),
        log_start_offset=Offset(0),
        last_fetch_ms=harness.now_ms,
        last_caught_up_ms=harness.now_ms,
    )


def test_rf47_a_voter_that_has_not_fetched_is_unknown() -> None:
    assert described(committed_leader(), 3) == ReplicaDescription(
        key=ReplicaKey(NodeId(3)),
        endpoint=endpoint(3),
        log_end_offset=UNKNOWN_OFFSET,
        log_start_offset=UNKNOWN_OFFSET,
        last_fetch_ms=None,
        last_caught_up_ms=None,
    )


def test_rf47_a_replica_that_fetches_at_the_end_is_caught_up_now() -> None:
    harness = leader()
    harness.advance(300)
    line = fetch_at(harness, END)
    assert (line.log_end_offset, line.last_fetch_ms, line.last_caught_up_ms) == (END, harness.now_ms, harness.now_ms)


def test_rf47_one_that_reaches_the_end_of_its_last_fetch_was_caught_up_then() -> None:
    harness = leader()
    fetch_at(harness, END)
    append(harness, record_count=4)
    harness.flush()
    harness.advance(100)
    second_ms = harness.now_ms
    fetch_at(harness, END)
    append(harness, record_count=4)
    harness.advance(100)
    line = fetch_at(harness, END + 4)
    assert (line.log_end_offset, line.last_fetch_ms, line.last_caught_up_ms) == (END + 4, harness.now_ms, second_ms)


def test_rf47_one_that_falls_behind_was_caught_up_when_it_last_reached_the_end() -> None:
    harness = leader()
    caught_up_ms = fetch_at(harness, END).last_caught_up_ms
    append(harness, record_count=8)
    for fetch_offset in (END, END + 2):
        harness.advance(100)
        line = fetch_at(harness, fetch_offset)
    assert (line.log_end_offset, line.last_fetch_ms) == (END + 2, harness.now_ms)
    assert line.last_caught_up_ms == caught_up_ms


def test_rf47_one_that_was_never_near_the_end_was_never_caught_up() -> None:
    harness = leader()
    append(harness, record_count=8)
    assert fetch_at(harness, END).last_caught_up_ms is None
    harness.advance(100)
    assert fetch_at(harness, END + 2).last_caught_up_ms is None


def test_rf45_a_replica_that_fetches_from_further_back_is_described_so() -> None:
    harness = leader()
    append(harness, record_count=8)
    fetch_at(harness, END + 8)
    assert fetch_at(harness, END + 2).log_end_offset == END + 2


def test_where_logs_start_is_described() -> None:
    harness = replica(start=(1, 7), log=[(1, 3)]).make_leader()
    end = harness.replica.log_end_offset
    assert described(harness, 1).log_start_offset == 7
    harness.ask(fetch(2, 2, end, 2, max_wait_ms=0, log_start_offset=Offset(9)))
    assert described(harness, 2).log_start_offset == 9
    harness.ask(fetch(2, 2, end, 2, max_wait_ms=0))
    assert described(harness, 2).log_start_offset == UNKNOWN_OFFSET


# --- observers --------------------------------------------------------------------------------------------------------


def test_rf44_an_observer_is_described_but_is_no_voter() -> None:
    harness = committed_leader()
    fetch_at(harness, END, sender_id=9)
    answer = harness.ask(DescribeQuorumRequest())
    assert [line.key for line in answer.observers] == [key(9)]
    assert answer.observers[0].endpoint is None
    assert len(answer.voters) == 3


def test_observers_are_described_in_the_order_of_their_last_fetches() -> None:
    harness = committed_leader()
    for sender_id in (7, 8, 9, 7):
        fetch_at(harness, END, sender_id)
    assert [line.key.node_id for line in harness.ask(DescribeQuorumRequest()).observers] == [8, 9, 7]


def test_who_claims_to_be_the_leader_is_no_observer_of_it() -> None:
    harness = committed_leader()
    harness.ask(fetch(1, EPOCH, END, EPOCH, max_wait_ms=0))
    assert harness.ask(DescribeQuorumRequest()).observers == ()


def test_rf73_a_tool_is_answered_and_neither_described_nor_counted() -> None:
    harness = leader()
    harness.advance(2999)
    harness.ask(fetch(None, EPOCH, 0, 0))
    assert harness.reads is not None
    answer = harness.ask(DescribeQuorumRequest())
    assert (answer.observers, answer.high_watermark) == ((), UNKNOWN_HIGH_WATERMARK)
    assert all(line.last_fetch_ms is None for line in answer.voters if line.key.node_id != 1)
    harness.advance(1)
    assert harness.role is Role.RESIGNED


def test_one_node_id_with_two_directories_is_two_observers() -> None:
    harness = committed_leader()
    for directory_of in (20, 21):
        replica_key = ReplicaKey(NodeId(9), key(directory_of).directory_id)
        harness.ask(fetch(9, EPOCH, END, EPOCH, max_wait_ms=0, replica_key=replica_key))
    assert len(harness.ask(DescribeQuorumRequest()).observers) == 2


def test_rf38_an_observer_that_has_not_fetched_for_long_is_forgotten() -> None:
    harness = committed_leader(observer_expiration_ms=1000)
    fetch_at(harness, END, sender_id=8)
    harness.advance(400)
    fetch_at(harness, END, sender_id=9)
    harness.advance(599)
    assert len(harness.ask(DescribeQuorumRequest()).observers) == 2
    harness.advance(1)
    assert [line.key for line in harness.ask(DescribeQuorumRequest()).observers] == [key(9)]


def test_the_leader_remembers_a_bounded_number_of_observers() -> None:
    harness = committed_leader()
    first = 100
    for sender_id in range(first, first + OBSERVERS_MAX):
        harness.ask(fetch(sender_id, EPOCH, END, EPOCH, max_wait_ms=0))
    harness.ask(fetch(first, EPOCH, END, EPOCH, max_wait_ms=0))  # it fetched last now
    harness.ask(fetch(50, EPOCH, END, EPOCH, max_wait_ms=0))
    node_ids = [line.key.node_id for line in harness.ask(DescribeQuorumRequest()).observers]
    assert len(node_ids) == OBSERVERS_MAX
    assert first + 1 not in node_ids
    assert node_ids[-2:] == [first, 50]
