"""Of which leader epoch the offsets of a simulated partition's log are."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from kraftlog.sim.quorum.leader_epochs import LeaderEpochs
from kraftpb.v1.metadata_pb2 import SegmentLeaderEpoch

KEY = (b"t" * 16, 0)


def shown(epochs: list[SegmentLeaderEpoch]) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in epochs]


def test_all_segments_are_of_one_history() -> None:
    """TS-42: a segment's metadata has the epochs of its own offsets."""
    random, leader_epochs = Random(1), LeaderEpochs()
    assert shown(leader_epochs.epochs(KEY, 3, 0, 9, random)) == [(3, 0)]
    for leader_epoch in (4, 7, 9, 12):
        leader_epochs.epochs(KEY, leader_epoch, 10 * leader_epoch, 10 * leader_epoch + 9, random)
    history = shown(leader_epochs.epochs(KEY, 12, 0, 300, random))
    assert [epoch for epoch, _ in history] == [3, 4, 7, 9, 12]
    assert all(earlier < later for (_, earlier), (_, later) in pairwise(history))
    for start in range(0, 300, 7):
        inside = [(epoch, at) for epoch, at in history if start < at <= start + 6]
        epoch = max(epoch for epoch, at in history if at <= start)
        assert shown(leader_epochs.epochs(KEY, 12, start, start + 6, random)) == [(epoch, start), *inside]


def test_a_deposed_leader_takes_all_for_its_own() -> None:
    random, leader_epochs = Random(1), LeaderEpochs()
    leader_epochs.epochs(KEY, 1, 0, 9, random)
    leader_epochs.epochs(KEY, 2, 10, 50, random)
    assert shown(leader_epochs.epochs(KEY, 1, 10, 50, random)) == [(1, 10)]
    assert shown(leader_epochs.epochs(KEY, 0, 10, 50, random)) == [(0, 10)]
