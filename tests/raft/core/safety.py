"""What must hold of a quorum whatever happens to it: watched while a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from raft.core.types import Batch, ReplicaKey


class Safety:
    """Raft's promises, checked as the replicas act. It knows all that ever happened, crashes or not."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Who led each epoch."""
        self.committed: list[Batch] = []
        """The longest log that any replica has said is committed."""
        self.completed: dict[int, bytes] = {}
        """Appends that clients were told are committed."""
        self._votes: dict[tuple[int, int], ReplicaKey] = {}

    @property
    def committed_end_offset(self) -> int:
        return self.committed[-1].end_offset if self.committed else 0

    def leads(self, node_id: int, epoch: int, log: Sequence[Batch]) -> None:
        """Election safety: an epoch has one leader. Leader completeness: it has all that was committed before."""
        known = self.leaders.setdefault(epoch, node_id)
        assert known == node_id, f"{known} and {node_id} lead epoch {epoch}"
        before = [batch for batch in self.committed if batch.epoch < epoch]
        assert list(log[: len(before)]) == before, f"leader {node_id} of epoch {epoch} lacks what was committed"

    def votes(self, node_id: int, epoch: int, candidate: ReplicaKey) -> None:
        """Nobody votes twice in an epoch, over crashes too."""
        known = self._votes.setdefault((node_id, epoch), candidate)
        assert known == candidate, f"{node_id} voted for {known} and {candidate} in epoch {epoch}"

    def commits(self, node_id: int, high_watermark: int, log: Sequence[Batch]) -> None:
        """State machine safety: what is committed at an offset is the same for everybody, for ever."""
        prefix = [batch for batch in log if batch.end_offset <= high_watermark]
        reached = prefix[-1].end_offset if prefix else 0
        assert reached == high_watermark, f"{node_id} says {high_watermark} is committed and has {reached}"
        shorter = min(len(prefix), len(self.committed))
        assert prefix[:shorter] == self.committed[:shorter], f"{node_id} has other committed records"
        if len(prefix) > len(self.committed):
            self.committed = prefix

    def completes(self, append_id: int, body: bytes) -> None:
        """A client was told that its append is committed."""
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
        """Whatever a client was told is committed is still there."""
        data = b"".join(batch.data for batch in self.committed)
        missing = [append_id for append_id, body in self.completed.items() if body not in data]
        assert not missing, f"appends {missing} were completed and are lost"
