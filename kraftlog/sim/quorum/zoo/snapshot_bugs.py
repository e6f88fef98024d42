"""Bugs of snapshots and of the log start: too early, not durable in time, incomplete, or with a wrong id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import kraftlog.sim.quorum.node.database
import raft.shell.log_start_keeper
import raft.shell.node_snapshots
import raft.storage.segmented_log
import snapshot.format
from kraftbase.checksum import crc32c
from kraftbase.types import Epoch, Offset
from kraftlog.sim.engine.mutation import instead, mutation
from raft.core import appends, snapshot_fetch
from raft.core.actions import TruncateFullyAndStartAt
from raft.core.environment import Environment
from raft.core.epochs import EpochCache
from raft.core.log import LogState
from raft.core.messages import FetchSnapshotRequest
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader
from raft.core.types import Batch, OffsetAndEpoch
from raft.delivery import ListenerCursor
from raft.shell.log_start_keeper import LogStartKeeper
from raft.storage.batch import CRC_BYTES, decode_batch
from raft.storage.log_start_file import write_log_start
from raft.storage.segmented_log import SegmentedLog
from snapshot.format import SnapshotChecks, decode_footer
from snapshot.incoming import IncomingSnapshot
from snapshot.log_start_policy import LogStartConfig, LogStartDecision, LogStartView, ReaderKind, decide
from snapshot.writer import UnfinishedSnapshot
from statemachine.store.image import SnapshotPoint, snapshot_point
from statemachine.store.metadata_tables import AppliedState, MetadataTables

# --- the log's start --------------------------------------------------------------------------------------------------


@mutation("retention by size does not look for a snapshot", "KAFKA-14238")
def retention_ignores_snapshots() -> list[Any]:
    """A log that is too large is deleted up to the high watermark, whatever a snapshot holds."""
    check = LogStartKeeper.check

    def forgetful(self: LogStartKeeper) -> None:
        log = self._log
        end_offset = min(self._replica.high_watermark, log.flushed_end_offset)
        if log.size_bytes > self._config.retention_bytes and end_offset > log.log_start_offset:
            start = OffsetAndEpoch(epoch=log.epochs.epoch_before(end_offset), offset=end_offset)
            log.advance_start(start)
            self._on_advanced(start)
        check(self)

    return [instead(LogStartKeeper, "check", forgetful)]


def _deciding(change: Callable[[LogStartView], LogStartView]) -> list[Any]:
    def changed(config: LogStartConfig, view: LogStartView) -> LogStartDecision:
        return decide(config, change(view))

    return [instead(raft.shell.log_start_keeper, "decide", changed)]


def _without(kind: ReaderKind) -> list[Any]:
    return _deciding(
        lambda view: replace(view, readers=tuple(reader for reader in view.readers if reader.kind is not kind))
    )


@mutation("the log start passes a slow listener", "KAFKA-14932")
def listeners_ignored() -> list[Any]:
    """The positions of listeners are not checked."""
    return _without(ReaderKind.LISTENER)


@mutation("the log start passes a live replica", "KAFKA-14932")
def replicas_ignored() -> list[Any]:
    """The fetch offsets of replicas are not checked."""
    return _without(ReaderKind.REPLICA)


@mutation("a follower's log starts further on than its leader's", "SN-52")
def follower_ahead() -> list[Any]:
    """A follower advances its log start by itself."""

    def change(view: LogStartView) -> LogStartView:
        if not view.snapshots or view.leading_since_ms is not None:
            return view
        return replace(view, leader_log_start_offset=Offset(view.snapshots[-1].snapshot_id.offset - 1))

    return _deciding(change)


@mutation("only the newest snapshot stays", "SN-53")
def oldest_deleted() -> list[Any]:
    """The snapshot at the log start is deleted, too, and with it the epoch before the start."""

    def surplus(ids: Sequence[OffsetAndEpoch], start_offset: Offset) -> tuple[OffsetAndEpoch, ...]:
        return tuple(ids[:-1])

    return [instead(raft.shell.node_snapshots, "surplus", surplus)]


@mutation("the epoch before the log start is forgotten", "SN-54")
def start_epoch_forgotten() -> list[Any]:
    """The epoch cache starts with the first record of the log."""
    advance_start = EpochCache.advance_start

    def forgetful(self: EpochCache, start: OffsetAndEpoch) -> None:
        advance_start(self, start)
        self.start = OffsetAndEpoch(epoch=Epoch(0), offset=start.offset)

    return [instead(EpochCache, "advance_start", forgetful)]


# --- starting over ----------------------------------------------------------------------------------------------------


@mutation("a log is deleted before its new start is written", "etcd #10219")
def begins_anew_in_the_wrong_order() -> list[Any]:
    """The new start is written with the next record. A crash in between leaves neither the log nor the start."""
    truncate_fully_and_start_at, append = SegmentedLog.truncate_fully_and_start_at, SegmentedLog.append
    owed: dict[int, OffsetAndEpoch] = {}

    def hasty(self: SegmentedLog, start: OffsetAndEpoch) -> None:
        with instead(raft.storage.segmented_log, "write_log_start", lambda files, directory, start: None):
            truncate_fully_and_start_at(self, start)
        owed[id(self)] = start

    def late(self: SegmentedLog, batches: Sequence[Batch]) -> None:
        start = owed.pop(id(self), None)
        if start is not None and start == self.start:
            write_log_start(self._files, self._directory, start)
        append(self, batches)

    return [instead(SegmentedLog, "truncate_fully_and_start_at", hasty), instead(SegmentedLog, "append", late)]


@mutation("a log starts over before its snapshot is durable", "etcd #10219")
def begins_anew_too_early() -> list[Any]:
    """The name of the received snapshot is not synced."""

    def hasty(self: UnfinishedSnapshot) -> None:
        self._takes_more = False
        self._file.fsync()
        self._files.rename(self._part_path, self.path)
        self._is_frozen = True

    return [instead(IncomingSnapshot, "_freeze", hasty)]


@mutation("a leader starts over at its own snapshot", "SN-15")
def leader_loads() -> list[Any]:
    """The leader's newest snapshot replaces its log."""
    drain_appends = appends.drain_appends

    def eager(environment: Environment, log: LogState, output: Output, leader: Leader) -> bool:
        latest, has_work = log.latest_snapshot, output.actions or leader.accumulator.has_scheduled
        if latest is not None and not has_work and latest.offset == log.end_offset > log.start_offset:
            log.epochs = EpochCache(start=latest)
            output.order(TruncateFullyAndStartAt(latest))
        return drain_appends(environment, log, output, leader)

    return [
        instead(appends, "drain_appends", eager),
        instead(raft.storage.segmented_log, "is_replaced_by", lambda log_end, snapshot_id: True),
    ]


