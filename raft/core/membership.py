"""Which peers count as voters: only a voter's epochs, votes, progress and digests count, and only a voter may lead."""

from __future__ import annotations

from kraftbase.types import NodeId
from raft.core.actions import ReportRejectedClaim
from raft.core.environment import Environment
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.core.voters import Voter


def may_be_voter(environment: Environment, key: ReplicaKey) -> bool:
    """Whether messages of the replica with that key may count as a voter's.

    Only this function decides that. The node id must be a voter's, and so must the directory id where the voter set has
    one (RF-01). A peer that leaves its directory id out is not that voter. Both ids are public, so the check prevents
    mistakes, such as a copied configuration, but stops no attacker.

    The voter set is fixed, so this replica's own voter set is sufficient. With voter changes (KIP-853) it would not be.
    Consider voters A and B. The leader A appends a voter set that adds C, C fetches it, and A fails before B does. C
    needs the vote of B, and B does not know C: if B refused, no leader could be elected again. So Kafka grants votes to
    any candidate (RF-17), and enters the epoch of any candidate (RF-15). With a fixed voter set the stricter check
    costs nothing: no election needs a vote for a replica that is in no voter set, and an unknown process that could
    open epochs could prevent elections for ever.
    """
    return environment.voters.is_voter(key)


def voter_named(environment: Environment, node_id: NodeId) -> Voter | None:
    """The voter that a message means if it names only a node id, such as an answer that names the leader."""
    voter = environment.voters.get(node_id)
    return voter if voter is not None and may_be_voter(environment, voter.key) else None


def is_credible_leader(environment: Environment, replica: ReplicaState, output: Output, leader: LeaderAndEpoch) -> bool:
    """Whether this can be the leader, whichever peer names it. Report a claim that cannot be true.

    A leader is a voter, and an epoch has one leader. A second leader of an epoch does not end the process: it is only a
    peer's claim. A replica that got a wrong leader first fetches from it in vain, and takes part in the next election:
    at the latest when the real leader lacks a majority because of wrong claims, and resigns.
    """
    if leader.leader_id is None or leader.leader_id == environment.own_id:
        return True
    if voter_named(environment, leader.leader_id) is None:
        reason = f"{leader.leader_id} is named as the leader of epoch {leader.epoch}, and is not a voter"
        output.order(ReportRejectedClaim(reason))
        return False
    known = replica.leader_of_epoch(environment)
    if leader.epoch == replica.epoch and known not in (None, leader.leader_id):
        reason = f"{leader.leader_id} is named as the leader of epoch {leader.epoch}, but {known} leads it"
        output.order(ReportRejectedClaim(reason))
        return False
    return True
