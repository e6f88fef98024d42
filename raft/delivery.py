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


class _ListenerLoop:
    """What one listener was given so far, and the loop that gives it the rest."""

    def __init__(self, log: CommittedLog, feed: CommitFeed, listener: Listener, start_offset: Offset) -> None:
        self._log = log
        self._feed = feed
        self._listener = listener
        self._next_offset = start_offset
        self._announced: LeaderAndEpoch | None = None

    async def run(self) -> None:
        while True:
            version = self._feed.version
            while self._next_offset < self._feed.committed_end_offset:
                await self._deliver_commits()
                await self._announce_leader()
                await asyncio.sleep(0)  # catching up must not hold up everybody else on the loop (LI-07)
            await self._announce_leader()
            await self._feed.wait(version)

    async def _deliver_commits(self) -> None:
        batches = self._log.read_batches(self._next_offset, READER_BYTES_MAX, self._feed.committed_end_offset)
        closed = asyncio.Event()
        reader = BatchReader(batches, closed.set)
        await self._listener.handle_commit(reader)
        await closed.wait()
        self._next_offset = reader.end_offset

    async def _announce_leader(self) -> None:
        leader, epoch_start_offset = self._feed.leader, self._feed.epoch_start_offset
        if leader == self._announced:
            return
        if epoch_start_offset is not None and self._next_offset <= epoch_start_offset:
            return  # it leads, but this listener has not read up to its epoch yet (LI-05)
        self._announced = leader
        await self._listener.handle_leader_change(leader)
