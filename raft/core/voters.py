"""The voter set: the voters, and where they listen (RF-01, RF-83)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftbase.types import NodeId
from raft.core.types import ReplicaKey


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter. A static voter's key has no directory id: a match of the node id alone is enough (RF-01)."""

    key: ReplicaKey
    endpoint: Endpoint


class VoterSet:
    """An immutable set of voters, in order of their node ids."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        """Raises ConfigurationError for an empty set or a node id that occurs twice."""
        self._voters: dict[NodeId, Voter] = {}
        for voter in sorted(voters, key=lambda voter: voter.key.node_id):
            if voter.key.node_id in self._voters:
                raise ConfigurationError(f"voter {voter.key.node_id} is listed twice; give each voter one entry")
            self._voters[voter.key.node_id] = voter
        if not self._voters:
            raise ConfigurationError("the voter set is empty; give at least one voter as id@host:port")

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())!r})"

    @property
    def majority(self) -> int:
        """How many voters make a majority."""
        return len(self._voters) // 2 + 1

    @property
    def has_directory_ids(self) -> bool:
        """Whether voters are known by their directory ids, too: a voter whose disk was replaced is another replica."""
        return all(voter.key.directory_id is not None for voter in self._voters.values())

    def voters(self) -> list[Voter]:
        """All voters, by node id."""
        return list(self._voters.values())

    def replica_keys(self) -> list[ReplicaKey]:
        """All voters' keys, by node id."""
        return [voter.key for voter in self._voters.values()]

    def get(self, node_id: NodeId) -> Voter | None:
        """The voter with that node id."""
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` names a voter: the ids match, and so do the directory ids where both are known (RF-01).

        A key without directory id does not match a voter whose directory id is known.
        """
        voter = self._voters.get(key.node_id)
        if voter is None:
            return False
        # With voter 2 in directory A: the key (2, A) is the voter; (2, B) is not, since it has another log; 2 without a
        # directory may be either, so it is not. With voter 2 known by its id alone, each of the three is.
        return voter.key.directory_id is None or voter.key.directory_id == key.directory_id

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is the sole voter (RF-04)."""
        return len(self._voters) == 1 and self.is_voter(key)
