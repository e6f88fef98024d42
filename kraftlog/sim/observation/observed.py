"""What the checkers may look at: each node's memory and each node's disk, and what a step did.

The disk is read here, from the bytes that would survive if everything that is not synced were lost, and not from what
the node says of itself. Only what changed since the last look is decoded again.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftbase.errors import KraftlogError
from kraftbase.files.files import join
from kraftbase.files.memory import DurableFile, MemoryFileSystem
from kraftlog.sim.model.metadata import Change, PlainMetadata, TakenBatch
from kraftlog.sim.registers.history import Operation
from kraftlog.sim.users.tiering import RemoteStorage
from raft.core.actions import Action
from raft.core.election import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.events import Event
from raft.core.messages import Request, Response
from raft.core.replica import Replica
from raft.core.types import Batch, LeaderAndEpoch, Offset, OffsetAndEpoch, ReplicaKey
from raft.storage.frame import NO_CRC, decode_frame
from raft.storage.log_start import LOG_START_NAME, decode_log_start
from raft.storage.quorum_state import COPY_NAMES, decode_copy
from raft.storage.segment import parse_segment_name
from raft.storage.segmented_log import SegmentedLog
from snapshot.log_start import LogStartConfig
from snapshot.names import parse_snapshot_name, snapshot_name
from snapshot.reader import SnapshotReader

if TYPE_CHECKING:
    from kraftlog.sim.users.broker import Broker
    from kraftlog.sim.users.rpc import Call


class _SeenFrame(NamedTuple):
    segment: int
    """Index of the segment."""
    position: int
    end_position: int
    crc: int
    batch_count: int
    """How many batches there are up to and with this frame."""


class _SeenFile(NamedTuple):
    name: str
    file: DurableFile
    size: int


class DurableLog:
    """The batches on a disk that would survive a crash which loses everything unsynced: the undamaged prefix.

    Batches below the log's start may be among them, as far as their segment is still there.
    """

    def __init__(self) -> None:
        self.start: OffsetAndEpoch = LOG_BEGINNING
        """Where the log starts, and the epoch of the record before."""
        self.batches: list[Batch] = []
        self.first_changed = 0
        """Index of the first batch that is new, or was there before and is not, since the refresh before the last."""
        self._frames: list[_SeenFrame] = []
        self._files: list[_SeenFile] = []

    @property
    def end_offset(self) -> Offset:
        """Where it ends."""
        if self.batches:
            return self.batches[-1].end_offset
        first = parse_segment_name(self._files[0].name) if self._files else None
        return self.start.offset if first is None else first

    def holds(self, offset: int, epoch: int) -> bool:
        """Whether what is at `offset`, in that epoch, is here: as a batch, or in the snapshot before the start."""
        if offset < self.start.offset:
            return True
        held = self.at(offset)
        return held is not None and held.epoch == epoch

    def from_start(self) -> list[Batch]:
        """The batches of the log."""
        first = bisect_left(self.batches, self.start.offset, key=lambda batch: batch.base_offset)
        return self.batches[first:]

    def at(self, offset: int) -> Batch | None:
        """The batch that holds `offset`."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1
        if index < 0 or self.batches[index].end_offset <= offset:
            return None
        return self.batches[index]

    def refresh(self, files: MemoryFileSystem, directory: str) -> None:
        """Look again."""
        named = files.durable_files(directory) if files.exists(directory) else {}
        self.start = _durable_start(named)
        segments = [
            _SeenFile(name, named[name], len(named[name].data))
            for name in sorted(named)
            if parse_segment_name(name) is not None
        ]
        changed = self._first_change(segments)
        self._files = segments
        while self._frames and (self._frames[-1].segment, self._frames[-1].end_position) > changed:
            self._frames.pop()
        kept = self._frames[-1].batch_count if self._frames else 0
        self.first_changed = kept
        del self.batches[kept:]
        self._decode()

    def _first_change(self, segments: Sequence[_SeenFile]) -> tuple[int, int]:
        """Index of the first segment that is not as it was, and from which byte on."""
        changes = []
        for index, seen in enumerate(segments):
            changed_from = seen.file.take_changed_from()
            before = self._files[index] if index < len(self._files) else None
            if before is None or before.name != seen.name or not before.file.is_same(seen.file):
                changes.append((index, 0))
            elif changed_from < before.size or seen.size != before.size:
                changes.append((index, min(changed_from, before.size)))
        return min(changes, default=(len(segments), 0))

    def _decode(self) -> None:
        """Read on from the last frame that still stands."""
        last = self._frames[-1] if self._frames else None
        segment, position, crc = (last.segment, last.end_position, last.crc) if last else (0, 0, NO_CRC)
        while segment < len(self._files):
            seen = self._files[segment]
            base_offset = parse_segment_name(seen.name)
            next_offset = self.batches[-1].end_offset if self.batches else base_offset
            if position == 0 and base_offset != next_offset:
                return
            tail = bytes(seen.file.data[position:])
            data_position = position
            while (frame := decode_frame(tail, position, data_position)) is not None and (
                frame.previous_crc == crc or (base_offset and segment == position == 0)
            ):
                if frame.batch is not None:
                    if frame.batch.base_offset != (self.batches[-1].end_offset if self.batches else base_offset):
                        return
                    self.batches.append(frame.batch)
                position, crc = frame.end_position, frame.crc
                self._frames.append(_SeenFrame(segment, frame.position, position, crc, len(self.batches)))
            segment, position = segment + 1, 0


