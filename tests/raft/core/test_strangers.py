"""Messages of unknown senders: no member of the cluster, a member's id with a wrong directory id, a foreign node.

The voter set has directory ids here. Each attack ended processes or lost records before `may_be_voter` decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from raft import core
from raft.core.actions import AppendBatches, FenceStateMachine, PersistElectionState, ReportRejectedClaim, Send
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX
from raft.core.events import AppendPrepared, AppendsScheduled, StateDigestReported
from raft.core.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, Request
from raft.core.states import Candidate, Role
from raft.core.types import ReplicaKey, StateDigest
from raft.core.voters import Voter, VoterSet
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    end_quorum_epoch,
    endpoint,
    fetch,
    fetch_response,
    fetch_snapshot,
    key,
    leader_and_epoch,
    of_type,
    replica,
    vote,
    vote_response,
)

LOG = [(3, 4)]
VOTERS = VoterSet(Voter(key(node_id), endpoint(node_id)) for node_id in (1, 2, 3))
ANOTHER_DIRECTORY = UUID(int=1_000)
STRANGERS = [
    ReplicaKey(NodeId(8), ANOTHER_DIRECTORY),
    ReplicaKey(NodeId(8)),
    ReplicaKey(NodeId(2), ANOTHER_DIRECTORY),
    ReplicaKey(NodeId(2)),
]
ELSEWHERE = Endpoint("elsewhere", 1)


def leader() -> Harness:
    return replica(voter_set=VOTERS, log=LOG, election_state=election_state(5)).make_leader()


def follower() -> Harness:
    return replica(voter_set=VOTERS, log=LOG, election_state=election_state(5, leader_id=3))


def unattached() -> Harness:
    return replica(voter_set=VOTERS, log=LOG, election_state=election_state(5))


def observer() -> Harness:
    return replica(voter_set=VOTERS, log=LOG, election_state=election_state(5, leader_id=3), observer=True)


RECEIVERS = {"leader": leader, "follower": follower, "unattached": unattached, "observer": observer}


@pytest.fixture(params=RECEIVERS.values(), ids=RECEIVERS.keys())
def receiver(request: pytest.FixtureRequest) -> Harness:
    build: Callable[[], Harness] = request.param
    return build()


@pytest.fixture(params=STRANGERS, ids=str)
def stranger(request: pytest.FixtureRequest) -> ReplicaKey:
    found: ReplicaKey = request.param
    return found


def say(harness: Harness, request: Request) -> ErrorCode:
    """Deliver an unknown sender's message: the replica's state does not change, and the claim is reported."""
    state, epoch = harness.state, harness.epoch
    actions = harness.deliver(request)
    assert (harness.state, harness.epoch) == (state, epoch)
    assert not of_type(PersistElectionState, actions)
    assert len(of_type(ReportRejectedClaim, actions)) == 1
    (error,) = [action.response.error for action in actions if hasattr(action, "response")]
    assert isinstance(error, ErrorCode)
    return error


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize("epochs_ahead", [0, 1, EPOCHS_AT_ONCE_MAX])
def test_a_strangers_vote_opens_no_epoch_and_gets_no_vote(
    receiver: Harness, stranger: ReplicaKey, epochs_ahead: int, pre_vote: bool
) -> None:
    epoch = receiver.epoch + epochs_ahead
    request = vote(2, epoch, last_epoch=epoch - 1, last_offset=100, pre_vote=pre_vote)
    for _ in range(3):
        assert say(receiver, replace(request, replica_key=stranger)) is ErrorCode.NONE


@pytest.mark.parametrize("make", [begin_quorum_epoch, end_quorum_epoch])
@pytest.mark.parametrize("epochs_ahead", [0, 1, EPOCHS_AT_ONCE_MAX])
def test_a_stranger_that_says_it_leads_is_not_followed(
    receiver: Harness,
    stranger: ReplicaKey,
    epochs_ahead: int,
    make: Callable[..., BeginQuorumEpochRequest | EndQuorumEpochRequest],
) -> None:
    request = make(
        stranger.node_id,
        receiver.epoch + epochs_ahead,
        leader_endpoint=ELSEWHERE,
        leader_directory_id=stranger.directory_id,
    )
    assert say(receiver, request) is ErrorCode.INVALID_REQUEST
    receiver.advance(1)
    assert ELSEWHERE not in [send.destination for send in receiver.sent]


def test_nobody_connects_to_where_a_message_says(receiver: Harness) -> None:
    """The message names the real leader, which is taken; the address in it is not."""
    request = begin_quorum_epoch(
        3, receiver.epoch + 1, leader_endpoint=ELSEWHERE, leader_directory_id=key(3).directory_id
    )
    assert receiver.ask(request).error is ErrorCode.NONE
    assert (receiver.role, receiver.leader_id) == (Role.FOLLOWER, 3)
    receiver.advance(3_000)
    assert {send.destination for send in receiver.sent} <= {endpoint(1), endpoint(2), endpoint(3)}


def test_made_up_fetches_acknowledge_nothing(stranger: ReplicaKey) -> None:
    """Consider a leader without contact to other voters, and forged fetches, each of which shows a voter as level."""
    harness = leader()
    harness.step(AppendPrepared(1, Epoch(harness.epoch), b"body", 1))
    harness.step(AppendsScheduled())
    harness.flush()
    end_offset = harness.replica_state.log.end_offset
    for node_id in (2, 3):
        claimed = stranger._replace(node_id=NodeId(node_id)) if stranger.node_id == 2 else stranger
        request = replace(fetch(2, harness.epoch, end_offset, harness.epoch), replica_key=claimed)
        harness.deliver(request)
    assert harness.replica.high_watermark == -1
    harness.advance(harness.environment.config.check_quorum_timeout_ms)
    assert harness.role is Role.RESIGNED, "they do not make a quorum either"


def test_made_up_fetches_of_snapshots_make_no_quorum(stranger: ReplicaKey) -> None:
    harness = leader()
    for _ in range(10):
        harness.advance(harness.environment.config.check_quorum_timeout_ms // 8)
        if harness.role is not Role.LEADER:
            break
        request = fetch_snapshot(2, harness.epoch, harness.replica_state.log.end)
        harness.deliver(replace(request, replica_key=stranger))
    assert harness.role is Role.RESIGNED


def test_made_up_digests_fence_nobody(stranger: ReplicaKey) -> None:
    harness = leader()
    own = StateDigest(Offset(2), b"\1" * 16)
    assert not of_type(FenceStateMachine, harness.step(StateDigestReported(own)))
    for node_id in (2, 3):
        claimed = stranger._replace(node_id=NodeId(node_id)) if stranger.node_id == 2 else stranger
        request = fetch(2, harness.epoch, 4, 3, state_digest=StateDigest(Offset(2), b"\2" * 16))
        actions = harness.deliver(replace(request, replica_key=claimed))
        assert not of_type(FenceStateMachine, actions)
    assert not harness.replica_state.state_machine.is_fenced
    right = harness.ask(fetch(3, harness.epoch, 4, 3, state_digest=own, max_wait_ms=0))
    assert right.expected_state_digest is None, "nor is a voter with the right digest notified"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
@pytest.mark.parametrize("epochs_ahead", [0, 1])
def test_a_non_voter_that_is_named_as_leader_is_not_asked_for_records(error: ErrorCode, epochs_ahead: int) -> None:
    harness = follower()
    state = harness.state
    (send,) = [sent for sent in harness.sent if isinstance(sent.request, FetchRequest)]
    response = fetch_response(
        8, harness.epoch + epochs_ahead, batch(4, 1, 5), error=error, leader_endpoint=ELSEWHERE, high_watermark=5
    )
    actions = harness.answer(send, response)
    assert len(of_type(ReportRejectedClaim, actions)) == 1
    assert not of_type(AppendBatches, actions)
    assert harness.state is state
    assert harness.output.connections.is_backing_off(send.destination), "nor is it asked again as fast as it answers"
    assert ELSEWHERE not in [sent.destination for sent in of_type(Send, actions)]


def test_a_request_for_another_replica_moves_nobody(receiver: Harness) -> None:
    """Consider an old node whose address another node has now: requests for the old node do not affect the new one."""
    state = receiver.state
    wrong = (receiver.environment.key or key(1))._replace(directory_id=ANOTHER_DIRECTORY)
    for request in (
        vote(2, receiver.epoch + 1, last_epoch=3, last_offset=100, voter_key=wrong),
        begin_quorum_epoch(3, receiver.epoch + 1, voter_key=wrong, leader_directory_id=key(3).directory_id),
    ):
        assert receiver.ask(request).error is ErrorCode.INVALID_VOTER_KEY
        assert receiver.state is state


def test_a_leader_of_an_older_version_is_found_although_it_does_not_say_its_directory_id() -> None:
    harness = unattached()
    assert harness.ask(begin_quorum_epoch(3, 6)).error is ErrorCode.INVALID_REQUEST
    (send,) = [sent for sent in harness.sent if isinstance(sent.request, FetchRequest)]
    harness.answer(send, fetch_response(3, 6, error=ErrorCode.FENCED_LEADER_EPOCH))
    assert (harness.role, harness.leader_id, harness.epoch) == (Role.FOLLOWER, 3, 6)


def test_without_directory_ids_a_voter_is_known_by_its_id_alone() -> None:
    """RF-01: that is all that there is."""
    harness = replica(log=LOG, election_state=election_state(5))
    request = replace(vote(2, 6, last_epoch=3, last_offset=4), replica_key=ReplicaKey(NodeId(2), ANOTHER_DIRECTORY))
    assert harness.ask(request).vote_granted


# --- a rejected peer does not flood -----------------------------------------------------------------------------------


def test_a_candidate_that_nobody_takes_for_a_voter_counts_that_as_no() -> None:
    """Consider a node with a copied configuration: the other nodes do not enter its epoch, and answer with theirs."""
    harness = unattached().make_candidate()
    assert isinstance(harness.state, Candidate)
    epoch = harness.epoch
    for send in [sent for sent in harness.sent if not isinstance(sent.request, FetchRequest)]:
        harness.answer(send, vote_response(epoch - 1, granted=False, leader_id=3))
    assert (harness.role, harness.epoch, harness.state.votes.is_lost) == (Role.CANDIDATE, epoch, True)
    harness.advance(500)
    assert harness.sent == [], "it asks again in its next election, not as fast as they answer"


def test_a_vote_of_another_epoch_is_no_vote() -> None:
    harness = unattached().make_candidate()
    for send in [sent for sent in harness.sent if not isinstance(sent.request, FetchRequest)]:
        harness.answer(send, vote_response(harness.epoch - 1, granted=True))
    assert harness.role is Role.CANDIDATE


def test_a_candidate_sets_aside_whoever_is_not_the_voter_that_it_asked() -> None:
    harness = unattached().make_candidate()
    first, second = [sent for sent in harness.sent if not isinstance(sent.request, FetchRequest)]
    harness.answer(first, vote_response(harness.epoch - 1, granted=False, error=ErrorCode.INVALID_VOTER_KEY))
    harness.advance(100)
    assert harness.sent == []
    harness.answer(second, vote_response(harness.epoch, granted=True))
    assert harness.role is Role.LEADER


def test_a_leader_that_is_told_of_another_one_goes_on() -> None:
    harness = leader()
    before = leader_and_epoch(1, harness.epoch)
    error = say(harness, begin_quorum_epoch(3, harness.epoch, leader_directory_id=key(3).directory_id))
    assert error is ErrorCode.INVALID_REQUEST
    assert harness.replica.leader_and_epoch == before


def test_one_function_decides_who_may_be_a_voter() -> None:
    """Once voters change, the answer changes in one place. `Environment` asks the voter set about its own replica."""
    modules = Path(core.__file__).parent.glob("*.py")
    asking = {path.stem for path in modules if "voters.is_voter(" in path.read_text()}
    assert asking == {"membership", "environment"}
