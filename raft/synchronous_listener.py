"""A listener whose calls return at once, which `raft.delivery` feeds on a node and in the simulator.

A program's own listeners are `raft.listener.Listener`s, with coroutines; `TaskListener` adapts such a listener to this
interface. The contract is the same, in `raft.listener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from kraftbase.runtime import OnDone
from raft.core.types import Batch, LeaderAndEpoch
from raft.listener import BatchReader, Listener, LoadSnapshotReader, can_load_snapshots
from snapshot.reader import SnapshotReader


class SynchronousListener(Protocol):
    """Processes committed batches. Each call ends with its `on_done`, at once or later; only then the next begins."""

    @property
    def name(self) -> str:
        """The name that operators see."""
        ...

    @property
    def can_load_snapshots(self) -> bool:
        """Whether it accepts a snapshot in place of deleted batches."""
        ...

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Process committed batches, in order, contiguous, at least one."""
        ...

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Replace everything processed so far by `snapshot`, which the caller closes after that."""
        ...

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Handle a new leader."""
        ...

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Stop, whatever is in progress: no further calls follow, and `on_done` of another call need not be called."""
        ...

    def abandon(self) -> None:
        """As `begin_shutdown`, for a listener that is no longer fed while its node continues; it ends soon."""
        ...


class TaskListener:
    """A `Listener` as a `SynchronousListener`: each call is a task on the event loop."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The listener's own."""
        return self._listener.name

    @property
    def can_load_snapshots(self) -> bool:
        """Whether it overrides `handle_load_snapshot`."""
        return can_load_snapshots(self._listener)

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Done when the listener has returned and closed the reader (LI-04)."""
        self._start(self._commit(batches), on_done)

    async def _commit(self, batches: tuple[Batch, ...]) -> None:
        closed = asyncio.Event()
        await self._listener.handle_commit(BatchReader(batches, closed.set))
        await closed.wait()

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Done when the listener has returned and closed the reader."""
        self._start(self._load_snapshot(snapshot), on_done)

    async def _load_snapshot(self, snapshot: SnapshotReader) -> None:
        closed = asyncio.Event()
        await self._listener.handle_load_snapshot(LoadSnapshotReader(snapshot, closed.set))
        await closed.wait()

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Done when the listener has returned."""
        self._start(self._listener.handle_leader_change(leader_and_epoch), on_done)

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Cancel what is in progress, then notify the listener."""
        running, self._task = self._task, None
        self._start(self._shut_down(running), on_done)

    async def _shut_down(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await self._listener.begin_shutdown()

    def abandon(self) -> None:
        """Cancel what is in progress."""
        if self._task is not None:
            self._task.cancel()

    def _start(self, call: Coroutine[Any, Any, None], on_done: OnDone) -> None:
        self._task = asyncio.get_running_loop().create_task(_ended(call, on_done))


async def _ended(call: Coroutine[Any, Any, None], on_done: OnDone) -> None:
    """Run `call`, and report how it ended, unless it was cancelled: then no caller waits for it."""
    try:
        await call
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # asyncio would keep the exception for the awaiter of the task, and there is none
        on_done(error)
    else:
        on_done(None)
