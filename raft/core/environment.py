"""The inputs of a replica: its identity, the voters, its settings, its random numbers, and the time of the step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from raft.core.config import QuorumConfig
from raft.core.types import ReplicaKey
from raft.core.voters import VoterSet

if TYPE_CHECKING:
    from random import Random


@dataclass(slots=True, kw_only=True)
class Environment:
    """The inputs of one replica other than events. Only `now_ms` changes, at the beginning of a step."""

    config: QuorumConfig
    cluster_id: str
    key: ReplicaKey | None
    endpoint: Endpoint | None
    """The endpoint at which this replica listens; None for a tool that follows."""
    voters: VoterSet
    bootstrap_endpoints: tuple[Endpoint, ...]
    random: Random
    now_ms: int
    """The time of the current step; it never goes back."""
    own_id: NodeId | None = field(init=False)
    """This replica's node id; None for a tool that follows (RF-02)."""
    is_voter: bool = field(init=False)
    """Whether this replica is in the voter set (RF-01)."""
    is_only_voter: bool = field(init=False)
    """Whether this replica is the sole voter (RF-04)."""

    def __post_init__(self) -> None:
        # Computed once: every step reads them, and neither the key nor the voter set changes.
        self.own_id = None if self.key is None else self.key.node_id
        self.is_voter = self.key is not None and self.voters.is_voter(self.key)
        self.is_only_voter = self.key is not None and self.voters.is_only_voter(self.key)

    def other_voters(self) -> list[NodeId]:
        """The ids of all voters except this replica."""
        return [key.node_id for key in self.voters.replica_keys() if key.node_id != self.own_id]

    def endpoint_of(self, node_id: NodeId) -> Endpoint | None:
        """The endpoint at which a voter listens (RF-62)."""
        voter = self.voters.get(node_id)
        return None if voter is None else voter.endpoint

    def election_timeout_ms(self) -> int:
        """A new election timeout: random, from T up to twice T (RF-09)."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)
