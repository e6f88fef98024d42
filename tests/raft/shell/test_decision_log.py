"""A node's debug log: each decision in one line, with its reason and the values that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from structlog.testing import capture_logs

from kraftbase.types import Epoch, NodeId, Offset
from raft.core.config import QuorumConfig
from raft.core.events import RequestFailed, RequestReceived, ResponseReceived, StateMachineFenced
from raft.core.messages import FetchRequest, FetchResponse, Request, VoteRequest
from raft.core.types import LeaderAndEpoch
from raft.shell.decision_log import DecisionLog
from raft.storage.batch import decode_batches, encode_batch, encode_body
from tests.raft.core.builders import begin_quorum_epoch, end_quorum_epoch, vote
from tests.raft.shell.voter_shell import CLUSTER_ID, OBSERVER, VOTERS, LeadingShell, VoterShell

ONE, TWO, THREE = (voter.key for voter in VOTERS.voters())
EPOCH = Epoch(3)
LEADER = LeaderAndEpoch(NodeId(2), EPOCH)
TIMEOUT_MS = QuorumConfig().fetch_timeout_ms

Lines: TypeAlias = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as lines:
        yield lines


def told(lines: Lines, event: str) -> list[dict[str, Any]]:
    """The lines of level debug with that event, without the fields that all lines have."""
    return [
        {name: value for name, value in line.items() if name not in ("event", "log_level")}
        for line in lines
        if (line["event"], line["log_level"]) == (event, "debug")
    ]


def deliver(node: VoterShell, request: Request) -> None:
    node.shell.step(RequestReceived(node.shell.new_id(), request))
    node.runtime.run()


def answer_fetch(node: VoterShell, **changes: Any) -> None:
    """The leader's answer to the last fetch."""
    fetch = [send for send in node.sent if isinstance(send.request, FetchRequest)][-1]
    values = {"leader": LEADER, "high_watermark": Offset(0), "log_start_offset": Offset(0), **changes}
    node.shell.outcome(ResponseReceived(fetch.correlation_id, FetchResponse(**values)))
    node.runtime.run()


def asks(candidate: Any, epoch: int, *, log: tuple[int, int], pre_vote: bool = False, **changes: Any) -> VoteRequest:
    """A candidate whose log ends at that offset, in that epoch, asks for a vote."""
    offset, last_epoch = log
    request = vote(0, epoch, last_epoch=last_epoch, last_offset=offset, pre_vote=pre_vote, cluster_id=CLUSTER_ID)
    return replace(request, replica_key=candidate, **changes)


@pytest.fixture
def following(lines: Lines) -> VoterShell:
    """Node 1 follows node 2 in epoch 3 and has one batch of three records."""
    node = VoterShell(observer=DecisionLog())
    deliver(node, begin_quorum_epoch(2, EPOCH, cluster_id=CLUSTER_ID, leader_directory_id=TWO.directory_id))
    answer_fetch(node, records=decode_batches(encode_batch(Offset(0), EPOCH, encode_body([b"r"] * 3), 3, 1).data))
    assert node.end_offset == 3
    lines.clear()
    return node


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asks(THREE, 4, log=(1, 2)), "its log ends at 1 in epoch 2, that of this node at 3 in epoch 3"),
        (asks(THREE, 2, log=(9, 1)), "FENCED_LEADER_EPOCH: this node is in epoch 3"),
        (
            asks(THREE, 4, log=(9, 3), cluster_id="x"),
            f"INCONSISTENT_CLUSTER_ID: its cluster is x, this node's {CLUSTER_ID}",
        ),
        (asks(THREE, 4, log=(9, 3), voter_key=TWO), f"INVALID_VOTER_KEY: it is addressed to {TWO}, this is {ONE}"),
        (asks(THREE, 4, log=(-1, 3)), "INVALID_REQUEST"),
        (asks(OBSERVER, 4, log=(9, 3)), "the candidate is not a voter"),
        (asks(THREE, 3, log=(9, 2)), "2 leads epoch 3"),
    ],
)
def test_why_a_vote_is_refused(following: VoterShell, lines: Lines, request_: VoteRequest, reason: str) -> None:
    deliver(following, request_)
    said = {"candidate": str(request_.replica_key), "epoch": request_.replica_epoch, "reason": reason}
    assert told(lines, "vote refused") == [said]


def test_a_vote_that_was_given_to_another_is_named(following: VoterShell, lines: Lines) -> None:
    deliver(following, asks(THREE, 4, log=(3, 3)))
    assert told(lines, "vote refused") == []
    deliver(following, asks(TWO, 4, log=(3, 3)))
    assert [line["reason"] for line in told(lines, "vote refused")] == [f"it voted for {THREE} in epoch 4"]


