"""Publishers are notified of changes in the metadata: see `MetadataMachine.install_publisher` (CT-64).

Each delta is published once, in the order of the log, after its transaction. What was not committed, or was in a
metadata transaction that was aborted, is never published. A snapshot that replaces the state comes without a delta: the
publishers read the whole state again, and deltas continue from there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from kraftbase.types import Offset
from statemachine.replay.deltas import MetadataDelta

logger = structlog.get_logger(__name__)


class MetadataPublisher(Protocol):
    """Notified of changes, on the event loop. The calls must be quick: while they run, no record is applied.

    A publisher that raises is no longer notified; the state machine continues.
    """

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Read `metadata`, which holds everything below `end_offset` and replaces everything published before.

        This is the first call, and follows each loaded snapshot. `metadata` has the tables of docs/sql.md and is valid
        for this call only; changes are published from `end_offset` on.
        """
        ...

    def on_delta(self, delta: MetadataDelta) -> None:
        """Process the changes; a run that changes nothing is not published."""
        ...


class MetadataPublishers:
    """The publishers of one state machine: the installed ones, and those about to be installed."""

    def __init__(self) -> None:
        self._installed: list[MetadataPublisher] = []
        self._new: list[MetadataPublisher] = []

    def __bool__(self) -> bool:
        return bool(self._installed or self._new)

    def add(self, publisher: MetadataPublisher) -> None:
        """Notify `publisher` from the next `initialize_new` on. Raises ValueError if it is installed already."""
        if publisher in self._installed or publisher in self._new:
            raise ValueError(f"{publisher!r} is installed already; take another publisher")
        self._new.append(publisher)

    def remove(self, publisher: MetadataPublisher) -> None:
        """Stop notifying `publisher`; nothing happens if it is not installed."""
        for publishers in (self._installed, self._new):
            if publisher in publishers:
                publishers.remove(publisher)

    def initialize_new(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Show the new ones the state, and notify them of changes from here on."""
        new, self._new = self._new, []
        self._installed += new
        self._publish(new, lambda publisher: publisher.on_snapshot(end_offset, metadata))

    def publish_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Show the new state to the publishers that have seen the previous one."""
        self._publish(self._installed, lambda publisher: publisher.on_snapshot(end_offset, metadata))

    def publish_deltas(self, deltas: Iterable[MetadataDelta]) -> None:
        """Pass `deltas` to all but the new publishers."""
        for delta in deltas:
            self._publish(self._installed, lambda publisher, delta=delta: publisher.on_delta(delta))  # type: ignore[misc]

    def _publish(self, publishers: list[MetadataPublisher], say: Callable[[MetadataPublisher], None]) -> None:
        for publisher in list(publishers):
            if publisher not in self._installed:
                continue  # another publisher has removed it
            try:
                say(publisher)
            except Exception as error:
                logger.error("publisher failed and gets no further changes", publisher=repr(publisher), exc_info=error)
                self.remove(publisher)
