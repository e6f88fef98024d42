"""Remote storage, to which brokers copy the segments of partitions (KIP-405)."""

from __future__ import annotations

from kraftlog.sim.quorum.leader_epochs import LeaderEpochs
from kraftlog.sim.quorum.model.keys import Key, SegmentKey


class RemoteStorage:
    """The objects in remote storage. No access to it ever fails."""

    def __init__(self) -> None:
        self.objects: set[SegmentKey] = set()
        self.removed: list[SegmentKey] = []
        """Objects that were deleted since the checker last cleared this list."""
        self.local_starts: dict[tuple[int, Key], int] = {}
        """By broker and partition: where the log on the broker's own disk begins."""
        self.leader_epochs = LeaderEpochs()

    def remove(self, key: SegmentKey) -> None:
        """Delete an object. Nothing happens if it does not exist."""
        if key in self.objects:
            self.objects.remove(key)
            self.removed.append(key)
