"""Small worlds for the tests of the invariants: real logs on disks in memory, and replicas that are what a test says.

A Cluster is what the checkers look at. Nothing in it happens by itself: a test puts the nodes into the state that it
wants and hands one Step after another to one invariant.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE, AppliedState, NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Delivery, Step
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataBatch, MetadataRecord
from raft.core.actions import Send, TruncateFullyAndStartAt
from raft.core.config import QuorumConfig
from raft.core.epochs import EpochCache
from raft.core.messages import Request
from raft.core.replica_view import ReplicaView
from raft.core.states import ReplicaProgress, Role
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch
from raft.core.voters import VoterSet
from raft.storage.batch import encode_batch
from raft.storage.segmented_log import SegmentedLog
from snapshot.names import snapshot_name
from tests.raft.core.builders import OBSERVER_ID, endpoint, key
from tests.raft.storage.builders import SMALL, data_batch, segment_paths
from tests.snapshot.builders import snapshot_bytes

SNAPSHOTS = "data/snapshots"


@dataclass
class StandIn:
    """What the invariants read of a replica (`raft.core.replica_view`), set by the test."""

    role: Role = Role.FOLLOWER
    epoch: int = 1
    leader_id: int | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    is_recovering: bool = False
    may_found: bool = False
    followers: tuple[ReplicaProgress, ...] = ()
    now_ms: int = 0
    config: QuorumConfig = field(default_factory=QuorumConfig)
    endpoint: Endpoint | None = None
    voters: VoterSet | None = None
    bootstrap_endpoints: tuple[Endpoint, ...] = ()
    leader_endpoint: Endpoint | None = None
    latest_snapshot_id: OffsetAndEpoch | None = None
    epochs: EpochCache = field(default_factory=EpochCache)
    has_fetched: bool = False
    fetch_deadline_ms: int | None = None

    @property
    def log_start(self) -> OffsetAndEpoch:
        return self.epochs.start

    def epoch_entries(self) -> list[tuple[Epoch, Offset]]:
        return self.epochs.entries()

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(None if self.leader_id is None else NodeId(self.leader_id), Epoch(self.epoch))


class Cluster(Observed):
    """Voters with the node ids from 1 on, and one observer with OBSERVER_ID; all run, with empty logs."""

    def __init__(self, voter_count: int = 3) -> None:
        voter_ids = list(range(1, voter_count + 1))
        super().__init__(
            [NodeView(node_id, key(node_id), is_voter=node_id in voter_ids) for node_id in [*voter_ids, OBSERVER_ID]],
            voter_ids,
        )
        self.files = {node_id: MemoryFileSystem() for node_id in self.nodes}
        self.replicas: dict[int, StandIn] = {}
        for node_id in self.nodes:
            self.start(node_id)

    def start(self, node_id: int, **attributes: Any) -> Step:
        """Start a new process; the attributes are those of its StandIn."""
        node = self.nodes[node_id]
        node.life += 1
        node.log = SegmentedLog.open(self.files[node_id], "data/log", config=SMALL)
        self._look(node_id)
        self.become(node_id, **attributes)
        return Step(self.now_us, node, "start", disk_changed=True, started=True)

    def become(self, node_id: int, **attributes: Any) -> StandIn:
        """Let its replica be another one, in the same process."""
        replica = self.replicas[node_id] = StandIn(**attributes)
        self.nodes[node_id].replica = cast(ReplicaView, replica)
        return replica

    def kill(self, node_id: int) -> Step:
        """End its process."""
        node = self.nodes[node_id]
        node.replica, node.log, node.applied = None, None, None
        return Step(self.now_us, node, "kill", ended="killed")

    def log(self, node_id: int) -> SegmentedLog:
        log = self.nodes[node_id].log
        assert log is not None
        return log

    def append(self, node_id: int, *batches: Batch) -> None:
        """Write to its log, which makes nothing durable."""
        self.log(node_id).append(batches)

    def flush(self, node_id: int) -> Step:
        """Flush its log: the disk holds what the memory does."""
        self.log(node_id).flush()
        return self.disk_changed(node_id)

    def disk_changed(self, node_id: int) -> Step:
        """Something is durable on its disk that was not before."""
        self._look(node_id)
        return self.step(node_id, disk_changed=True)

    def _look(self, node_id: int) -> None:
        self.nodes[node_id].durable_log.refresh(self.files[node_id], "data/log")
        self.nodes[node_id].durable_snapshots.refresh(self.files[node_id], SNAPSHOTS)

    def store(self, node_id: int, *batches: Batch) -> Step:
        """Write to its log and flush."""
        self.append(node_id, *batches)
        return self.flush(node_id)

    def cut(self, node_id: int, end_offset: int) -> Step:
        """Truncate its log."""
        self.log(node_id).truncate(Offset(end_offset))
        return self.flush(node_id)

    def put_snapshot(self, node_id: int, snapshot_id: OffsetAndEpoch, data: bytes | None = None) -> Step:
        """A snapshot, by default a small one, is on its disk."""
        files = self.files[node_id]
        files.make_directories(SNAPSHOTS)
        path = join(SNAPSHOTS, snapshot_name(snapshot_id))
        if files.exists(path):
            files.remove(path)
        file = files.open(path, create=True)
        file.write_at(0, snapshot_bytes(snapshot_id) if data is None else data)
        file.fsync()
        file.close()
        files.fsync_directory(SNAPSHOTS)
        return self.disk_changed(node_id)

    def advance(self, node_id: int, start: OffsetAndEpoch) -> Step:
        """Let its log start there."""
        self.log(node_id).advance_start(start)
        return self.disk_changed(node_id)

    def truncate_fully_and_start_at(self, node_id: int, start: OffsetAndEpoch) -> Step:
        """Let a snapshot take its log's place."""
        self.log(node_id).truncate_fully_and_start_at(start)
        step = self.disk_changed(node_id)
        step.actions = [TruncateFullyAndStartAt(start)]
        return step

    def disk_holds(self, node_id: int, *batches: Batch) -> Step:
        """Let its disk hold these, whatever its memory thinks."""
        log = self.nodes[node_id].durable_log
        log.batches, log.first_changed = list(batches), 0
        return self.step(node_id, disk_changed=True)

    def lose(self, node_id: int) -> Step:
        """Damage takes everything from its disk."""
        self.nodes[node_id].has_lost_data = True
        return self.disk_holds(node_id)

    def make_unreadable(self, node_id: int) -> None:
        """Damage makes its disk refuse every read; what the log has in its cache is still there."""
        self.nodes[node_id].has_lost_data = True
        self.files[node_id].failing_reads.update(segment_paths(self.files[node_id]))

    def commit(self, *batches: Batch) -> None:
        """Let these be the committed log."""
        self.committed = list(batches)

    def apply(self, node_id: int, *batches: Batch, digest: str = "same") -> Step:
        """Deliver these to its listener, and give its state machine the digest `digest`."""
        self.nodes[node_id].applied = AppliedState(batches[-1].end_offset, digest)
        return self.step(node_id, deliveries=[Delivery(batches)])

    def load(
        self, node_id: int, snapshot_id: OffsetAndEpoch, digest: str = "same", listener: str = STATE_MACHINE
    ) -> Step:
        """Deliver a snapshot to one of its listeners; its state machine gets the digest `digest` from it."""
        if listener == STATE_MACHINE:
            self.nodes[node_id].applied = AppliedState(snapshot_id.offset, digest)
        return self.step(node_id, deliveries=[Delivery(snapshot_id=snapshot_id, listener=listener)])

    def step(self, node_id: int, label: str = "timer", **fields: Any) -> Step:
        """Something happens to a node."""
        return Step(self.now_us, self.nodes[node_id], label, **fields)


