"""The leader epoch of each offset of a partition's log: what a leader writes into a segment's metadata (TS-42)."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftlog.sim.quorum.model.keys import Key
from kraftpb.v1.metadata_pb2 import SegmentLeaderEpoch

BEHIND_WHAT_IS_COPIED: Final = (-7, 0, 4, 13)
"""Distances from the end of the copied data to the offset at which a new leader epoch begins.

They put its start inside a segment, between two segments, or before the end of a segment whose last records an unclean
election has removed.
"""


class LeaderEpochs:
    """The leader epochs in the logs of all partitions.

    No data is ever produced; an epoch begins when its leader first copies.
    """

    def __init__(self) -> None:
        self._starts: dict[Key, list[tuple[int, int]]] = {}
        """By partition: each epoch with its first offset, both increasing."""
        self._begun_ends: dict[Key, int] = {}
        """By partition: the exclusive end of the last copy that was started."""

    def epochs(
        self, key: Key, leader_epoch: int, start_offset: int, end_offset: int, random: Random
    ) -> list[SegmentLeaderEpoch]:
        """Return the epochs of the offsets `start_offset` to `end_offset`, inclusive, as that leader has them.

        A deposed leader that does not know of a later epoch counts the later epoch's offsets as its own.
        """
        starts = self._starts.setdefault(key, [(leader_epoch, 0)])
        if leader_epoch > starts[-1][0]:
            about = self._begun_ends.get(key, 0) + random.choice(BEHIND_WHAT_IS_COPIED)
            starts.append((leader_epoch, max(starts[-1][1] + 1, about)))
        self._begun_ends[key] = max(self._begun_ends.get(key, 0), end_offset + 1)
        own = [entry for entry in starts if entry[0] <= leader_epoch] or [(leader_epoch, 0)]
        before = [epoch for epoch, start in own if start <= start_offset]
        inside = [(epoch, start) for epoch, start in own if start_offset < start <= end_offset]
        return [
            SegmentLeaderEpoch(leader_epoch=epoch, start_offset=start)
            for epoch, start in [(before[-1], start_offset), *inside]
        ]