def test_a_pre_vote_is_refused_while_the_leader_answers_and_the_line_has_the_time_since(
    following: VoterShell, lines: Lines
) -> None:
    following.runtime.advance(130)
    deliver(following, asks(THREE, EPOCH, log=(3, 3), pre_vote=True))
    assert told(lines, "pre-vote refused") == [
        {"candidate": str(THREE), "epoch": 3, "reason": "leader 2 of epoch 3 answered this node 130 ms ago"}
    ]


def test_who_lacks_what_is_committed_is_refused_with_the_offset(following: VoterShell, lines: Lines) -> None:
    following.runtime.advance(10)
    answer_fetch(following, high_watermark=Offset(3))
    deliver(following, asks(THREE, 4, log=(2, 3)))
    reason = "its log ends at 2 in epoch 3, and everything below 3 is committed"
    assert [line["reason"] for line in told(lines, "vote refused")] == [reason]


def test_a_leader_that_is_silent_is_named_with_the_time(following: VoterShell, lines: Lines) -> None:
    following.runtime.advance(TIMEOUT_MS + 10)
    begun = told(lines, "election begun")
    assert begun == [{"epoch": 3, "reason": f"leader 2 has not answered for {TIMEOUT_MS} ms"}]
    entered = told(lines, "state entered")
    assert entered == [{"left": "follower", "entered": "prospective", "epoch": 3}]


def test_refused_connections_put_an_election_off_until_it_is_this_voters_turn(
    following: VoterShell, lines: Lines
) -> None:
    for _ in range(20):
        fetch = [send for send in following.sent if isinstance(send.request, FetchRequest)][-1]
        following.shell.outcome(RequestFailed(fetch.correlation_id, connection_refused=True))
        following.runtime.advance(50)
    (put_off,) = told(lines, "election put off")[:1]
    assert put_off["reason"] == "the address of leader 2 refuses connections, and its voters take turns"
    assert 0 <= put_off["wait_ms"] < 100
    reason = "the address of leader 2 refuses connections: its process has ended"
    assert told(lines, "election begun")[0]["reason"] == reason


def test_a_leader_that_resigned_is_waited_for_as_long_as_its_preference_says(
    following: VoterShell, lines: Lines
) -> None:
    request = end_quorum_epoch(2, EPOCH, cluster_id=CLUSTER_ID, leader_directory_id=TWO.directory_id)
    deliver(following, replace(request, preferred_candidates=(THREE, ONE)))
    (put_off,) = told(lines, "election put off")
    assert put_off["wait_ms"] > 0
    assert put_off["reason"] == "leader 2 has resigned, and prefers others"
    assert told(lines, "election begun") == []
    following.runtime.advance(put_off["wait_ms"] + 10)
    reason = "leader 2 has resigned, or has answered no fetch in epoch 3"
    assert [line["reason"] for line in told(lines, "election begun")] == [reason]


def test_an_election_that_no_majority_answers_is_put_off(lines: Lines) -> None:
    node = VoterShell(observer=DecisionLog())
    node.runtime.advance(6 * TIMEOUT_MS)
    reasons = [line["reason"] for line in told(lines, "election begun")]
    assert reasons[0] == "no leader of epoch 0 was found within the election timeout"
    (put_off, *_) = told(lines, "election put off")
    assert put_off["reason"] == "pre-votes of [1] alone: no majority has answered within the election timeout"
    assert put_off["wait_ms"] > 0


def test_a_voter_that_may_not_be_elected_says_once_that_its_leader_is_silent(
    following: VoterShell, lines: Lines
) -> None:
    following.shell.step(StateMachineFenced())
    following.runtime.advance(4 * TIMEOUT_MS)
    reason = "leader 2 is silent, but this voter cannot be elected: its state machine is fenced"
    assert told(lines, "election put off") == [{"epoch": 3, "reason": reason}]
    assert told(lines, "election begun") == []


def test_why_a_fetch_is_parked(lines: Lines) -> None:
    node = LeadingShell(observer=DecisionLog())
    lines.clear()
    end_offset = node.end_offset
    node.ask(OBSERVER)
    assert told(lines, "fetch parked") == [
        {
            "replica": str(OBSERVER),
            "wait_ms": QuorumConfig().fetch_max_wait_ms,
            "log_end_offset": end_offset,
            "high_watermark": end_offset,
            "reason": f"its sender has everything up to {end_offset}, and knows the high watermark",
        }
    ]


def test_a_fetch_that_is_answered_is_not_mentioned(lines: Lines) -> None:
    node = LeadingShell(observer=DecisionLog())
    lines.clear()
    node.ask(OBSERVER, Offset(0))
    assert told(lines, "fetch parked") == []


def test_without_the_observer_nothing_of_it_is_logged(lines: Lines) -> None:
    LeadingShell()
    assert [line for line in lines if line["log_level"] == "debug"] == []
