"""Bugs of the disk and the state machine: syncs left out, damage taken for a torn tail, records applied wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from raft.delivery import ListenerCursor
from raft.listener import CommittedBatch
from raft.storage.memory import MemoryFileSystem
from raft.storage.segment import Segment
from raft.storage.segmented_log import PendingFlush, SegmentedLog
from sim.process import Process
from sim.service import ClientReply, ClientRequest, Service
from sim.zoo.mutation import instead, mutation
from statemachine.tables import MetadataTables


@mutation("a flush does nothing", "KAFKA-15312")
def flush_does_nothing() -> list[Any]:
    """The data is in the page cache, and counts as durable."""

    def run(self: PendingFlush) -> None:
        return None

    def flush(self: SegmentedLog) -> Any:
        return self.finish_flush(self.start_flush())

    return [instead(PendingFlush, "run", run), instead(SegmentedLog, "flush", flush)]


@mutation("names are not synced", "ALICE, OSDI'14")
def directory_not_synced() -> list[Any]:
    """A new segment's file is durable, and its name is not."""

    def fsync_directory(self: MemoryFileSystem, path: str) -> None:
        self._begin_sync("fsync_directory", path)

    return [instead(MemoryFileSystem, "fsync_directory", fsync_directory)]


@mutation("a cut is not synced", "RF-51")
def cut_not_synced() -> list[Any]:
    """What was cut comes back after a power cut."""

    def cut(self: Segment, end_offset: Any, position: int, last_crc: int) -> None:
        self.file.truncate(position)
        self.index.truncate(end_offset)
        self.end_offset, self.end_position, self.reserved_size = end_offset, position, position
        self.last_crc = last_crc

    return [instead(Segment, "cut", cut)]


@mutation("a record is not applied on one node", "KAFKA-14275")
def apply_failure_tolerated() -> list[Any]:
    """Something goes wrong while a batch is applied, and the node goes on."""
    apply = MetadataTables.apply

    def tolerant(self: MetadataTables, batches: Iterable[CommittedBatch], **settings: Any) -> Any:
        kept: list[Any] = [_Emptied(batch) if _goes_wrong(self, batch) else batch for batch in batches]
        return apply(self, kept, **settings)

    return [instead(MetadataTables, "apply", tolerant)]


def _goes_wrong(tables: MetadataTables, batch: CommittedBatch) -> bool:
    return batch.base_offset % 5 == 3 and id(tables) % 3 == 0


class _Emptied:
    """A committed batch whose records nobody saw."""

    is_control = True

    def __init__(self, batch: CommittedBatch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


@mutation("a batch is skipped when much is applied at once", "cockroach #28918")
def batch_skipped() -> list[Any]:
    """Reading on after a reader that was cut off by its size starts too far on."""
    next_batches = ListenerCursor.next_batches

    def skipping(self: ListenerCursor, committed_end_offset: Any) -> Any:
        batches = next_batches(self, committed_end_offset)
        return batches[1:] if len(batches) > 2 else batches

    return [instead(ListenerCursor, "next_batches", skipping)]


@mutation("a new leader's listener is told too early", "LI-05")
def told_too_early() -> list[Any]:
    """It decides on a state that lacks what earlier leaders committed."""
    next_leader = ListenerCursor.next_leader

    def early(self: ListenerCursor, leader: Any, epoch_start_offset: Any) -> Any:
        return next_leader(self, leader, None)

    return [instead(ListenerCursor, "next_leader", early)]


@mutation("reads are answered without asking the quorum", "etcd #20418")
def stale_reads() -> list[Any]:
    """Whoever believes that it leads answers from its own state."""
    handle = Service.handle

    def hasty(self: Service, request: ClientRequest, respond: Callable[[ClientReply], None]) -> None:
        if request.kind.value == "read" and self._epoch is not None:
            from sim.service import Answer

            process: Process = self._process
            respond(
                ClientReply(Answer.DONE, found=self._value(request.key), end_offset=process.tables.applied.end_offset)
            )
        else:
            handle(self, request, respond)

    return [instead(Service, "handle", hasty)]
