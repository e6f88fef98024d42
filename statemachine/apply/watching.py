"""Who watches what changes in the metadata, and how they are told: see `MetadataMachine.watch` (CT-64).

Each delta is told once, in the order of the log, after the transaction that it tells of. What was not committed, or
in a metadata transaction that was aborted, is never told. A snapshot that takes the state's place comes without a
delta: the watchers look at the whole anew, and deltas go on from there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from raft.core.types import Offset
from statemachine.replay.deltas import MetadataDelta

logger = structlog.get_logger(__name__)


class Watcher(Protocol):
    """What is told of changes, on the event loop. The calls must be quick: nothing is applied meanwhile.

    One that raises is told nothing more; the state machine goes on.
    """

    def look_anew(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Take `metadata`, which holds everything below `end_offset`, in the place of all that was told before.

        The first call, and again after each snapshot that was loaded. `metadata` has the tables of docs/sql.md and is
        for this call only; changes are told from `end_offset` on.
        """
        ...

    def handle_delta(self, delta: MetadataDelta) -> None:
        """Take note of what changed; a run that changes nothing is not told."""
        ...


class Watchers:
    """Those who watch one state machine, and those who are about to."""

    def __init__(self) -> None:
        self._told: list[Watcher] = []
        self._new: list[Watcher] = []

    def __bool__(self) -> bool:
        return bool(self._told or self._new)

    def add(self, watcher: Watcher) -> None:
        """Tell `watcher` from the next `admit` on. Raises ValueError if it is watching already."""
        if watcher in self._told or watcher in self._new:
            raise ValueError(f"{watcher!r} is watching already; take another watcher")
        self._new.append(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Tell `watcher` nothing more; nothing happens if it is not watching."""
        for watchers in (self._told, self._new):
            if watcher in watchers:
                watchers.remove(watcher)

    def admit(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Let the new ones look at the state, and tell them what changes from here on."""
        new, self._new = self._new, []
        self._told += new
        self._tell(new, lambda watcher: watcher.look_anew(end_offset, metadata))

    def look_anew(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Let those who were told of the state before look at it: it is another one."""
        self._tell(self._told, lambda watcher: watcher.look_anew(end_offset, metadata))

    def tell(self, deltas: Iterable[MetadataDelta]) -> None:
        """Tell all but the new ones of `deltas`."""
        for delta in deltas:
            self._tell(self._told, lambda watcher, delta=delta: watcher.handle_delta(delta))  # type: ignore[misc]

    def _tell(self, watchers: list[Watcher], say: Callable[[Watcher], None]) -> None:
        for watcher in list(watchers):
            if watcher not in self._told:
                continue  # another one has taken it out
            try:
                say(watcher)
            except Exception as error:
                logger.error("a watcher failed and is told nothing more", watcher=repr(watcher), exc_info=error)
                self.remove(watcher)
