"""A log in memory behind the controller's port, whose commits the test controls.

Listeners are fed by the real `Delivery` from a real `CommitFeed`, so they see what they would see of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import DirectoryId, Epoch, NodeId, Offset
from raft.commits import CommitFeed
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey
from raft.delivery import Delivery
from raft.listener import Listener
from raft.shell.appends import OnSettled
from raft.storage.batch import encode_batch
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from tests.statemachine.builders import CLUSTER_ID

OTHER_LEADER = NodeId(2)


@dataclass(frozen=True)
class Prepared:
    """An append whose offsets are known."""

    base_offset: Offset
    end_offset: Offset
    on_settled: OnSettled


class MemoryLog:
    """One voter's log. With `auto_commit` what is scheduled is committed when the loop comes round."""

    def __init__(self, on_fault: Callable[[BaseException], None], *, auto_commit: bool = True) -> None:
        self.cluster_id = CLUSTER_ID
        self.node_key = ReplicaKey(NodeId(1), DirectoryId(int=7))
        self.voter_ids = frozenset({NodeId(1)})
        self.leader_and_epoch = LeaderAndEpoch(None, Epoch(0))
        self.leader_endpoint: Endpoint | None = None
        self.auto_commit = auto_commit
        self.refusal: ApiError | None = None
        """The error with which the next append is refused."""
        self.batches: list[Batch] = []
        self.log_start_offset = Offset(0)
        """What is below is delivered to listeners as the newest of `snapshots`."""
        self.snapshots: SnapshotStore | None = None
        self.feed = CommitFeed(self.leader_and_epoch)
        self.delivery = Delivery(
            self, self, self.feed, AsyncioRuntime(), lambda listener, error: on_fault(error), on_fault
        )
        self._on_fault = on_fault
        self._prepared: list[tuple[Prepared, bytes]] = []
        self._uncommitted: list[Prepared] = []
        self._is_settling = False

    # --- the port -----------------------------------------------------------------------------------------------------

    @property
    def next_append_offset(self) -> Offset:
        return self._prepared[-1][0].end_offset if self._prepared else self.log_end_offset

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        assert not self._is_settling, "who is told of a settled append must not append in that call"
        if self.leader_and_epoch != (self.node_key.node_id, epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this node does not lead epoch {epoch}")
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        base_offset = self.next_append_offset
        self._prepared.append((Prepared(base_offset, Offset(base_offset + record_count), on_settled), body))
        return base_offset

    def schedule_appends(self) -> None:
        for prepared, body in self._prepared:
            count = prepared.end_offset - prepared.base_offset
            self.batches.append(encode_batch(prepared.base_offset, self.leader_and_epoch.epoch, body, count, 1))
            self._uncommitted.append(prepared)
        self._prepared.clear()
        if self.auto_commit:
            asyncio.get_running_loop().call_soon(self.commit)

    def fatal(self, error: BaseException) -> None:
        self._on_fault(error)

    def resign(self, epoch: Epoch) -> None:
        if self.leader_and_epoch == (self.node_key.node_id, epoch):
            self.lose_leadership(leader_id=None)

    def register(self, listener: Listener, *, start_offset: Offset | None = Offset(0)) -> None:
        self.delivery.register(listener, start_offset)

    # --- the snapshots, for `Delivery` --------------------------------------------------------------------------------

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return None if self.snapshots is None else self.snapshots.latest()

    def open_latest(self, on_opened: Callable[[SnapshotReader | None], None]) -> None:
        newest = self.latest
        opened = None if self.snapshots is None or newest is None else self.snapshots.open_whole(newest)
        asyncio.get_running_loop().call_soon(on_opened, opened)

    # --- the test's controls ------------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else Offset(0)

    def read_batches(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> tuple[Batch, ...]:
        assert start_offset >= self.log_start_offset
        wanted = [batch for batch in self.batches if batch.end_offset > start_offset]
        return tuple(batch for batch in wanted if end_offset is None or batch.end_offset <= end_offset)

    def lead(self) -> None:
        """Win an election: the first record of the epoch is committed at once."""
        epoch = Epoch(self.leader_and_epoch.epoch + 1)
        self.leader_and_epoch = LeaderAndEpoch(self.node_key.node_id, epoch)
        start_offset = self.log_end_offset
        self.batches.append(encode_batch(start_offset, epoch, b"", 1, 1, is_control=True))
        self.feed.set_leader(self.leader_and_epoch, self.leader_endpoint, start_offset)
        self.feed.advance(self.log_end_offset)

    def commit(self, appends: int | None = None) -> None:
        """Commit what is scheduled: everything, or this many of the first appends."""
        committed = self._uncommitted[:appends]
        del self._uncommitted[: len(committed)]
        self._settle(committed, None)
        self.feed.advance(self._uncommitted[0].base_offset if self._uncommitted else self.log_end_offset)

    def lose_leadership(self, *, leader_id: NodeId | None = OTHER_LEADER, keep: bool = False) -> None:
        """Another node leads from now on. What is not committed is truncated, or kept and committed by that node."""
        failed = [*self._uncommitted, *(prepared for prepared, _ in self._prepared)]
        self._prepared.clear()
        self._uncommitted.clear()
        if not keep:
            del self.batches[len([b for b in self.batches if b.end_offset <= self.feed.committed_end_offset]) :]
        self.leader_and_epoch = LeaderAndEpoch(leader_id, Epoch(self.leader_and_epoch.epoch + 1))
        self._settle(failed, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership was lost"))
        self.feed.set_leader(self.leader_and_epoch, self.leader_endpoint, None)
        self.feed.advance(self.log_end_offset)

    def _settle(self, appends: list[Prepared], error: ApiError | None) -> None:
        self._is_settling = True
        try:
            for prepared in appends:
                prepared.on_settled(error)
        finally:
            self._is_settling = False

    async def close(self) -> None:
        await awaited(self.delivery.close)
