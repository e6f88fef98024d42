"""Bugs of the disk and the state machine: missing syncs, damage treated as a torn tail, records applied wrongly."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable
from marshal import dumps
from typing import Any

import kraftlog.sim.quorum.node.process
import statemachine.store.scrub
import statemachine.tables.row_sums
from kraftbase.files.files import FileSystem, join
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.sim.engine.mutation import instead, mutation
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.node.database import Database
from kraftlog.sim.quorum.node.register_service import Answer, ClientReply, ClientRequest, RegisterService
from raft.core import elections
from raft.core.environment import Environment
from raft.core.epochs import LOG_BEGINNING
from raft.core.messages import VoteRequest, VoteResponse
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.delivery import ListenerCursor
from raft.listener import CommittedBatch
from raft.shell import open_log as opening
from raft.storage import recovering_file, recovery
from raft.storage.recovering_file import RECOVERING_NAME
from raft.storage.segmented_log import PendingFlush, SegmentedLog
from statemachine.store.metadata_tables import MetadataTables, PreparedRun


@mutation("a flush does nothing", "KAFKA-15312")
def flush_does_nothing() -> list[Any]:
    """Data in the page cache counts as durable."""

    def run(self: PendingFlush) -> None:
        return None

    def flush(self: SegmentedLog) -> Any:
        return self.finish_flush(self.start_flush())

    return [instead(PendingFlush, "run", run), instead(SegmentedLog, "flush", flush)]


@mutation("names are not synced", "ALICE, OSDI'14")
def directory_not_synced() -> list[Any]:
    """The file of a new segment is durable, but its name is not."""

    def fsync_directory(self: MemoryFileSystem, path: str) -> None:
        self._begin_sync("fsync_directory", path)

    return [instead(MemoryFileSystem, "fsync_directory", fsync_directory)]


@mutation("damage is taken for a torn tail", "NuRaft #185")
def damage_cut_off() -> list[Any]:
    """The damaged records and everything behind them are truncated, and the voter continues with the rest.

    The bug also omits the comparison of the rest with the applied records, which would detect most of such damage, too.
    """
    begin_recovering = recovering_file.begin_recovering

    def careless(files: FileSystem, directory: str, **found: Any) -> None:
        begin_recovering(files, directory, **found)
        files.remove(join(directory, RECOVERING_NAME))
        files.fsync_directory(directory)

    return [instead(recovery, "begin_recovering", careless), *rolled_back_unnoticed()]


@mutation("a recovering voter votes", "protocol-aware recovery, FAST'18")
def recovering_votes() -> list[Any]:
    """The voter compares candidates with the rest of its log."""
    on_vote_request = elections.on_vote_request

    def careless(environment: Environment, replica: ReplicaState, output: Output, request: VoteRequest) -> VoteResponse:
        lost, replica.recovering = replica.recovering, None
        try:
            return on_vote_request(environment, replica, output, request)
        finally:
            replica.recovering = lost

    return [instead(elections, "on_vote_request", careless)]


@mutation("the applied offset is saved apart from the data", "etcd #13766")
def applied_saved_apart() -> list[Any]:
    """After a crash the offset is newer than the tables."""
    crash = Database.crash

    def torn(self: Database, how: Crash) -> None:
        crash(self, how)
        if len(self._images) > 1:
            newer, older = self._images.pop(), self._images.pop()
            self._images.append(_with_applied_of(older, newer))

    return [instead(Database, "crash", torn)]


def _with_applied_of(older: bytes, newer: bytes) -> bytes:
    connections = [sqlite3.connect(":memory:", isolation_level=None) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        old, new = (stack.enter_context(contextlib.closing(connection)) for connection in connections)
        old.deserialize(older)
        new.deserialize(newer)
        row = new.execute("SELECT * FROM applied").fetchone()
        old.execute("DELETE FROM applied")
        old.execute(f"INSERT INTO applied VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 (question marks)
        return old.serialize()


@mutation("a record is not applied on one node", "KAFKA-14275")
def apply_failure_tolerated() -> list[Any]:
    """A batch is not applied, and the node continues."""
    prepared = MetadataTables._prepared

    def tolerant(self: MetadataTables, batches: Iterable[CommittedBatch], rows_max: int | None) -> PreparedRun:
        kept: list[Any] = [_Emptied(batch) if _goes_wrong(self, batch) else batch for batch in batches]
        return prepared(self, kept, rows_max)

    return [instead(MetadataTables, "_prepared", tolerant)]


def _goes_wrong(tables: MetadataTables, batch: CommittedBatch) -> bool:
    return batch.base_offset % 5 == 3 and id(tables) % 3 == 0


class _Emptied:
    """A committed batch whose records were not read."""

    is_control = True

    def __init__(self, batch: CommittedBatch) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


@mutation("a batch is skipped when much is applied at once", "cockroach #28918")
def batch_skipped() -> list[Any]:
    """After a read that was limited by its size, the next read starts too far ahead."""
    next_batches = ListenerCursor.next_batches

    def skipping(self: ListenerCursor, committed_end_offset: Any) -> Any:
        batches = next_batches(self, committed_end_offset)
        return batches[1:] if len(batches) > 2 else batches

    return [instead(ListenerCursor, "next_batches", skipping)]


@mutation("a new leader's listener is notified too early", "LI-05")
def told_too_early() -> list[Any]:
    """The leader decides on a state without the records that earlier leaders committed."""
    next_leader = ListenerCursor.next_leader

    def early(self: ListenerCursor, leader: Any, epoch_start_offset: Any) -> Any:
        return next_leader(self, leader, None)

    return [instead(ListenerCursor, "next_leader", early)]


@mutation("reads are answered without asking the quorum", "etcd #20418")
def stale_reads() -> list[Any]:
    """A node that believes that it leads answers from its own state."""
    handle = RegisterService.handle

    def hasty(self: RegisterService, request: ClientRequest, respond: Callable[[ClientReply], None]) -> None:
        if request.kind.value == "read" and self._epoch is not None:
            end_offset = self._store.applied_end_offset
            respond(ClientReply(Answer.DONE, found=self._value(request.key), end_offset=end_offset))
        else:
            handle(self, request, respond)

    return [instead(RegisterService, "handle", hasty)]


@mutation("a log without applied records is accepted as it is", "a database over an older copy of its log")
def rolled_back_unnoticed() -> list[Any]:
    """The voter votes and counts with the rest of its log, and its state machine has records that its log lacks."""
    open_log = opening.open_log

    def careless(*given: Any, **named: Any) -> SegmentedLog:
        return open_log(*given, **{**named, "applied": LOG_BEGINNING})

    return [instead(kraftlog.sim.quorum.node.process, "open_log", careless)]


# --- the state machine's rows -----------------------------------------------------------------------------------------


@mutation("a scrub compares nothing", "TigerBeetle's grid scrubber", faults=("database: a stored row changes",))
def scrub_compares_nothing() -> list[Any]:
    """The scrub reads all rows and compares nothing."""
    return [instead(statemachine.store.scrub, "missing_of", lambda kept, found: 0)]


@mutation(
    "the hash of a row leaves out a column", "TigerBeetle's grid scrubber", faults=("database: a stored row changes",)
)
def row_hash_without_a_column() -> list[Any]:
    """The hash omits the last column of each row."""
    return [instead(statemachine.tables.row_sums, "dumps", lambda value, version: dumps(value[:-1], version))]