def restart(cluster: Cluster, applied: int) -> Step:
    """Node 1 starts again, with this much applied."""
    step = cluster.start(1)
    cluster.nodes[1].applied = AppliedState(Offset(applied), f"at {applied}")
    return step


def violates(invariant: Invariant) -> AbstractContextManager[object]:
    """The invariant must cry within this, and name itself."""
    return pytest.raises(Violation, match=rf"^{invariant.title} \({invariant.number}\): ")


def at(offset: int, epoch: int = 1) -> OffsetAndEpoch:
    """A log start, or a snapshot's id."""
    return OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))


def batches(*epochs: int) -> list[Batch]:
    """One batch of one record for each epoch, from offset 0 on."""
    return [data_batch(offset, epoch) for offset, epoch in enumerate(epochs)]


def write_of(base_offset: int, *keys: str, epoch: int = 1) -> Batch:
    """A batch that writes these keys, one record each."""
    records = [MetadataRecord(config=ConfigRecord(resource_name=name, name="value", value="x")) for name in keys]
    body = MetadataBatch(records=records).SerializeToString()
    return encode_batch(Offset(base_offset), Epoch(epoch), body, len(records), 0)


def send(request: Request, destination_id: int = 2, correlation_id: int = 1) -> Send:
    """The order to send a request to a node."""
    return Send(correlation_id, endpoint(destination_id), request)
