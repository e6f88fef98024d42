"""The election state that must survive a crash."""

from __future__ import annotations

from dataclasses import dataclass

from kraftbase.types import Epoch, NodeId
from raft.core.types import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """The durable part of an election: the epoch, its leader if known, and the vote given in it (RF-95, RF-97).

    Both `leader_id` and `voted_key` may be set: a replica that voted and then learned who won keeps its vote
    (RF-08).
    """

    epoch: Epoch
    leader_id: NodeId | None = None
    voted_key: ReplicaKey | None = None
