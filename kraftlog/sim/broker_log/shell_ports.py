"""Ports of a broker's shell on a simulated machine: its copy of the metadata, and a network that never fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from kraftlog.sim.broker_log.process import BrokerProcess
from statemachine.apply.publishers import MetadataPublisher
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.metadata_tables import MetadataTables

PORT: Final = 9_092


class TablesFeed:
    """`MetadataFeed` on tables that survive the processes and that the world updates."""

    def __init__(self, process: BrokerProcess, tables: MetadataTables) -> None:
        self._process = process
        self._tables = tables
        self._publisher: MetadataPublisher | None = None
        self._waiting: list[tuple[int, OnDone]] = []
        """The callbacks that wait for an applied end offset."""
        self.follows = False
        """Whether the broker accepts metadata."""

    @property
    def applied_end_offset(self) -> int:
        """The applied end offset."""
        return self._tables.applied.end_offset

    def follow(self) -> None:
        """Accept metadata from now on."""
        self.follows = True

    def changed(self, deltas: Iterable[MetadataDelta]) -> None:
        """Pass deltas that have been applied to the tables to the publisher."""
        for delta in deltas:
            if self._publisher is not None:
                self._publisher.on_delta(delta)
        waiting, self._waiting = self._waiting, []
        for end_offset, on_done in waiting:
            self._wait(end_offset, on_done)

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> None:
        """Call `on_done` when the offset is applied. The timeout is longer than any run and is ignored."""
        self._wait(end_offset, on_done)

    def _wait(self, end_offset: int, on_done: OnDone) -> None:
        if self.applied_end_offset >= end_offset:
            on_done(None)
        else:
            self._waiting.append((end_offset, on_done))

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Pass the present state and every later change to `publisher`."""
        self._publisher = publisher
        publisher.on_snapshot(Offset(self.applied_end_offset), self._tables.connection)

    def stop(self, on_stopped: OnDone) -> None:
        """Accept no more metadata."""
        self.follows = False
        self._publisher = None
        self._process.call_soon(partial(on_stopped, None))


class OpenNetwork:
    """`NetworkPort`: listeners are bound and connections closed after a moment."""

    def __init__(self, process: BrokerProcess, on_closed: Callable[[], None]) -> None:
        """`on_closed` is called when the broker closes its connections to shut down."""
        self._process = process
        self._on_closed = on_closed
        self.is_closed = False

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        """Bind the listeners."""
        self._process.call_soon(lambda: on_listening({"PLAINTEXT": PORT}))

    def answer_pending(self, on_done: OnDone) -> None:
        """Finish at once: clients send nothing to the controller through a broker here."""
        self._soon(on_done)

    def close(self, on_closed: OnDone) -> None:
        """Close the connections: the broker is no longer reachable and sends no more responses."""
        self.is_closed = True
        self._on_closed()
        self._soon(on_closed)

    def close_controller(self, on_closed: OnDone) -> None:
        """Finish at once: responses of the controller are ignored when the process has ended."""
        self._soon(on_closed)

    def _soon(self, on_done: OnDone) -> None:
        self._process.call_soon(partial(on_done, None))
