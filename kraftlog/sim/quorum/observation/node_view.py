"""The view of one node for the invariants: its memory and its disk."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kraftbase.errors import KraftlogError
from kraftbase.types import Offset
from kraftlog.sim.quorum.observation.durable_log import DurableLog
from kraftlog.sim.quorum.observation.durable_state import DurableSnapshots
from kraftlog.sim.quorum.observation.service import Watched
from raft.core.election_state import ElectionState
from raft.core.replica_view import ReplicaView
from raft.core.types import Batch, ReplicaKey
from raft.storage.segmented_log import SegmentedLog


class AppliedState(NamedTuple):
    """The end offset up to which a node's state machine has applied the log, and its digest."""

    end_offset: Offset
    digest: str


@dataclass(slots=True)
class NodeView:
    """One node. The world updates it; invariants only read it."""

    node_id: int
    key: ReplicaKey
    is_voter: bool
    life: int = 0
    """How often its process was started."""
    replica: ReplicaView | None = None
    """None while no process runs."""
    log: SegmentedLog | None = None
    applied: AppliedState | None = None
    """None while no process runs."""
    tables: sqlite3.Connection | None = None
    """The database of its state machine; None while no process runs."""
    watched: Watched | None = None
    """The state of its state machine's publisher; None if it has none, or while no process runs."""
    is_behind: bool = False
    """Its shell has not yet carried out all actions of the replica: the log is not yet as the replica's state says."""
    is_paused: bool = False
    durable_log: DurableLog = field(default_factory=DurableLog)
    durable_snapshots: DurableSnapshots = field(default_factory=DurableSnapshots)
    durable_election: ElectionState | None = None
    has_diverged: bool = False
    """A fault made its state machine differ from the others, and it has not been rebuilt since."""
    has_bit_rot: bool = False
    """In addition to `has_diverged`: a fault changed a row of its tables, and the node must detect this by itself."""
    started_at_us: int = 0
    """When its process was started."""
    now_ms: int = 0
    """Its monotonic clock at the last step."""
    has_leapt: bool = False
    """Whether its clock has leapt since its process was started."""
    has_damaged_snapshots: bool = False
    """A fault has damaged one of its snapshots, and the snapshot has not been replaced since."""
    positions: tuple[tuple[str, Offset], ...] = ()
    """The read positions of its listeners, by name; -1: not started."""
    has_lost_data: bool = False
    """A fault destroyed durable data on its disk, by damage or by wiping it, and the node has not fetched it again yet.
    """

    def ends(self) -> Ends | Offset:
        """Return the role, epoch and end offsets. For a node that is down: only the end of the log on its disk."""
        replica, log = self.replica, self.log
        if replica is None or log is None:
            return self.durable_log.end_offset
        leader_id, epoch = replica.leader_and_epoch
        applied = self.applied.end_offset if self.applied is not None else -1
        ends = (replica.high_watermark, log.log_end_offset, log.flushed_end_offset)
        return (replica.role.value, epoch, leader_id, *ends, applied, self.durable_log.end_offset)

    def news(self, ends: Ends | Offset) -> News:
        """Return all values that most invariants depend on. While these do not change, the invariants need not run."""
        log_start_offset = -1 if self.log is None else self.log.log_start_offset
        return (ends, log_start_offset, self.life, self.is_behind, self.has_lost_data)


Ends: TypeAlias = tuple[str, int, int | None, int, int, int, int, int]
"""Role, epoch, leader, high watermark, log end, flushed end, applied end, end of the log on the disk."""

News: TypeAlias = tuple[Ends | Offset, int, int, bool, bool]
"""The ends, the log start, the node's life, whether it is behind, whether its disk has lost data."""

READ_BYTES: Final = 1 << 30

STATE_MACHINE: Final = "state machine"
"""The name of the listener that every node has."""


def batches_of(node: NodeView, start: Offset, end: Offset | None = None) -> list[Batch] | None:
    """Return the batches of a running node's log from `start` to `end`; None if damage to its disk prevents the read.

    Raises KraftlogError if the read fails although no fault has damaged the disk.
    """
    found: list[Batch] = []
    offset = start
    try:
        while node.log is not None and (batches := node.log.read_batches(offset, READ_BYTES, end)):
            found += batches
            offset = batches[-1].end_offset
    except KraftlogError:
        if not node.has_lost_data:
            raise
        return None
    return found
