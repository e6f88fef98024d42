"""The right state digest: the digests that a replica remembers, and the rule that compares them.

Digests chain: each covers everything before its offset. So two state machines that agree at an offset have agreed at
every offset before it, and one that differs at an offset differs at every offset after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftbase.types import Offset
from raft.core.types import StateDigest

STATE_DIGESTS_MAX: Final = 8
"""How many checkpoints of a replica are remembered, so that one that applies more slowly can be compared."""


@dataclass(slots=True)
class StateDigests:
    """The last checkpoints of one state machine, by end offset, at most STATE_DIGESTS_MAX."""

    _digests: dict[Offset, StateDigest] = field(default_factory=dict, init=False)

    def __reversed__(self) -> Iterator[StateDigest]:
        """The checkpoints, the last one first."""
        return reversed(self._digests.values())

    @property
    def latest(self) -> StateDigest | None:
        """The last checkpoint; None before the first."""
        return next(reversed(self), None)

    def note(self, digest: StateDigest) -> None:
        """Remember a checkpoint. If it is not past the last, the state machine was rebuilt: later ones are dropped."""
        for known in list(reversed(self)):
            if known.end_offset < digest.end_offset:
                break
            del self._digests[known.end_offset]
        self._digests[digest.end_offset] = digest
        if len(self._digests) > STATE_DIGESTS_MAX:
            del self._digests[next(iter(self._digests))]

    def at(self, end_offset: Offset) -> bytes | None:
        """The digest of the checkpoint at that end offset; None if there was none, or it was forgotten."""
        known = self._digests.get(end_offset)
        return None if known is None else known.digest

    def agrees_after(self, end_offset: Offset, other: StateDigests) -> bool:
        """Whether a checkpoint past `end_offset` equals the other's, and so everything before it."""
        return any(
            digest.end_offset > end_offset and other.at(digest.end_offset) == digest.digest for digest in reversed(self)
        )


# Consider voters 1, which leads, 2 and 3. Each takes a digest at the same end offsets. A row of voter 3's database has
# been wrong since offset 1500, and voter 2 applies more slowly than the others:
#
#     end offset   1000   2000   3000
#     voter 1      a      b      c
#     voter 2      a      b      not yet
#     voter 3      a      x      y
#
# At 2000 two of three voters have b. That is a majority, so b is right and voter 3 is fenced. At 3000 c and y have one
# voter each, so nothing is decided there until voter 2 reports its digest.
#
# The leader's digest has no more weight than another's. If voter 1 had x and voters 2 and 3 had b, voter 1 would fence
# itself. With two voters, one with b and one with x, there is no majority: neither is fenced, as nothing shows which of
# the two is wrong. `is_undecided` is true then, and `quorum describe` shows an alarm.
def right_digest(leader: StateDigests, others: Sequence[StateDigests], end_offset: Offset) -> bytes | None:
    """The right digest at `end_offset`, by the checkpoints of the leader and of the other voters.

    That is the digest of a majority of the voters. None while there is no majority: then no replica is fenced, and the
    leader's digest does not decide either (see `is_undecided`). A sole voter is a majority.
    """
    known = Counter(digest for digest in _reported(leader, others, end_offset) if digest is not None)
    for digest, count in known.most_common(1):
        if count > (len(others) + 1) // 2:
            return digest
    return None


def is_undecided(leader: StateDigests, others: Sequence[StateDigests], end_offset: Offset) -> bool | None:
    """Whether no majority has the same digest at `end_offset`; None while not every voter has reported its own."""
    if None in _reported(leader, others, end_offset):
        return None
    return right_digest(leader, others, end_offset) is None


def _reported(leader: StateDigests, others: Sequence[StateDigests], end_offset: Offset) -> list[bytes | None]:
    return [leader.at(end_offset), *(_digest_at(voter, leader, end_offset) for voter in others)]


def _digest_at(voter: StateDigests, leader: StateDigests, end_offset: Offset) -> bytes | None:
    digest = voter.at(end_offset)
    if digest is None and voter.agrees_after(end_offset, leader):
        return leader.at(end_offset)
    return digest
