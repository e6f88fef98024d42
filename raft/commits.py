"""What a node offers to readers of its log: the committed end, the leader, and the newest snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftbase.endpoint import Endpoint
from kraftbase.types import Offset
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from snapshot.reader import SnapshotReader


class Snapshots(Protocol):
    """The source of snapshots."""

    @property
    def latest(self) -> OffsetAndEpoch | None:
        """The id of the newest one."""
        ...

    def open_latest(self, on_opened: Callable[[SnapshotReader | None], None]) -> None:
        """Open the newest whole snapshot; None if none exists. The caller closes it."""
        ...


async def opened_latest(snapshots: Snapshots) -> SnapshotReader | None:
    """The newest whole snapshot, which the caller closes; None if none exists."""
    opened: asyncio.Future[SnapshotReader | None] = asyncio.get_running_loop().create_future()

    def on_opened(snapshot: SnapshotReader | None) -> None:
        if not opened.done():
            opened.set_result(snapshot)
        elif snapshot is not None:  # the caller was cancelled while the file was opened
            snapshot.close()

    snapshots.open_latest(on_opened)
    return await opened


class CommitFeed:
    """The committed end of a node's log and its leader, with a way to wait for the next change.

    The node writes it; listeners and watch streams read it, each at its own pace.
    """

    __slots__ = (
        "_on_change",
        "_version",
        "_waiters",
        "committed_end_offset",
        "epoch_start_offset",
        "is_closed",
        "leader",
        "leader_endpoint",
    )

    def __init__(self, leader: LeaderAndEpoch) -> None:
        self.committed_end_offset = Offset(0)
        """The offset below which everything is committed and on this node's disk."""
        self.leader = leader
        self.leader_endpoint: Endpoint | None = None
        self.epoch_start_offset: Offset | None = None
        """Set iff this node leads: where its epoch starts (LI-05)."""
        self.is_closed = False
        """Whether the node has stopped."""
        self._version = 0
        self._on_change: Callable[[], None] = lambda: None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def version(self) -> int:
        """The number of changes so far; pass it to `wait`."""
        return self._version

    def advance(self, committed_end_offset: Offset) -> None:
        """Record that the log is committed up to `end_offset`; a lower offset changes nothing."""
        if committed_end_offset > self.committed_end_offset:
            self.committed_end_offset = committed_end_offset
            self._wake()

    def set_leader(self, leader: LeaderAndEpoch, endpoint: Endpoint | None, epoch_start_offset: Offset | None) -> None:
        """Record the leader."""
        self.leader = leader
        self.leader_endpoint = endpoint
        self.epoch_start_offset = epoch_start_offset
        self._wake()

    def wake(self) -> None:
        """Wake the readers: something other than the committed end has changed, such as the snapshots."""
        self._wake()

    def close(self) -> None:
        """Close the feed: wake every reader, which then sees `is_closed`."""
        self.is_closed = True
        self._wake()

    def set_change_callback(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change from now on."""
        self._on_change = on_change

    async def wait(self, version: int, seconds: float) -> None:
        """Return when something has changed since `version` was read, or when the time-out has passed."""
        if version == self._version:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            self._waiters.append(waiter)
            timer = loop.call_later(seconds, self._end, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._end(waiter)

    def _end(self, waiter: asyncio.Future[None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not waiter.done():
            waiter.set_result(None)

    def _wake(self) -> None:
        self._version += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._on_change()
