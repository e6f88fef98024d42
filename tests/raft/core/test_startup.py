"""The initial state of a replica, from the state on disk (RF-01, RF-02, RF-04, RF-104)."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from kraftbase.errors import ConfigurationError
from kraftbase.sentinels import ZERO_DIRECTORY_ID
from kraftbase.types import NodeId
from raft.core.actions import AppendLeaderChange, FlushLog, PersistElectionState, Send
from raft.core.election_state import ElectionState
from raft.core.messages import EndQuorumEpochRequest, FetchRequest, VoteRequest
from raft.core.replica import Replica
from raft.core.states import Follower, Resigned, Role, Unattached
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from tests.raft.core.builders import (
    CLUSTER_ID,
    CONFIG,
    OBSERVER_ID,
    Harness,
    election_state,
    endpoint,
    key,
    log_state,
    of_type,
    replica,
    voters,
)


def persisted(harness: Harness) -> list[PersistElectionState]:
    return of_type(PersistElectionState, harness.started)


def test_without_a_quorum_state_it_starts_unattached_at_epoch_zero_without_a_vote() -> None:
    harness = replica()
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.leader_id, harness.state.voted_key) == (0, None, None)


def test_without_a_quorum_state_the_epoch_is_the_last_one_in_the_log() -> None:
    harness = replica(log=[(2, 3), (7, 1)])
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, 7)
    assert persisted(harness) == [PersistElectionState(election_state(7))]


def test_a_stored_epoch_below_the_logs_is_raised_and_its_vote_forgotten() -> None:
    harness = replica(log=[(7, 1)], election_state=election_state(6, voted_key=key(2)))
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.state.voted_key) == (7, None)
    assert persisted(harness) == [PersistElectionState(election_state(7))]


def test_a_stored_epoch_below_the_logs_does_not_bring_its_leader_back() -> None:
    harness = replica(log=[(7, 1)], election_state=election_state(6, leader_id=2))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.UNATTACHED, 7, None)


def test_a_stored_leader_starts_as_resigned_in_its_epoch_and_writes_nothing() -> None:
    harness = replica(log=[(5, 1)], election_state=election_state(5, leader_id=1, voted_key=key(1)))
    assert isinstance(harness.state, Resigned)
    assert (harness.epoch, harness.leader_id) == (5, None)
    assert persisted(harness) == []
    ends = [send for send in of_type(Send, harness.started) if isinstance(send.request, EndQuorumEpochRequest)]
    assert [send.destination for send in ends] == [endpoint(2), endpoint(3)]


def test_a_stored_vote_for_itself_starts_as_candidate_in_that_epoch() -> None:
    harness = replica(election_state=election_state(5, voted_key=key(1)))
    assert (harness.role, harness.epoch) == (Role.CANDIDATE, 5)
    assert persisted(harness) == []
    requests = [send.request for send in of_type(Send, harness.started)]
    assert [(type(request), request.replica_epoch) for request in requests if isinstance(request, VoteRequest)] == [
        (VoteRequest, 5),
        (VoteRequest, 5),
    ]
    assert not any(request.pre_vote for request in requests if isinstance(request, VoteRequest))


def test_a_stored_vote_for_its_id_with_another_directory_is_somebody_elses() -> None:
    other = ReplicaKey(NodeId(1), UUID(int=77))
    harness = replica(election_state=election_state(5, voted_key=other))
    assert isinstance(harness.state, Unattached)
    assert harness.state.voted_key == other


def test_a_stored_leader_among_the_voters_is_followed() -> None:
    harness = replica(election_state=election_state(5, leader_id=2))
    assert isinstance(harness.state, Follower)
    assert (harness.epoch, harness.leader_id, harness.state.leader_endpoint) == (5, 2, endpoint(2))
    sends = of_type(Send, harness.started)
    assert [send.destination for send in sends] == [endpoint(2)]
    assert isinstance(sends[0].request, FetchRequest)


def test_a_follower_that_starts_keeps_the_vote_of_its_epoch() -> None:
    harness = replica(election_state=election_state(5, leader_id=2, voted_key=key(3)))
    assert isinstance(harness.state, Follower)
    assert harness.state.voted_key == key(3)
    assert persisted(harness) == []


def test_rf62_a_stored_leader_whose_endpoint_is_unknown_is_remembered_while_unattached() -> None:
    harness = replica(election_state=election_state(5, leader_id=8))
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.leader_id) == (5, 8)
    assert persisted(harness) == []


def test_a_stored_vote_for_another_is_kept_while_unattached() -> None:
    harness = replica(election_state=election_state(5, voted_key=key(3)))
    assert isinstance(harness.state, Unattached)
    assert (harness.epoch, harness.state.voted_key) == (5, key(3))
    assert persisted(harness) == []


def test_an_observer_that_finds_itself_as_leader_starts_unattached_without_a_leader() -> None:
    harness = replica(observer=True, election_state=election_state(5, leader_id=OBSERVER_ID))
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.UNATTACHED, 5, None)


def test_an_observer_that_finds_its_own_vote_starts_unattached() -> None:
    harness = replica(observer=True, election_state=election_state(5, voted_key=key(OBSERVER_ID)))
    assert harness.role is Role.UNATTACHED


def test_nothing_stored_is_written_before_the_first_message_leaves() -> None:
    kinds = [
        type(action) for action in replica(log=[(7, 1)]).started if isinstance(action, PersistElectionState | Send)
    ]
    assert kinds == [PersistElectionState, Send]


@pytest.mark.parametrize(
    ("own", "is_voter"),
    [
        (ReplicaKey(NodeId(1), UUID(int=2)), True),
        (ReplicaKey(NodeId(1), UUID(int=3)), False),
        (ReplicaKey(NodeId(2), UUID(int=2)), True),
        (ReplicaKey(NodeId(3), UUID(int=2)), False),
    ],
    ids=["both match", "other directory", "static voter: any directory", "other id"],
)
def test_rf01_a_voter_is_in_the_set_by_id_and_by_directory_id_where_the_set_knows_it(
    own: ReplicaKey, is_voter: bool
) -> None:
    voter_set = VoterSet([Voter(key(1), endpoint(1)), Voter(ReplicaKey(NodeId(2)), endpoint(2))])
    assert _make(key=own, voter_set=voter_set).is_voter is is_voter


def test_rf02_a_replica_without_an_id_is_an_observer() -> None:
    tool = replica(own_id=None)
    assert not tool.replica.is_voter
    tool.advance(60_000)
    assert tool.role is Role.UNATTACHED


def test_rf02_a_stored_vote_without_an_id_of_ones_own_refuses_the_start() -> None:
    with pytest.raises(ConfigurationError, match="vote"):
        replica(own_id=None, election_state=election_state(5, voted_key=key(1)))


def test_rf02_a_directory_id_of_zero_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="zero"):
        _make(key=ReplicaKey(NodeId(1), ZERO_DIRECTORY_ID), voter_set=voters(3))


@pytest.mark.parametrize(
    ("stored", "epoch"),
    [
        (None, 1),
        (election_state(5), 6),
        (election_state(5, voted_key=key(1)), 5),
        (election_state(5, voted_key=key(2)), 6),
        (election_state(5, leader_id=1), 6),
        (election_state(5, leader_id=1, voted_key=key(1)), 6),
        (election_state(5, leader_id=2), 6),
    ],
    ids=["nothing", "epoch", "own vote", "vote for another", "leader", "voted leader", "another led"],
)
def test_rf04_a_sole_voter_leads_at_once_whatever_it_finds(stored: ElectionState | None, epoch: int) -> None:
    harness = replica(voter_count=1, election_state=stored)
    assert (harness.role, harness.epoch, harness.leader_id) == (Role.LEADER, epoch, 1)
    own = election_state(epoch, leader_id=1, voted_key=key(1))
    assert persisted(harness)[-1] == PersistElectionState(own)
    kinds = [type(action) for action in harness.started]
    assert kinds.index(AppendLeaderChange) > len(kinds) - 1 - kinds[::-1].index(PersistElectionState)
    assert kinds.index(FlushLog) > kinds.index(AppendLeaderChange)
    assert of_type(Send, harness.started) == []


def test_rf04_a_sole_voter_commits_its_first_record_alone() -> None:
    harness = replica(voter_count=1)
    harness.flush()
    assert harness.replica.high_watermark == 1


def test_rf04_an_observer_beside_a_sole_voter_does_not_elect_itself() -> None:
    assert replica(voter_count=1, observer=True).role is Role.UNATTACHED


def _make(*, key: ReplicaKey, voter_set: VoterSet) -> Replica:
    return Replica(
        config=CONFIG,
        cluster_id=CLUSTER_ID,
        key=key,
        endpoint=endpoint(key.node_id),
        voters=voter_set,
        bootstrap_endpoints=(),
        log=log_state(),
        election_state=None,
        random=Random(0),
        now_ms=0,
    )