# --- writing, sending and loading snapshots ---------------------------------------------------------------------------


@mutation("a snapshot gets its name before its bytes are synced", "KAFKA-15312")
def snapshot_not_synced() -> list[Any]:
    """After a power cut the file has its name but no content."""

    def _freeze(self: UnfinishedSnapshot) -> None:
        self._takes_more = False
        self._files.rename(self._part_path, self.path)
        self._files.fsync_directory(self._directory)
        self._is_frozen = True

    return [instead(UnfinishedSnapshot, "_freeze", _freeze)]


@mutation("a snapshot says that it holds one record more", "SN-31")
def snapshot_one_too_high() -> list[Any]:
    """The snapshot's id is read a moment after its content."""

    def point(connection: Any) -> SnapshotPoint | None:
        found = snapshot_point(connection)
        if found is None:
            return None
        snapshot_id = OffsetAndEpoch(epoch=found.snapshot_id.epoch, offset=Offset(found.snapshot_id.offset + 1))
        return SnapshotPoint(snapshot_id, found.header)

    return [instead(kraftlog.sim.quorum.node.database, "snapshot_point", point)]


@mutation("a snapshot's content is not checked", "SN-06")
def snapshots_not_checked() -> list[Any]:
    """Bits that were corrupted on disk or in transit are loaded and sent."""

    def decode(data: bytes) -> Batch:
        return decode_batch(crc32c(data[CRC_BYTES:]).to_bytes(CRC_BYTES, "big") + data[CRC_BYTES:])

    def checked_footer(self: SnapshotChecks, batch: Batch) -> bytes:
        return decode_footer(batch)

    return [
        instead(snapshot.format, "decode_batch", decode),
        instead(SnapshotChecks, "_checked_footer", checked_footer),
    ]


