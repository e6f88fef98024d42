"""How a leader checks that it has a quorum, resigns without one, and hands over (RF-32 to RF-34)."""

from __future__ import annotations

from kraftbase.types import Epoch
from raft.core.connections import Pending
from raft.core.environment import Environment
from raft.core.fetch_answers import release_expired
from raft.core.membership import may_be_voter
from raft.core.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader, Resigned
from raft.core.transitions import become_resigned, become_unattached, own_key
from raft.core.types import ReplicaKey


def note_contact(environment: Environment, leader: Leader, key: ReplicaKey) -> None:
    """A voter fetched: once a majority has, the leader may lead for another check-quorum timeout (RF-32)."""
    if key.node_id not in leader.voters or not may_be_voter(environment, key):
        return
    # Consider voters 1 to 5 with a fetch timeout of 2 s, and 1 leads. Every 3 s at the latest two of the others must
    # have fetched: with the leader they are a majority. Cut off with 2 alone, 1 resigns after 3 s at the latest, while
    # 3, 4 and 5 elect another. Otherwise 1 would still lead the processes that reach it: observers, and clients whose
    # writes never commit.
    if leader.check_quorum_deadline_ms is not None and leader.check_quorum_deadline_ms <= environment.now_ms:
        return  # it has expired, say after a pause: a late fetch must not make a majority with earlier ones
    leader.fetched_since_check[key.node_id] = None
    needed = environment.voters.majority - (1 if environment.is_voter else 0)
    if len(leader.fetched_since_check) >= needed:
        leader.fetched_since_check.clear()
        leader.check_quorum_deadline_ms = environment.now_ms + environment.config.check_quorum_timeout_ms


def poll(environment: Environment, replica: ReplicaState, output: Output, leader: Leader) -> None:
    """Resign without a majority, fenced, or to shut down; notify voters that do not fetch (RF-32, RF-33, RF-100).

    Also answer the parked fetches whose wait has expired.
    """
    replica.level_ms = environment.now_ms
    if leader.check_quorum_deadline_ms is not None:
        replica.level_ms = leader.check_quorum_deadline_ms - environment.config.check_quorum_timeout_ms
    is_alone = leader.check_quorum_deadline_ms is not None and leader.check_quorum_deadline_ms <= environment.now_ms
    if is_alone or replica.state_machine.is_fenced or (replica.shutdown.is_requested and not environment.is_only_voter):
        become_resigned(environment, replica, output, leader)
        return
    if leader.begin_quorum_deadline_ms <= environment.now_ms:
        leader.begin_quorum_deadline_ms = environment.now_ms + environment.config.begin_quorum_interval_ms
        _begin_quorum_epoch(environment, output, leader)
    release_expired(environment, replica, output, leader)


def _begin_quorum_epoch(environment: Environment, output: Output, leader: Leader) -> None:
    for voter_id, progress in leader.voters.items():
        voter = environment.voters.get(voter_id)
        last_fetch_ms = progress.last_fetch_ms
        # Consider voter 3, which was cut off while 1 was elected in epoch 6. Connected again, it fetches from the
        # leader of epoch 5, or asks for votes. Within a second, half a fetch timeout, it learns of epoch 6 from 1
        # itself, rather than by chance. A voter that fetches from 1 knows that 1 leads.
        fetches = (
            last_fetch_ms is not None
            and environment.now_ms - last_fetch_ms < environment.config.begin_quorum_interval_ms
        )
        if voter is None or fetches or not output.connections.is_ready(voter.endpoint):
            continue
        request = BeginQuorumEpochRequest(
            cluster_id=environment.cluster_id,
            voter_key=voter.key,
            leader_id=leader.leader_id,
            leader_epoch=leader.epoch,
            leader_endpoint=environment.endpoint,
            leader_directory_id=leader.voted_key.directory_id,
        )
        output.send(voter.endpoint, request, leader.epoch, environment.now_ms)


def poll_resigned(environment: Environment, replica: ReplicaState, output: Output, state: Resigned) -> None:
    """Notify the voters that have not acknowledged the resignation; after the election timeout, open an epoch."""
    if state.election_deadline_ms <= environment.now_ms:
        become_unattached(environment, replica, output, Epoch(state.epoch + 1))  # RF-13
        return
    key = own_key(environment)
    for voter_id in state.unacknowledged:
        voter = environment.voters.get(voter_id)
        if voter is None or not output.connections.is_ready(voter.endpoint):
            continue
        request = EndQuorumEpochRequest(
            cluster_id=environment.cluster_id,
            leader_id=key.node_id,
            leader_epoch=state.epoch,
            preferred_candidates=state.preferred_candidates,
            leader_endpoint=environment.endpoint,
            leader_directory_id=key.directory_id,
        )
        output.send(voter.endpoint, request, state.epoch, environment.now_ms)


def on_resignation_acknowledged(environment: Environment, state: Resigned, pending: Pending) -> None:
    """A voter has answered EndQuorumEpoch: do not notify it again."""
    if pending.epoch == state.epoch:
        for voter in environment.voters.voters():
            if voter.endpoint == pending.endpoint:
                state.unacknowledged.pop(voter.key.node_id, None)
