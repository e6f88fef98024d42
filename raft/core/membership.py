"""Whom a replica takes for a voter: whose epochs, votes, progress and digests count, and who may lead."""

from __future__ import annotations

from raft.core.actions import ReportRejectedClaim
from raft.core.context import Context
from raft.core.types import LeaderAndEpoch, NodeId, ReplicaKey
from raft.core.voters import Voter


def may_be_voter(context: Context, key: ReplicaKey) -> bool:
    """Whether what the replica with that key says may count as a voter's word.

    The one place that decides it: all that trusts a peer asks here. The node id must be a voter's, and so must the
    directory id where the voter set has one (RF-01). A peer that leaves its directory id out is no such voter.

    Voters do not change yet, so this replica's own voter set is the whole answer. Once they do (KIP-853) it is not.
    Consider voters A and B. The leader A appends a voter set that adds C, C fetches it, and A dies before B does. C
    needs the vote of B, and B has never heard of C: if B refused, nobody would lead again. So Kafka grants votes to
    whoever asks (RF-17), and enters the epoch of whoever asks (RF-15). With a fixed voter set nothing is lost by
    asking more: no election needs a vote for a replica that is in nobody's voter set, and a stranger that could open
    epochs could keep a cluster from electing for ever.
    """
    return context.voters.is_voter(key)


def voter_named(context: Context, node_id: NodeId) -> Voter | None:
    """The voter that a message means which says only a node id, such as an answer that names the leader."""
    voter = context.voters.get(node_id)
    return voter if voter is not None and may_be_voter(context, voter.key) else None


def is_credible_leader(context: Context, leader: LeaderAndEpoch) -> bool:
    """Whether it can be that this is the leader, whoever brings the news. What cannot be is reported.

    A leader is a voter, and an epoch has one. Two leaders of one epoch end no process: the second is only what a peer
    says. A replica that was told a wrong one first asks it in vain, and takes part in the next election: at the latest
    when so many were told a wrong one that the right one lacks a majority, and resigns.
    """
    if leader.leader_id is None or leader.leader_id == context.own_id:
        return True
    if voter_named(context, leader.leader_id) is None:
        reason = f"{leader.leader_id} is named as the leader of epoch {leader.epoch}, and is no voter"
        context.order(ReportRejectedClaim(reason))
        return False
    known = context.leader_of_epoch
    if leader.epoch == context.epoch and known not in (None, leader.leader_id):
        reason = f"{leader.leader_id} is named as the leader of epoch {leader.epoch}, which {known} leads"
        context.order(ReportRejectedClaim(reason))
        return False
    return True