@mutation("a received snapshot is not checked", "SN-12")
def download_not_checked() -> list[Any]:
    """A snapshot counts as complete once it has the announced number of bytes."""

    def trusting(self: IncomingSnapshot) -> None:
        self._begin_change()
        self._freeze()

    return [
        instead(IncomingSnapshot, "_check", lambda self, data: None),
        instead(IncomingSnapshot, "freeze", trusting),
    ]


@mutation("a transfer resumes at the wrong byte", "SN-12")
def wrong_position() -> list[Any]:
    """With another leader the transfer resumes a little further back, and bytes are written twice."""
    next_request = snapshot_fetch.next_request

    def confused(environment: Environment, replica: ReplicaState) -> FetchSnapshotRequest | None:
        request = next_request(environment, replica)
        fetch = replica.snapshot_fetch
        if request is None or fetch is None or fetch.position < 2:
            return request
        fetch.position -= 1
        return replace(request, position=fetch.position)

    return [instead(snapshot_fetch, "next_request", confused)]


@mutation("a loaded snapshot's digest is forgotten", "TigerBeetle, checkpoints")
def digest_forgotten() -> list[Any]:
    """A state machine that loaded a snapshot starts a new digest."""
    return _restoring(lambda found: found._replace(applied=found.applied._replace(digest="0" * 32)))


@mutation("a loaded snapshot's end offset is forgotten", "etcd #13766")
def applied_forgotten() -> list[Any]:
    """The tables hold the snapshot's content, but report an applied offset of 0."""
    return _restoring(lambda found: found._replace(applied=found.applied._replace(end_offset=Offset(0))))


def _restoring(change: Callable[[AppliedState], AppliedState]) -> list[Any]:
    restore = MetadataTables.restore

    def forgetful(self: MetadataTables, restored: AppliedState, runs: Iterable[Any]) -> None:
        restore(self, change(restored), runs)

    return [instead(MetadataTables, "restore", forgetful)]


@mutation("a listener that keeps up gets a snapshot", "SN-62")
def snapshot_without_need() -> list[Any]:
    """Every newer snapshot is loaded."""

    def needs(self: ListenerCursor, committed_end_offset: Offset, latest: OffsetAndEpoch | None) -> bool:
        return latest is not None and self.next_offset < latest.offset

    return [instead(ListenerCursor, "needs_snapshot", needs)]


@mutation("a new listener begins at the log's start without a snapshot", "SN-60")
def new_listener_without_snapshot() -> list[Any]:
    """The listener never receives the records below the log start."""
    next_batches = ListenerCursor.next_batches

    def hasty(self: ListenerCursor, committed_end_offset: Offset) -> tuple[Batch, ...]:
        if self.next_offset < self._log.log_start_offset:
            self.next_offset = self._log.log_start_offset
        return next_batches(self, committed_end_offset)

    def never(self: ListenerCursor, committed_end_offset: Offset, latest: OffsetAndEpoch | None) -> bool:
        return False

    return [instead(ListenerCursor, "next_batches", hasty), instead(ListenerCursor, "needs_snapshot", never)]
