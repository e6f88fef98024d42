"""Partitions that are fetched again after a pause, all the same long, with one timer (DB-36)."""

from __future__ import annotations

from collections.abc import Callable

from kraftlog.broker.replication.followed_partition import FollowedPartition
from raft.shell.runtime import Runtime, Timer


class Delays:
    """Calls `resume` for each when `backoff_ms` are over."""

    def __init__(self, runtime: Runtime, backoff_ms: int, resume: Callable[[FollowedPartition], object]) -> None:
        self._runtime = runtime
        self._backoff_ms = backoff_ms
        self._resume = resume
        self._due_ms: dict[FollowedPartition, float] = {}  # the one that is due first comes first
        self._timer: Timer | None = None

    def add(self, followed: FollowedPartition) -> None:
        """Begin a pause."""
        self._due_ms.pop(followed, None)
        self._due_ms[followed] = self._runtime.now_ms() + self._backoff_ms
        if self._timer is None:
            self._timer = self._runtime.call_later(self._backoff_ms, self._look)

    def forget(self, followed: FollowedPartition) -> None:
        """Resume it no more."""
        self._due_ms.pop(followed, None)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._runtime.now_ms()
        for followed, due_ms in list(self._due_ms.items()):
            if due_ms > now_ms:
                self._timer = self._runtime.call_later(due_ms - now_ms, self._look)
                return
            del self._due_ms[followed]
            self._resume(followed)

    def stop(self) -> None:
        """Resume nothing any more."""
        self._due_ms.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
