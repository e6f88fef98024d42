"""A snapshot that is being fetched is assembled from its bytes in order."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import AppendSnapshot, DropSnapshot, Send
from raft.core.events import SnapshotRefused
from raft.core.messages import FetchSnapshotRequest
from raft.core.types import OffsetAndEpoch


@dataclass(slots=True)
class _Transfer:
    life: int
    snapshot_id: OffsetAndEpoch | None = None
    fetch_id: int = 0
    size_bytes: int = 0


class TransfersGoOn(Invariant):
    """A replica that fetches a snapshot requests the byte after the last one that it has written (SN-12).

    This holds whichever leader it fetches from. It may start over at any time, with byte 0. Here bytes count as written
    as soon as the replica has ordered the write, because it requests nothing more until they really are written. There
    are no false positives.
    """

    number = 53
    title = "a transfer resumes where it stopped"
    source = "Kafka, KafkaRaftClient.handleFetchSnapshotResponse"
    looks_at = frozenset({SnapshotRefused, AppendSnapshot, DropSnapshot, Send})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._transfers: dict[int, _Transfer] = {}

    def after_step(self, step: Step) -> None:
        """Follow the ordered writes, and compare them with the requests."""
        node = step.node
        transfer = self._transfers.get(node.node_id)
        if transfer is None or transfer.life != node.life:
            transfer = self._transfers[node.node_id] = _Transfer(node.life)
        if any(isinstance(event, SnapshotRefused) for event in step.events):
            transfer.snapshot_id = None
        for action in step.actions:
            match action:
                case AppendSnapshot(fetch_id, snapshot_id, data):
                    if (fetch_id, snapshot_id) != (transfer.fetch_id, transfer.snapshot_id):
                        transfer.fetch_id, transfer.snapshot_id, transfer.size_bytes = fetch_id, snapshot_id, 0
                    transfer.size_bytes += len(data)
                case DropSnapshot():
                    transfer.snapshot_id = None
                case Send(request=FetchSnapshotRequest() as request):
                    self._check(node.node_id, transfer, request)

    def _check(self, node_id: int, transfer: _Transfer, request: FetchSnapshotRequest) -> None:
        written = transfer.size_bytes if transfer.snapshot_id == request.snapshot_id else 0
        if request.position not in (0, written):
            self.violated(
                f"node {node_id} requests the snapshot {request.snapshot_id} from byte {request.position} on, but has"
                f" written {written}"
            )
