"""Ports of a broker's shell on a simulated machine: its copy of the metadata, and a network with nothing in its way."""

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
    """`MetadataFeed`: tables that survive the processes, which somebody else keeps up to date."""

    def __init__(self, process: BrokerProcess, tables: MetadataTables) -> None:
        self._process = process
        self._tables = tables
        self._publisher: MetadataPublisher | None = None
        self._waiting: list[tuple[int, OnDone]] = []
        """Who waits for the metadata to be applied up to there."""
        self.follows = False
        """Whether the broker takes metadata."""

    @property
    def applied_end_offset(self) -> int:
        """What is applied."""
        return self._tables.applied.end_offset

    def follow(self) -> None:
        """Take what is committed."""
        self.follows = True

    def changed(self, deltas: Iterable[MetadataDelta]) -> None:
        """This has been applied to the tables."""
        for delta in deltas:
            if self._publisher is not None:
                self._publisher.on_delta(delta)
        waiting, self._waiting = self._waiting, []
        for end_offset, on_done in waiting:
            self._wait(end_offset, on_done)

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> None:
        """Call back when that is applied; it waits for longer than any run takes."""
        self._wait(end_offset, on_done)

    def _wait(self, end_offset: int, on_done: OnDone) -> None:
        if self.applied_end_offset >= end_offset:
            on_done(None)
        else:
            self._waiting.append((end_offset, on_done))

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Show it the state, and every change from now on."""
        self._publisher = publisher
        publisher.on_snapshot(Offset(self.applied_end_offset), self._tables.connection)

    def stop(self, on_stopped: OnDone) -> None:
        """Take nothing more."""
        self.follows = False
        self._publisher = None
        self._process.call_soon(partial(on_stopped, None))


class OpenNetwork:
    """`NetworkPort`: listeners are bound, and connections closed, in a moment."""

    def __init__(self, process: BrokerProcess, on_closed: Callable[[], None]) -> None:
        """`on_closed` is called when the broker's connections are closed, at its end."""
        self._process = process
        self._on_closed = on_closed
        self.is_closed = False

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        """Nothing is in its way."""
        self._process.call_soon(lambda: on_listening({"PLAINTEXT": PORT}))

    def answer_pending(self, on_done: OnDone) -> None:
        """No client has the controller do anything by way of a broker here."""
        self._soon(on_done)

    def close(self, on_closed: OnDone) -> None:
        """The broker is not reached any more, and answers nothing more."""
        self.is_closed = True
        self._on_closed()
        self._soon(on_closed)

    def close_controller(self, on_closed: OnDone) -> None:
        """What comes back is not heard any more when the process has ended."""
        self._soon(on_closed)

    def _soon(self, on_done: OnDone) -> None:
        self._process.call_soon(partial(on_done, None))
