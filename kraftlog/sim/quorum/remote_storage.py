"""Remote storage: where brokers copy the segments of partitions to (KIP-405)."""

from __future__ import annotations

from kraftlog.sim.quorum.leader_epochs import LeaderEpochs
from kraftlog.sim.quorum.model.keys import Key, SegmentKey


class RemoteStorage:
    """Where the objects are. It fails at nothing."""

    def __init__(self) -> None:
        self.objects: set[SegmentKey] = set()
        self.removed: list[SegmentKey] = []
        """Since the checker last cleared it."""
        self.local_starts: dict[tuple[int, Key], int] = {}
        """By broker and partition: where the log on its own disk begins."""
        self.leader_epochs = LeaderEpochs()

    def remove(self, key: SegmentKey) -> None:
        """Delete an object; twice changes nothing."""
        if key in self.objects:
            self.objects.remove(key)
            self.removed.append(key)
