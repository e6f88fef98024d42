"""Feeds listeners: one task each, from the committed log, by the contract in `raft.listener`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from kraftbase.errors import ApiError, ErrorCode, StorageError
from raft.commits import CommitFeed, Snapshots, opened_latest
from raft.core.types import UNKNOWN_OFFSET, Batch, LeaderAndEpoch, Offset, OffsetAndEpoch
from raft.listener import BatchReader, Listener, LoadSnapshotReader, can_load_snapshots
from raft.shell.log_start_keeper import ListenerPosition
from snapshot.reader import SnapshotReader

READER_BYTES_MAX: Final = 1024 * 1024
"""A reader holds about this many bytes, and at least one batch."""

FAULTS_KEPT_MAX: Final = 16
"""How many failed listeners are remembered by name; a program may register new ones without end."""

FAULT_LETTERS_MAX: Final = 200


class CommittedLog(Protocol):
    """The source of batches: a node's log."""

    @property
    def log_start_offset(self) -> Offset:
        """Everything below is in a snapshot only."""
        ...

    def read_batches(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> tuple[Batch, ...]:
        """Batches from the one that holds `start_offset`, at least one, never past `end_offset`."""
        ...


class Delivery:
    """The listeners of one node and their tasks. An exception out of a listener goes to `on_fault` (LI-08)."""

    def __init__(
        self,
        log: CommittedLog,
        snapshots: Snapshots,
        feed: CommitFeed,
        on_fault: Callable[[Listener, Exception], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_fatal` gets errors that must end the process: a violated invariant, wherever raised, or a failed read."""
        self._log = log
        self._snapshots = snapshots
        self._feed = feed
        self._on_fault = on_fault
        self._on_fatal = on_fatal
        self._entries: dict[int, _Registration] = {}
        self.faults: dict[str, str] = {}
        """The exceptions of failed listeners, by listener name; for operators."""

    def register(self, listener: Listener, start_offset: Offset | None) -> bool:
        """Start to feed `listener` from the batch that holds `start_offset`; False if it is registered (LI-06).

        None: it is new. It begins with the newest snapshot, if there is one and it can load it, else where the log
        starts.
        """
        if id(listener) in self._entries:
            return False
        cursor = ListenerCursor(self._log, start_offset, can_load_snapshots=can_load_snapshots(listener))
        task = asyncio.get_running_loop().create_task(self._run(listener, cursor))
        self._entries[id(listener)] = _Registration(listener, cursor, task)
        return True

    def unregister(self, listener: Listener) -> bool:
        """Stop feeding `listener`, even in the middle of a call; False if it was not registered."""
        entry = self._entries.pop(id(listener), None)
        if entry is not None:
            entry.task.cancel()
        return entry is not None

    def positions(self) -> list[ListenerPosition]:
        """How far every listener has read."""
        return [ListenerPosition(entry.listener.name, entry.cursor.next_offset) for entry in self._entries.values()]

    async def close(self) -> None:
        """Call `begin_shutdown` of every listener, and stop."""
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            entry.task.cancel()
        await asyncio.gather(*(entry.task for entry in entries), return_exceptions=True)
        for entry in entries:
            try:
                await entry.listener.begin_shutdown()
            except Exception as error:
                self._on_fault(entry.listener, error)

    async def _run(self, listener: Listener, cursor: ListenerCursor) -> None:
        try:
            await _ListenerLoop(self._snapshots, self._feed, listener, cursor).run()
        except asyncio.CancelledError:
            raise
        except _LogUnreadable as failure:  # no fault of the listener's
            self._on_fatal(failure.reason)
        except Exception as error:
            self._entries.pop(id(listener), None)
            if listener.name in self.faults or len(self.faults) < FAULTS_KEPT_MAX:
                self.faults[listener.name] = f"{type(error).__name__}: {error}"[:FAULT_LETTERS_MAX]
            self._on_fault(listener, error)
        except BaseException as error:  # asyncio would keep it for the awaiter of the task, and there is none
            self._on_fatal(error)


class ListenerCursor:
    """The position of one listener, and what it gets next. Synchronous, so that any loop can drive it."""

    __slots__ = ("_announced", "_can_load_snapshots", "_log", "next_offset")

    def __init__(self, log: CommittedLog, start_offset: Offset | None, *, can_load_snapshots: bool = True) -> None:
        self._log = log
        self._can_load_snapshots = can_load_snapshots
        self.next_offset = UNKNOWN_OFFSET if start_offset is None else start_offset
        """The listener has taken everything below; -1: it is new, and has taken nothing (SN-60)."""
        self._announced: LeaderAndEpoch | None = None

    def needs_snapshot(self, committed_end_offset: Offset, latest: OffsetAndEpoch | None) -> bool:
        """Whether it must be given the newest snapshot now (SN-60).

        Raises ApiError(OFFSET_OUT_OF_RANGE) if its next offset was deleted and it cannot load a snapshot.
        """
        if self.next_offset >= committed_end_offset:
            return False
        is_behind = 0 <= self.next_offset < self._log.log_start_offset
        if is_behind and not self._can_load_snapshots:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the listener needs offset {self.next_offset} next, the log starts at"
                f" {self._log.log_start_offset}; override its handle_load_snapshot",
            )
        return self._can_load_snapshots and latest is not None and (is_behind or self.next_offset == UNKNOWN_OFFSET)

    def next_batches(self, committed_end_offset: Offset) -> tuple[Batch, ...]:
        """The next committed batches for the listener; none if it has everything, or must wait (LI-02)."""
        if self.next_offset >= committed_end_offset:
            return ()
        log_start_offset = self._log.log_start_offset
        if self.next_offset == UNKNOWN_OFFSET and (log_start_offset == 0 or not self._can_load_snapshots):
            self.next_offset = log_start_offset  # SN-61
        if self.next_offset < log_start_offset:
            return ()  # until there is a snapshot again
        return self._log.read_batches(self.next_offset, READER_BYTES_MAX, committed_end_offset)

    def next_leader(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> LeaderAndEpoch | None:
        """The leader, if the listener must be notified of it now; `epoch_start_offset` is set iff this node leads."""
        if leader == self._announced:
            return None
        if epoch_start_offset is not None and self.next_offset <= epoch_start_offset:
            return None  # it leads, but this listener has not read up to its epoch yet (LI-05)
        self._announced = leader
        return leader


class _LogUnreadable(Exception):
    """Committed records cannot be read from this node's disk."""

    def __init__(self, reason: StorageError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Registration:
    listener: Listener
    cursor: ListenerCursor
    task: asyncio.Task[None]


class _ListenerLoop:
    """Feeds one listener as its cursor directs."""

    def __init__(self, snapshots: Snapshots, feed: CommitFeed, listener: Listener, cursor: ListenerCursor) -> None:
        self._snapshots = snapshots
        self._feed = feed
        self._listener = listener
        self._cursor = cursor

    async def run(self) -> None:
        while True:
            version = self._feed.version
            while await self._give_next():
                await self._announce_leader()
                await asyncio.sleep(0)  # catching up must not block the rest of the loop (LI-07)
            await self._announce_leader()
            await self._feed.wait(version)

    async def _give_next(self) -> bool:
        """Give it a snapshot or some batches; False if there is nothing for it."""
        committed_end_offset = self._feed.committed_end_offset
        if self._cursor.needs_snapshot(committed_end_offset, self._snapshots.latest):
            snapshot = await opened_latest(self._snapshots)
            if snapshot is not None:
                await self._load(snapshot)
            return True  # if there was none, damaged ones were deleted: look again
        try:
            batches = self._cursor.next_batches(committed_end_offset)
        except StorageError as error:
            raise _LogUnreadable(error) from error
        if batches:
            await self._deliver(batches)
        return bool(batches)

    async def _load(self, snapshot: SnapshotReader) -> None:
        closed = asyncio.Event()
        reader = LoadSnapshotReader(snapshot, closed.set)
        try:
            await self._listener.handle_load_snapshot(reader)
            await closed.wait()
        finally:
            snapshot.close()
        self._cursor.next_offset = reader.end_offset

    async def _deliver(self, batches: tuple[Batch, ...]) -> None:
        closed = asyncio.Event()
        reader = BatchReader(batches, closed.set)
        await self._listener.handle_commit(reader)
        await closed.wait()
        self._cursor.next_offset = reader.end_offset

    async def _announce_leader(self) -> None:
        leader = self._cursor.next_leader(self._feed.leader, self._feed.epoch_start_offset)
        if leader is not None:
            await self._listener.handle_leader_change(leader)
