"""The safety properties of a quorum, checked while a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from raft.core.types import Batch, ReplicaKey


class Safety:
    """Raft's promises, checked as the replicas act. It knows all that ever happened, crashes or not."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self.committed: list[Batch] = []
        """The longest log that any replica has reported as committed."""
        self.completed: dict[int, bytes] = {}
        """Appends that were acknowledged as committed."""
        self._votes: dict[tuple[int, int], ReplicaKey] = {}

    @property
    def committed_end_offset(self) -> int:
        return self.committed[-1].end_offset if self.committed else 0

    def leads(self, node_id: int, epoch: int, log: Sequence[Batch]) -> None:
        """Election safety: an epoch has one leader. Leader completeness: it has all records committed before."""
        known = self.leaders.setdefault(epoch, node_id)
        assert known == node_id, f"{known} and {node_id} lead epoch {epoch}"
        before = [batch for batch in self.committed if batch.epoch < epoch]
        assert list(log[: len(before)]) == before, f"leader {node_id} of epoch {epoch} lacks committed records"

    def votes(self, node_id: int, epoch: int, candidate: ReplicaKey) -> None:
        """No voter votes twice in an epoch, even over crashes."""
        known = self._votes.setdefault((node_id, epoch), candidate)
        assert known == candidate, f"{node_id} voted for {known} and {candidate} in epoch {epoch}"

    def commits(self, node_id: int, high_watermark: int, log: Sequence[Batch]) -> None:
        """State machine safety: the committed record at an offset is the same on every replica, for ever."""
        prefix = [batch for batch in log if batch.end_offset <= high_watermark]
        reached = prefix[-1].end_offset if prefix else 0
        assert reached == high_watermark, f"{node_id} reports {high_watermark} as committed and has {reached}"
        shorter = min(len(prefix), len(self.committed))
        assert prefix[:shorter] == self.committed[:shorter], f"{node_id} has other committed records"
        if len(prefix) > len(self.committed):
            self.committed = prefix

    def completes(self, append_id: int, body: bytes) -> None:
        """Note that an append was acknowledged as committed."""
        assert any(body in batch.data for batch in self.committed), f"append {append_id} completed and is not committed"
        self.completed[append_id] = body

    def match(self, logs: Iterable[Sequence[Batch]]) -> None:
        """Log matching: two logs that have a batch of one epoch at one offset are the same up to there."""
        for one, other in combinations(logs, 2):
            common = [
                index
                for index, (mine, theirs) in enumerate(zip(one, other, strict=False))
                if (mine.base_offset, mine.epoch) == (theirs.base_offset, theirs.epoch)
            ]
            if common:
                assert one[: common[-1] + 1] == other[: common[-1] + 1], "two logs differ before a point they share"

    def holds_at_the_end(self) -> None:
        """Check that every acknowledged append is still in the logs."""
        data = b"".join(batch.data for batch in self.committed)
        missing = [append_id for append_id, body in self.completed.items() if body not in data]
        assert not missing, f"appends {missing} were completed and are lost"
