"""Only voters count."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.sim.quorum.invariants.only_voters import OnlyVotersCount
from raft.core.actions import PersistElectionState
from raft.core.states import Role
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, send, violates
from tests.raft.core.builders import OBSERVER_ID, election_state, endpoint, fetch, key

VOTERS = VoterSet(Voter(key(node_id), endpoint(node_id)) for node_id in (1, 2, 3))
FIRST = Endpoint("first", 1)


class Checked:
    """A cluster and the invariant that looks at it."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.invariant = OnlyVotersCount(self.cluster)
        self.become(1, Role.UNATTACHED, 0)

    def become(self, node_id: int, role: Role, epoch: int, *actions: Any) -> None:
        self.cluster.become(node_id, role=role, epoch=epoch, voters=VOTERS, bootstrap_endpoints=(FIRST,))
        self.invariant.after_step(self.cluster.step(node_id, actions=list(actions)))


def test_voters_open_epochs_one_after_the_other_and_others_enter_them() -> None:
    checked = Checked()
    checked.become(1, Role.CANDIDATE, 1, PersistElectionState(election_state(1, voted_key=key(1))))
    checked.become(2, Role.UNATTACHED, 1, PersistElectionState(election_state(1, voted_key=key(1))))
    checked.become(OBSERVER_ID, Role.FOLLOWER, 1, PersistElectionState(election_state(1, leader_id=1)))
    checked.become(1, Role.LEADER, 1)
    checked.become(1, Role.RESIGNED, 1)
    checked.become(1, Role.UNATTACHED, 2)
    checked.become(3, Role.LEADER, 3)


@pytest.mark.parametrize(
    ("node_id", "role", "epoch"),
    [(1, Role.UNATTACHED, 1), (1, Role.FOLLOWER, 1), (1, Role.CANDIDATE, 2), (OBSERVER_ID, Role.CANDIDATE, 1)],
)
def test_an_epoch_that_no_voter_opened_is_seen(node_id: int, role: Role, epoch: int) -> None:
    checked = Checked()
    with violates(checked.invariant):
        checked.become(node_id, role, epoch)


@pytest.mark.parametrize("voted_key", [key(8), ReplicaKey(NodeId(2), UUID(int=99)), ReplicaKey(NodeId(2))])
def test_a_vote_for_who_is_no_voter_is_seen(voted_key: ReplicaKey) -> None:
    checked = Checked()
    with violates(checked.invariant):
        checked.become(1, Role.UNATTACHED, 0, PersistElectionState(election_state(0, voted_key=voted_key)))


def test_a_leader_that_is_no_voter_is_seen() -> None:
    checked = Checked()
    with violates(checked.invariant):
        checked.become(1, Role.FOLLOWER, 0, PersistElectionState(election_state(0, leader_id=OBSERVER_ID)))


def test_requests_go_to_configured_endpoints_only() -> None:
    checked = Checked()
    checked.become(1, Role.FOLLOWER, 0, send(fetch(1, 0), 2), send(fetch(1, 0), 3))
    with violates(checked.invariant):
        checked.become(1, Role.FOLLOWER, 0, send(fetch(1, 0), 8))
