"""An observer of a shell is notified of every event of the replica before the actions are carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kraftbase.types import Epoch, NodeId
from raft.core.actions import Action, PersistElectionState, Reply, Send
from raft.core.events import Event, RequestReceived, ShutdownRequested, TimePassed
from raft.core.messages import Request, VoteRequest
from raft.core.replica_view import ReplicaView
from raft.core.states import Role
from raft.core.types import LeaderAndEpoch
from tests.raft.core.builders import begin_quorum_epoch, vote
from tests.raft.shell.voter_shell import CLUSTER_ID, OBSERVER, VOTERS, Heard, LeadingShell, VoterShell

TWO = VOTERS.voters()[1].key


class Witness(Heard):
    """Records, for every event, how much its shell has done by then, and the replica's readable state."""

    def __init__(self) -> None:
        super().__init__()
        self.shell: VoterShell | None = None
        self.done: list[int] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.roles: list[Role] = []

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        super().stepped(event, actions, replica)
        self.done.append(0 if self.shell is None else len(self.shell.happened))
        self.leaders.append(replica.leader_and_epoch)
        self.roles.append(replica.role)


def watched() -> tuple[VoterShell, Witness]:
    """A voter that was started, and its observer, which has forgotten that."""
    witness = Witness()
    shell = VoterShell(observer=witness)
    shell.runtime.run()
    witness.shell = shell
    for told in (witness.events, witness.actions, witness.done, witness.leaders, witness.roles):
        told.clear()
    return shell, witness


def received(shell: VoterShell, request: Request) -> RequestReceived:
    return RequestReceived(shell.shell.new_id(), request)


def test_it_is_told_of_the_start() -> None:
    witness = Witness()
    VoterShell(observer=witness)
    assert (witness.events, witness.roles) == ([None], [Role.UNATTACHED])
    assert any(isinstance(action, Send) for action in witness.actions)


def test_it_is_told_before_anything_is_carried_out() -> None:
    shell, witness = watched()
    done = len(shell.happened)
    shell.ask(OBSERVER)
    assert shell.happened[done:] == ["fetch of 9"]  # which is answered in this step
    assert witness.done == [done]


def test_it_sees_the_replica_as_it_is_after_the_event() -> None:
    shell, witness = watched()
    request = begin_quorum_epoch(2, 3, cluster_id=CLUSTER_ID, leader_directory_id=TWO.directory_id)
    event = received(shell, request)
    shell.shell.step(event)
    assert witness.events == [event]
    assert witness.leaders == [LeaderAndEpoch(NodeId(2), Epoch(3))]


def test_what_waits_for_the_election_state_to_be_on_disk_was_told_before() -> None:
    shell, witness = watched()
    shell.shell.step(received(shell, replace(vote(2, 5, cluster_id=CLUSTER_ID), replica_key=TWO)))
    assert isinstance(witness.actions[0], PersistElectionState)
    assert any(isinstance(action, Reply) for action in witness.actions)
    assert shell.shell.is_behind
    shell.runtime.run()
    assert not shell.shell.is_behind
    assert len(witness.events) == 1


def test_it_is_told_of_every_step_of_an_election_in_order() -> None:
    witness = Witness()
    LeadingShell(observer=witness)
    roles = [role for role, before in zip(witness.roles, [None, *witness.roles], strict=False) if role is not before]
    assert roles == [Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.LEADER]
    assert any(isinstance(action, Send) and isinstance(action.request, VoteRequest) for action in witness.actions)


def test_a_closed_shell_takes_no_event_and_tells_of_none() -> None:
    shell, witness = watched()
    shell.shell.close()
    shell.shell.step(TimePassed())
    assert witness.events == []


def test_what_an_observer_raises_is_fatal() -> None:
    class Confused(Heard):
        def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
            if event is not None:
                raise LookupError("an observer's bug")

    shell = VoterShell(observer=Confused())
    with pytest.raises(LookupError):
        shell.shell.step(ShutdownRequested())
