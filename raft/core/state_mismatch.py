"""State machines that differ from the quorum's: how a replica is detected, notified and fenced (RF-113).

A state machine takes a digest at fixed intervals of offsets (KAFKA-14275 is a case that it finds). Each fetch carries
the last digest; the leader compares digests of the same end offset. A replica whose state machine differs is fenced.
Its log is correct, so it fetches, votes and counts, but it is not elected, and its state machine stops.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftbase.types import Offset
from raft.core import rebuilding
from raft.core.actions import FenceStateMachine
from raft.core.environment import Environment
from raft.core.messages import FetchRequest
from raft.core.output import Output
from raft.core.replica_state import LocalStateMachine, ReplicaState
from raft.core.state_digests import is_undecided, right_digest
from raft.core.states import Leader, ReplicaProgress
from raft.core.types import ReplicaKey, StateDigest


def on_state_digest_reported(
    environment: Environment, replica: ReplicaState, output: Output, digest: StateDigest
) -> None:
    """This replica's state machine reached a checkpoint. A negative offset changes nothing."""
    if digest.end_offset < 0:
        return
    replica.state_machine.digests.note(digest)
    if isinstance(replica.state, Leader):
        _compare_all(environment, replica.state_machine, output, replica.state)


def on_expected_digest(
    environment: Environment, machine: LocalStateMachine, output: Output, expected: StateDigest | None
) -> None:
    """The leader sent the quorum's digest. Only a checkpoint that this replica remembers can be compared."""
    if expected is not None:
        _fence_unless_equal(environment, machine, output, expected)


def note_digest(
    environment: Environment,
    machine: LocalStateMachine,
    output: Output,
    leader: Leader,
    progress: ReplicaProgress,
    digest: StateDigest | None,
) -> None:
    """A replica fetched and sent its digest; most fetches send the same as the one before."""
    if digest is None or digest == progress.state_digests.latest:
        return
    progress.state_digests.note(digest)
    if leader.voters.get(progress.key.node_id) is progress:
        _compare_all(environment, machine, output, leader)
    else:
        _compare(progress, _right_digests(machine, leader))


def expected_digest(leader: Leader, key: ReplicaKey | None) -> StateDigest | None:
    """The digest to send to that replica: None unless its state machine differs."""
    progress = _progress(leader, key)
    return None if progress is None else progress.expected_state_digest


def is_first_notification(leader: Leader, request: FetchRequest) -> bool:
    """Whether the answer to `request` is the first that notifies its sender: it is not parked, later ones are."""
    progress = _progress(leader, request.replica_key)
    if progress is None or not progress.has_diverged or progress.is_notified:
        return False
    # Consider a follower that is level with the log, and whose state machine was found to differ. Its next fetch is
    # answered at once, with the right digest, instead of being parked, so its state machine stops earlier. If later
    # fetches were answered at once, too, it would fetch as fast as it can for as long as it is fenced.
    progress.is_notified = True
    return True


def _progress(leader: Leader, key: ReplicaKey | None) -> ReplicaProgress | None:
    if key is None:
        return None
    observer = leader.observers.get(key)
    if observer is not None:
        return observer
    voter = leader.voters.get(key.node_id)
    return voter if voter is not None and voter.key == key else None


def _right_digests(machine: LocalStateMachine, leader: Leader) -> dict[Offset, bytes]:
    """The right digest at every end offset where a majority has the same."""
    others = [progress.state_digests for progress in leader.voters.values()]
    right = {}
    for digests in (machine.digests, *others):
        for digest in reversed(digests):
            if digest.end_offset not in right:
                right[digest.end_offset] = right_digest(machine.digests, others, digest.end_offset)
    return {end_offset: digest for end_offset, digest in right.items() if digest is not None}


def _compare_all(environment: Environment, machine: LocalStateMachine, output: Output, leader: Leader) -> None:
    """Compare all replicas after a voter's report, which may complete a majority. A leader may be fenced, too."""
    # All replicas are compared again, since the report of one voter may complete a majority for offsets that other
    # replicas reported long ago.
    right = _right_digests(machine, leader)
    leader.state_alarm_offset = _alarm_offset(machine, leader)
    for progress in (*leader.voters.values(), *leader.observers.values()):
        _compare(progress, right)
    for own in reversed(machine.digests):
        if own.end_offset in right:
            _fence_unless_equal(environment, machine, output, StateDigest(own.end_offset, right[own.end_offset]))
            return


def _alarm_offset(machine: LocalStateMachine, leader: Leader) -> Offset | None:
    """The last offset at which all voters have reported a digest, if no majority has the same one there."""
    others = [progress.state_digests for progress in leader.voters.values()]
    for own in reversed(machine.digests):
        undecided = is_undecided(machine.digests, others, own.end_offset)
        if undecided is not None:
            return own.end_offset if undecided else None
    return None


def _compare(progress: ReplicaProgress, right: Mapping[Offset, bytes]) -> None:
    """Compare the last comparable checkpoint. A mark is removed when the replica is right there or further on."""
    marked = progress.expected_state_digest
    for digest in reversed(progress.state_digests):
        expected = right.get(digest.end_offset)
        if expected is None:
            continue
        if expected != digest.digest:
            progress.expected_state_digest = StateDigest(digest.end_offset, expected)
        elif marked is None or digest.end_offset >= marked.end_offset:
            progress.expected_state_digest = None
        return


def _fence_unless_equal(
    environment: Environment, machine: LocalStateMachine, output: Output, expected: StateDigest
) -> None:
    own = machine.digests.at(expected.end_offset)
    if own is None or own == expected.digest or machine.is_fenced:
        return
    rebuilding.fence(environment, machine)
    output.order(FenceStateMachine(expected, StateDigest(expected.end_offset, own)))
