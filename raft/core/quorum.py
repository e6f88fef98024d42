"""The arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftbase.checks import check
from raft.core.types import NodeId, Offset


def majority_end_offset(end_offsets: Iterable[Offset]) -> Offset:
    """The largest offset that a majority of voters has reached, given every voter's log end offset (RF-41)."""
    #     three voters, ends 120, 100, 90       -> 100: two have that
    #     four voters,  ends 120, 110, 100, 90  -> 100: three have that; 110 is on two, which are no majority of four
    #     two voters,   ends 120, 90            -> 90: a majority of two is both
    descending = sorted(end_offsets, reverse=True)
    return descending[len(descending) // 2]


@dataclass(slots=True)
class VoteTally:
    """Who granted and who rejected a vote (RF-23). `allows_change`: in a pre-vote a voter may change its mind."""

    voter_ids: tuple[NodeId, ...]
    allows_change: bool
    _granted: dict[NodeId, bool] = field(default_factory=dict)
    _set_aside: set[NodeId] = field(default_factory=set)

    @property
    def majority(self) -> int:
        """How many grants win."""
        return len(self.voter_ids) // 2 + 1

    @property
    def is_won(self) -> bool:
        """Whether a majority granted it."""
        return sum(self._granted.values()) >= self.majority

    @property
    def is_lost(self) -> bool:
        """Whether so many rejected it that it can no longer be won."""
        rejections = len(self._granted) - sum(self._granted.values())
        return len(self.voter_ids) - rejections < self.majority

    def record(self, voter_id: NodeId, granted: bool) -> None:
        """Note an answer. A grant of a real vote never becomes a rejection; one from no voter is a bug."""
        check(voter_id in self.voter_ids, "only voters' answers are counted", voter_id=voter_id)
        if not self.allows_change and self._granted.get(voter_id, False):
            check(granted, "a vote that was granted cannot be taken back", voter_id=voter_id)
        self._granted[voter_id] = granted

    def set_aside(self, voter_id: NodeId) -> None:
        """Ask that voter no more: another replica listens in its place. That counts neither way (RF-21)."""
        # Consider five voters, of which one listens where another replica does now. It is not asked again and again;
        # but its vote is not a rejection, so three grants of the other four still win, and the election is not lost
        # before three reject it.
        self._set_aside.add(voter_id)

    def unrecorded(self) -> list[NodeId]:
        """Voters that are still to be asked."""
        return [voter_id for voter_id in self.voter_ids if voter_id not in self._granted.keys() | self._set_aside]

    def granting(self) -> list[NodeId]:
        """Voters that granted it."""
        return [voter_id for voter_id in self.voter_ids if self._granted.get(voter_id, False)]
