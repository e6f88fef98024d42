"""What the checkers may look at of the whole cluster."""

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
    """What is known of the whole cluster: the base class of the world, and of small worlds in the checkers' tests."""

    def __init__(self, nodes: Sequence[NodeView], voter_ids: Sequence[int]) -> None:
        self.now_us = 0
        self.nodes = {node.node_id: node for node in nodes}
        self.voter_ids = tuple(voter_ids)
        self.committed: list[Batch] = []
        """The committed log: the batches below the highest high watermark that any node has known, as first reported.

        Kept by the invariant CommittedImmutable, which runs first."""
        self.acknowledged_end_offsets: list[Offset] = []
        """For every acknowledged operation of a client: where its record ends."""
        self.metadata = MetadataModel()
        """The metadata of the committed log, if this run has brokers. Kept by the invariant MetadataMakesSense."""
        self.metadata_log: list[TakenBatch] = []
        """The batches that it has taken in."""
        self.metadata_changes: list[Change] = []
        """What the last step made it change."""
        self.remote_storage = RemoteStorage()
        self.calls: list[Call] = []
        """Every operation that brokers and the administrator asked the controller for."""
        self.brokers: Sequence[BrokerView] = []
        """All there are; none in most runs."""
        self.operations: list[Operation] = []
        """Every operation that clients began, with its answer."""
        self.cut_since_us: Mapping[tuple[int, int], int] = {}
        """For each link that is cut, one way: since when no message passes."""
        self.log_start = LogStartConfig()
        """The nodes' policy for their log start."""
        self.faults_may_lose_quorum = False
        """The run destroys more than a minority can: then the cluster must halt, and what it holds may be lost."""

    @property
    def majority(self) -> int:
        """How many voters make a majority."""
        return len(self.voter_ids) // 2 + 1

    @property
    def committed_end_offset(self) -> Offset:
        """Where the committed log ends."""
        return self.committed[-1].end_offset if self.committed else Offset(0)

    def committed_at(self, offset: int) -> Batch | None:
        """The committed batch that holds `offset`."""
        index = bisect_right(self.committed, offset, key=lambda batch: batch.base_offset) - 1
        if index < 0 or self.committed[index].end_offset <= offset:
            return None
        return self.committed[index]
