"""Listeners receive committed records in order."""

from __future__ import annotations

from dataclasses import dataclass

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE, NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Delivery, Step


@dataclass(slots=True)
class _Delivered:
    life: int
    next_offset: Offset
    epoch: int = 0


class ListenerContract(Invariant):
    """Batches are committed, contiguous and delivered once; snapshots and leader changes keep their rules.

    Only a listener that is new or behind the log's start gets a snapshot. Leaders' epochs never go back. The leader's
    own listener learns that it leads only after it received everything before its epoch (LI-02 to LI-05, SN-60 to
    SN-62). A new process has a new listener, which begins at the applied offset of its state machine. A node whose disk
    cannot be read may be the only one that knows what it delivered. There are no other false positives.
    """

    number = 32
    title = "listeners receive records in order"
    source = "Kafka RaftClient.Listener"
    looks_at = frozenset({"deliveries", "started"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._delivered: dict[tuple[int, str], _Delivered] = {}

    def after_step(self, step: Step) -> None:
        """Follow the deliveries to the node's listeners."""
        node = step.node
        if step.started and node.applied is not None:
            self._delivered[node.node_id, STATE_MACHINE] = _Delivered(node.life, node.applied.end_offset)
        for delivery in step.deliveries:
            place = (node.node_id, delivery.listener)
            given = self._delivered.get(place)
            if given is None or given.life != node.life:
                given = self._delivered[place] = _Delivered(node.life, Offset(0))
            self._check(node, given, delivery)

    def _check(self, node: NodeView, given: _Delivered, delivery: Delivery) -> None:
        node_id = node.node_id
        if delivery.snapshot_id is not None:
            start = node.log.log_start_offset if node.log is not None else None
            if given.next_offset > 0 and start is not None and given.next_offset >= start:
                self.violated(
                    f"the listener of node {node_id} keeps up at {given.next_offset}, its log begins at {start}, and it"
                    f" gets the snapshot {delivery.snapshot_id}"
                )
            if delivery.snapshot_id.offset < given.next_offset:
                self.violated(
                    f"the listener of node {node_id} is at {given.next_offset}, but gets {delivery.snapshot_id}"
                )
            given.next_offset = delivery.snapshot_id.offset
        for batch in delivery.batches:
            if batch.base_offset != given.next_offset:
                self.violated(f"the listener of node {node_id} gets {batch.base_offset} at {given.next_offset}")
            committed = self.world.committed_at(batch.base_offset)
            if committed != batch and (committed is not None or not node.has_lost_data):
                self.violated(f"the listener of node {node_id} gets {batch.base_offset}, which is not committed")
            given.next_offset = batch.end_offset
        if delivery.leader is None:
            return
        if delivery.leader.epoch < given.epoch:
            self.violated(f"the listener of node {node_id} learns of epoch {delivery.leader.epoch} after {given.epoch}")
        given.epoch = delivery.leader.epoch
        start = delivery.epoch_start_offset
        if start is not None and given.next_offset <= start:
            self.violated(
                f"the listener of node {node_id} learns that it leads from {start} on, but received records only up to"
                f" {given.next_offset}"
            )
