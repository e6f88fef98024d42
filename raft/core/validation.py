"""Checks that several requests share (RF-106). Each returns the error to answer with; NONE if there is none."""

from __future__ import annotations

from typing import Final

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch
from raft.core.environment import Environment
from raft.core.membership import may_be_voter
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader
from raft.core.types import ReplicaKey

EPOCH_END: Final = 2**31 - 1
"""No peer may name this epoch or a higher one: later elections would have no epochs left."""


def may_enter_epoch(environment: Environment, replica: ReplicaState, epoch: Epoch) -> bool:
    """Whether a peer that is in `epoch` may take this replica there now (RF-114)."""
    # Consider a voter with damaged memory that asks for votes in epoch 2,147,483,646. If one voter entered that epoch,
    # it would soon be on every disk.
    if epoch >= EPOCH_END:
        return False
    return epoch <= replica.epoch or replica.epoch_allowance.covers(epoch - replica.epoch, environment.now_ms)


def refuse_cluster(environment: Environment, cluster_id: str | None) -> ErrorCode:
    """A client's request may leave the cluster id out; if it has one, it must be this cluster's."""
    if cluster_id is not None and cluster_id != environment.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.NONE


def refuse_foreign_peer(environment: Environment, cluster_id: str | None) -> ErrorCode:
    """A replica must send its cluster id.

    In Kafka it may leave the id out. Every version of this program sends it, so a sender without it runs another
    program.
    """
    return ErrorCode.NONE if cluster_id == environment.cluster_id else ErrorCode.INCONSISTENT_CLUSTER_ID


def refuse_voter_request(
    environment: Environment,
    replica: ReplicaState,
    cluster_id: str | None,
    epoch: Epoch,
    sender: ReplicaKey,
    receiver: ReplicaKey | None,
    *,
    invalid: bool = False,
) -> ErrorCode:
    """Check a Vote, BeginQuorumEpoch or EndQuorumEpoch, before its epoch is entered.

    It checks the cluster, fields that are `invalid`, the epoch, the sender's id, and whether `receiver` is this
    replica. Kafka enters the epoch first and then answers INVALID_VOTER_KEY (RF-21). A request for another replica
    shows that the sender has a wrong directory id, or a wrong address, so nothing in it counts. No election is lost: a
    replica that is not the addressed voter has no vote to give, and learns the epoch when it fetches.
    """
    error = refuse_foreign_peer(environment, cluster_id)
    if error is not ErrorCode.NONE:
        return error
    # Another process with this replica's id is a mistake; a vote for it would be a vote for itself (RF-07).
    if invalid or epoch >= EPOCH_END or sender.node_id == environment.own_id:
        return ErrorCode.INVALID_REQUEST
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender.node_id < 0:
        return ErrorCode.INVALID_REQUEST
    if not is_for_this_replica(environment, receiver):
        return ErrorCode.INVALID_VOTER_KEY
    if may_be_voter(environment, sender) and not may_enter_epoch(environment, replica, epoch):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def leader_for_request(
    environment: Environment, replica: ReplicaState, cluster_id: str | None, epoch: Epoch, *, invalid: bool
) -> Leader | ErrorCode:
    """Return the leader that serves a Fetch or FetchSnapshot, of exactly that epoch; or why the request is refused."""
    error = refuse_foreign_peer(environment, cluster_id)
    if error is not ErrorCode.NONE:
        return error
    if invalid:
        return ErrorCode.INVALID_REQUEST
    if replica.shutdown.is_requested:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return replica.state if isinstance(replica.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_for_this_replica(environment: Environment, voter_key: ReplicaKey | None) -> bool:
    """Whether a request names this replica or none; a directory id that it leaves out matches any (RF-21)."""
    if voter_key is None or environment.key is None:
        return voter_key is None
    return voter_key.node_id == environment.key.node_id and voter_key.directory_id in (
        None,
        environment.key.directory_id,
    )
