"""The view of one node for the checkers: its memory and its disk."""

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
    """How much of the log a node's state machine holds, and its digest."""

    end_offset: Offset
    digest: str


@dataclass(slots=True)
class NodeView:
    """One node. Kept by the world; checkers only read it."""

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
    """What a publisher of its state machine knows; None if there is none, or while no process runs."""
    is_behind: bool = False
    """Its shell has not yet carried out all that the replica ordered: the log is not yet what the replica thinks."""
    is_paused: bool = False
    durable_log: DurableLog = field(default_factory=DurableLog)
    durable_snapshots: DurableSnapshots = field(default_factory=DurableSnapshots)
    durable_election: ElectionState | None = None
    has_diverged: bool = False
    """A fault made its state machine differ from the others'; it has not been rebuilt since."""
    has_rotted: bool = False
    """In addition: a fault changed a row of its tables, and the node must detect that by itself."""
    started_at_us: int = 0
    """When its process was started."""
    now_ms: int = 0
    """Its monotonic clock, at the last step."""
    has_leapt: bool = False
    """Its clock has leapt since its process was started."""
    has_damaged_snapshots: bool = False
    """A fault has damaged one of its snapshots; it has not been replaced since."""
    positions: tuple[tuple[str, Offset], ...] = ()
    """How far its listeners have read, by name; -1: not begun."""
    has_lost_data: bool = False
    """A fault took durable data from its disk that it has not got back yet: damage, or a wiped disk."""

    def ends(self) -> Ends | Offset:
        """Role, epoch and how far everything goes; of a node that is down only where its log on the disk ends."""
        replica, log = self.replica, self.log
        if replica is None or log is None:
            return self.durable_log.end_offset
        leader_id, epoch = replica.leader_and_epoch
        applied = self.applied.end_offset if self.applied is not None else -1
        ends = (replica.high_watermark, log.log_end_offset, log.flushed_end_offset)
        return (replica.role.value, epoch, leader_id, *ends, applied, self.durable_log.end_offset)

    def news(self, ends: Ends | Offset) -> News:
        """All that most invariants look at, with its present `ends`: while it stays the same, they need not."""
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
    """What a running node's log gives out from `start` up to `end`; None if damage to its disk is in the way.

    Raises KraftlogError if there is no damage that could be.
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
