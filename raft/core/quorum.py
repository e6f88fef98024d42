"""The arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftbase.checks import check
from kraftbase.types import NodeId, Offset


def majority_end_offset(end_offsets: Iterable[Offset]) -> Offset:
    """The largest offset that a majority of voters has reached, given every voter's log end offset (RF-41)."""
    #     three voters, ends 120, 100, 90       -> 100: two have that
    #     four voters,  ends 120, 110, 100, 90  -> 100: three have that; 110 is on two, which are no majority of four
    #     two voters,   ends 120, 90            -> 90: a majority of two is both
    descending = sorted(end_offsets, reverse=True)
    return descending[len(descending) // 2]


@dataclass(slots=True)
class VoteTally:
    """The voters that granted or rejected a vote (RF-23). `allows_change`: in a pre-vote an answer may change."""

    voter_ids: tuple[NodeId, ...]
    allows_change: bool
    _granted: dict[NodeId, bool] = field(default_factory=dict)
    _set_aside: set[NodeId] = field(default_factory=set)

    @property
    def majority(self) -> int:
        """The number of grants that wins."""
        return len(self.voter_ids) // 2 + 1

    @property
    def is_won(self) -> bool:
        """Whether a majority granted it."""
        return sum(self._granted.values()) >= self.majority

    @property
    def is_lost(self) -> bool:
        """Whether so many voters have rejected it that it cannot be won."""
        rejections = len(self._granted) - sum(self._granted.values())
        return len(self.voter_ids) - rejections < self.majority

    def record(self, voter_id: NodeId, granted: bool) -> None:
        """Count an answer. A grant of a real vote never becomes a rejection; an answer of a non-voter is a bug."""
        check(voter_id in self.voter_ids, "only voters' answers are counted", voter_id=voter_id)
        if not self.allows_change and self._granted.get(voter_id, False):
            check(granted, "a vote that was granted cannot be taken back", voter_id=voter_id)
        self._granted[voter_id] = granted

    def set_aside(self, voter_id: NodeId) -> None:
        """Do not ask that voter again: another replica listens at its address. This counts neither way (RF-21)."""
        # Consider five voters, and another replica now listens at the address of one. That voter is not asked again and
        # again; but it has not rejected either, so three grants of the other four still win, and the election is not
        # lost before three reject it.
        self._set_aside.add(voter_id)

    def unrecorded(self) -> list[NodeId]:
        """Voters to ask: in a pre-vote also those that rejected it, whose answer may change."""
        # Consider voters 1, 2 and 3, and the process of 3, the leader, is killed. 1 asks a moment before 2 stops
        # following 3, and is rejected. The log of 2 is shorter, so 2 cannot win either. If 1 did not ask again, both
        # would wait for their election timeouts, though 2 would grant the pre-vote ten milliseconds later.
        done = self.granting() if self.allows_change else list(self._granted)
        return [voter_id for voter_id in self.voter_ids if voter_id not in done and voter_id not in self._set_aside]

    def granting(self) -> list[NodeId]:
        """Voters that granted it."""
        return [voter_id for voter_id in self.voter_ids if self._granted.get(voter_id, False)]