def _durable_start(named: Mapping[str, DurableFile]) -> OffsetAndEpoch:
    file = named.get(LOG_START_NAME)
    return LOG_BEGINNING if file is None else decode_log_start(bytes(file.data), LOG_START_NAME)


class DurableSnapshots:
    """The snapshots on a disk that would survive a crash which loses everything unsynced."""

    def __init__(self) -> None:
        self.found: dict[OffsetAndEpoch, bytes] = {}
        """What the files hold that have a snapshot's name."""
        self.new: list[OffsetAndEpoch] = []
        """Those that came, or changed, with the last refresh."""

    def refresh(self, files: MemoryFileSystem, directory: str) -> None:
        """Look again."""
        named = files.durable_files(directory) if files.exists(directory) else {}
        before, self.found = self.found, {}
        for name in sorted(named):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None:
                self.found[snapshot_id] = bytes(named[name].data)
        self.new = [found for found, data in self.found.items() if before.get(found) != data]


def snapshot_fault(snapshot_id: OffsetAndEpoch, data: bytes) -> str | None:
    """What is wrong with a snapshot; None if it is whole."""
    files = MemoryFileSystem()
    name = snapshot_name(snapshot_id)
    file = files.open(name, create=True)
    file.write_at(0, data)
    try:
        with SnapshotReader(files, name) as reader:
            reader.verify()
    except KraftlogError as error:
        return str(error)
    return None


def durable_election_state(files: MemoryFileSystem, directory: str) -> ElectionState | None:
    """What the quorum state would be after a crash that loses everything unsynced; None if there is none."""
    named = files.durable_files(directory)
    copies = [decode_copy(bytes(named[name].data), join(directory, name)) for name in COPY_NAMES if name in named]
    whole = [copy for copy in copies if copy is not None]
    return max(whole, key=lambda copy: copy[0])[1] if whole else None


class AppliedState(NamedTuple):
    """How much of the log a node's state machine holds, and what it came to."""

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
    replica: Replica | None = None
    """None while no process runs."""
    log: SegmentedLog | None = None
    applied: AppliedState | None = None
    """None while no process runs."""
    tables: sqlite3.Connection | None = None
    """The database of its state machine; None while no process runs."""
    is_behind: bool = False
    """Its shell has not yet carried out all that the replica ordered: the log is not yet what the replica thinks."""
    is_paused: bool = False
    durable_log: DurableLog = field(default_factory=DurableLog)
    durable_snapshots: DurableSnapshots = field(default_factory=DurableSnapshots)
    durable_election: ElectionState | None = None
    has_diverged: bool = False
    """A fault made its state machine come to something else; it has not been made anew since."""
    has_rotted: bool = False
    """Of those: a fault changed a row of its tables, so that the node itself must find out."""
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


@dataclass(slots=True)
class Delivery:
    """What a node's listener was given: committed batches, or a leader."""

    batches: tuple[Batch, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    """A snapshot was loaded."""
    listener: str = STATE_MACHINE
    leader: LeaderAndEpoch | None = None
    epoch_start_offset: Offset | None = None
    """With a leader: set iff this node leads."""


@dataclass(slots=True)
class Step:
    """What happened to one node between two checks: one callback of its process, from beginning to end."""

    now_us: int
    node: NodeView
    label: str
    """What it was, for people: `timer`, `Fetch from 2`, `start`, `crash` and so on."""
    events: list[Event] = field(default_factory=list)
    """What the replica was told, in order; mostly one."""
    actions: list[Action] = field(default_factory=list)
    """What it ordered, in order. A crash may have come before all of it was carried out."""
    replies: list[tuple[Request, Response]] = field(default_factory=list)
    """What left as answers, with the requests."""
    deliveries: list[Delivery] = field(default_factory=list)
    disk_changed: bool = False
    """Whether what is durable may have changed; the node's view of it is fresh."""
    started: bool = False
    """Whether the process was started in this step."""
    ended: str = ""
    """Why the process ended in this step; empty if it did not."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing happened: a timer found nothing to do."""
        return not (
            self.events or self.actions or self.replies or self.deliveries
            or self.disk_changed or self.started or self.ended
        )  # fmt: skip


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
        """Of every operation that a client was told is done: where its record ends."""
        self.metadata = PlainMetadata()
        """What the committed log says, if this run has brokers. Kept by the invariant MetadataMakesSense."""
        self.metadata_log: list[TakenBatch] = []
        """The batches that it has taken in."""
        self.metadata_changes: list[Change] = []
        """What the last step made it change."""
        self.remote_storage = RemoteStorage()
        self.calls: list[Call] = []
        """Every operation that brokers and the administrator asked the controller for."""
        self.brokers: list[Broker] = []
        """All there are; none in most runs."""
        self.operations: list[Operation] = []
        """Every operation that clients began, with what they were told."""
        self.cut_since_us: Mapping[tuple[int, int], int] = {}
        """For each link that is cut, one way: since when no message passes."""
        self.log_start = LogStartConfig()
        """What the nodes are told about their log start."""
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
