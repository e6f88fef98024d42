"""What the invariants may read of the whole cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from kraftbase.types import Offset
from kraftlog.sim.quorum.model.metadata import Change, MetadataModel, TakenBatch
from kraftlog.sim.quorum.observation.broker_view import BrokerView
from kraftlog.sim.quorum.observation.call import Call
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.registers.history import Operation
from kraftlog.sim.quorum.remote_storage import RemoteStorage
from raft.core.types import Batch
from snapshot.log_start_policy import LogStartConfig


class Observed:
    """The observable state of a cluster.

    It is the base class of the world, and of small worlds in tests of invariants.
    """

    def __init__(self, nodes: Sequence[NodeView], voter_ids: Sequence[int]) -> None:
        self.now_us = 0
        self.nodes = {node.node_id: node for node in nodes}
        self.voter_ids = tuple(voter_ids)
        self.committed: list[Batch] = []
        """The committed log: the batches below the highest high watermark that any node has known, as first reported.

        Kept by the invariant CommittedImmutable, which runs first."""
        self.acknowledged_end_offsets: list[Offset] = []
        """For each acknowledged operation of a client: the end offset of its record."""
        self.metadata = MetadataModel()
        """The metadata of the committed log, in runs with brokers. Kept by the invariant MetadataMakesSense."""
        self.metadata_log: list[TakenBatch] = []
        """The batches that `metadata` includes."""
        self.metadata_changes: list[Change] = []
        """The changes that the last step made to `metadata`."""
        self.remote_storage = RemoteStorage()
        self.calls: list[Call] = []
        """Every operation that brokers and the administrator sent to the controller."""
        self.brokers: Sequence[BrokerView] = []
        """All brokers. Most runs have none."""
        self.operations: list[Operation] = []
        """Every operation that clients began, with its answer."""
        self.cut_since_us: Mapping[tuple[int, int], int] = {}
        """For each cut link, in one direction: since when it has lost all messages."""
        self.log_start = LogStartConfig()
        """The policy by which the nodes advance their log start."""
        self.faults_may_lose_quorum = False
        """Whether faults may destroy more than a minority of disks.

        The cluster must then stop, and its data may be lost.
        """

    @property
    def majority(self) -> int:
        """The number of voters in a majority."""
        return len(self.voter_ids) // 2 + 1

    @property
    def committed_end_offset(self) -> Offset:
        """The end offset of the committed log."""
        return self.committed[-1].end_offset if self.committed else Offset(0)

    def committed_at(self, offset: int) -> Batch | None:
        """Return the committed batch that holds `offset`; None if there is none."""
        index = bisect_right(self.committed, offset, key=lambda batch: batch.base_offset) - 1
        if index < 0 or self.committed[index].end_offset <= offset:
            return None
        return self.committed[index]
