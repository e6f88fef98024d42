"""Feeds listeners: one task each, from the committed log, by the contract in `raft.listener`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from raft.commits import CommitFeed
from raft.core.types import Batch, LeaderAndEpoch, Offset
from raft.listener import BatchReader, Listener

READER_BYTES_MAX: Final = 1024 * 1024
"""A reader holds about this much, and at least one batch."""


class CommittedLog(Protocol):
    """Where the batches come from: a node's log."""

    def read_batches(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> tuple[Batch, ...]:
        """Batches from the one that holds `start_offset`, at least one, never past `end_offset`."""
        ...


class Delivery:
    """The listeners of one node and their tasks. An exception out of a listener goes to `on_fault` (LI-08)."""

    def __init__(
        self,
        log: CommittedLog,
        feed: CommitFeed,
        on_fault: Callable[[Listener, Exception], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_fatal` gets what must end the process, such as a violated invariant, wherever it was raised."""
        self._log = log
        self._feed = feed
        self._on_fault = on_fault
        self._on_fatal = on_fatal
        self._tasks: dict[int, tuple[Listener, asyncio.Task[None]]] = {}

    def register(self, listener: Listener, start_offset: Offset) -> bool:
        """Start to feed `listener` from the batch that holds `start_offset`; False if it is registered (LI-06)."""
        if id(listener) in self._tasks:
            return False
        task = asyncio.get_running_loop().create_task(self._run(listener, start_offset))
        self._tasks[id(listener)] = (listener, task)
        return True

    def unregister(self, listener: Listener) -> bool:
        """Stop feeding `listener`, in the middle of a call too; False if it was not registered."""
        entry = self._tasks.pop(id(listener), None)
        if entry is not None:
            entry[1].cancel()
        return entry is not None

    async def close(self) -> None:
        """Tell every listener that nothing more will come, and stop."""
        entries = list(self._tasks.values())
        self._tasks.clear()
        for _, task in entries:
            task.cancel()
        await asyncio.gather(*(task for _, task in entries), return_exceptions=True)
        for listener, _ in entries:
            try:
                await listener.begin_shutdown()
            except Exception as error:
                self._on_fault(listener, error)

    async def _run(self, listener: Listener, start_offset: Offset) -> None:
        try:
            await _ListenerLoop(self._log, self._feed, listener, start_offset).run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._tasks.pop(id(listener), None)
            self._on_fault(listener, error)
        except BaseException as error:  # asyncio would keep it for whoever awaits the task, and nobody does
            self._on_fatal(error)


class ListenerCursor:
    """How far one listener has come, and what it gets next. Synchronous, so that any loop can drive it."""

    __slots__ = ("_announced", "_log", "next_offset")

    def __init__(self, log: CommittedLog, start_offset: Offset) -> None:
        self._log = log
        self.next_offset = start_offset
        """Everything below was taken by the listener."""
        self._announced: LeaderAndEpoch | None = None

    def next_batches(self, committed_end_offset: Offset) -> tuple[Batch, ...]:
        """Committed batches that go on where the listener stopped; none if it has everything (LI-02)."""
        if self.next_offset >= committed_end_offset:
            return ()
        return self._log.read_batches(self.next_offset, READER_BYTES_MAX, committed_end_offset)

    def next_leader(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> LeaderAndEpoch | None:
        """The leader, if the listener is to be told of it now; `epoch_start_offset` is set iff this node leads."""
        if leader == self._announced:
            return None
        if epoch_start_offset is not None and self.next_offset <= epoch_start_offset:
            return None  # it leads, but this listener has not read up to its epoch yet (LI-05)
        self._announced = leader
        return leader


class _ListenerLoop:
    """Gives one listener what its cursor says."""

    def __init__(self, log: CommittedLog, feed: CommitFeed, listener: Listener, start_offset: Offset) -> None:
        self._feed = feed
        self._listener = listener
        self._cursor = ListenerCursor(log, start_offset)

    async def run(self) -> None:
        while True:
            version = self._feed.version
            while batches := self._cursor.next_batches(self._feed.committed_end_offset):
                await self._deliver(batches)
                await self._announce_leader()
                await asyncio.sleep(0)  # catching up must not hold up everybody else on the loop (LI-07)
            await self._announce_leader()
            await self._feed.wait(version)

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
