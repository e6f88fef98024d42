"""The initial state of a replica, from the state on disk."""

from __future__ import annotations

from raft.core import newcomers
from raft.core.election_state import ElectionState
from raft.core.environment import Environment
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Candidate, Follower, Resigned, State, Unattached
from raft.core.transitions import become_candidate, become_leader, become_prospective, new_candidate


def initial_state(
    environment: Environment, replica: ReplicaState, output: Output, found: ElectionState | None
) -> State:
    """The first state (RF-104); `replica.epoch` is the larger of the epoch found and the last one in the log.

    A leader starts as Resigned in its epoch, never as Leader: it might use offsets twice.
    """
    if found is None or found.epoch < replica.epoch:
        return _unattached(environment, replica, None)
    own_id = environment.own_id
    if environment.is_voter and own_id is not None:
        if found.leader_id == own_id:
            others = environment.other_voters()
            # Consider voter 1, which led epoch 5, wrote records 100 to 104, and crashed when they were flushed up to
            # 102. Voter 2 had fetched all five. If 1 continued as the leader of epoch 5, it would write another record
            # 102 of epoch 5. Then two records have the same epoch and the same offset, which no comparison of logs can
            # distinguish (`LogState.divergence`), and 2 would keep the old one for good. In epoch 6 or later, under any
            # leader, the logs are compared as usual.
            #
            # It may still send EndQuorumEpoch, so that the others need not wait for their fetch timeouts.
            return Resigned(
                epoch=replica.epoch,
                voted_key=found.voted_key,
                election_deadline_ms=environment.now_ms + environment.election_timeout_ms(),
                unacknowledged=dict.fromkeys(others),
                preferred_candidates=tuple(key for key in environment.voters.replica_keys() if key.node_id != own_id),
            )
        if found.leader_id is None and found.voted_key == environment.key and replica.may_be_elected(environment):
            return _candidate_again(environment, replica, output)
    if found.leader_id is not None and found.leader_id != own_id:
        endpoint = environment.endpoint_of(found.leader_id)
        if endpoint is not None:
            return Follower(
                epoch=replica.epoch,
                leader_id=found.leader_id,
                leader_endpoint=endpoint,
                voted_key=found.voted_key,
                fetch_deadline_ms=environment.now_ms + environment.config.fetch_timeout_ms,
            )
    return _unattached(environment, replica, found)


def elect_only_voter(environment: Environment, replica: ReplicaState, output: Output) -> None:
    """A sole voter leads at once, in the next epoch unless it was a candidate already (RF-04)."""
    match replica.state:
        case Candidate() as candidate:
            become_leader(environment, replica, output, candidate)
        case Resigned():
            become_candidate(environment, replica, output)
        case Unattached() | Follower():
            become_prospective(environment, replica, output, "it is the only voter")
        case _:
            pass


def _candidate_again(environment: Environment, replica: ReplicaState, output: Output) -> Candidate:
    """The state of a replica that stopped while it was a candidate: the same epoch, only its own vote."""
    # The replica has not led this epoch: a leader's id is durable before its first record (RF-11), and none was found.
    # So no record of this epoch exists, and the replica may ask for votes in it again. A voter that has granted its
    # vote grants it again.
    newcomers.end(replica, output)
    return new_candidate(environment, replica.epoch)


def _unattached(environment: Environment, replica: ReplicaState, found: ElectionState | None) -> Unattached:
    return Unattached(
        epoch=replica.epoch,
        leader_id=None if found is None or found.leader_id == environment.own_id else found.leader_id,
        voted_key=None if found is None else found.voted_key,
        election_deadline_ms=environment.now_ms + environment.election_timeout_ms()
        if replica.may_be_elected(environment)
        else None,
    )
