"""Closes idle connections and those of slow clients, checked by one timer while there are connections.

Connections are in a queue, and each request moves its connection to the end, so idle ones are at the front. A client
can be slow only if it has a duty: it must do something before the broker can free memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

PROGRESS_BYTES: Final = 64 * 1024
"""A client that moves this many bytes within the time limit is not slow."""

PRESSED_DIVISOR: Final = 10
"""While other connections wait for memory that a client holds, its time limit and what it must free are divided by
this.

Without the second rule, clients that take a few bytes now and then could keep all others waiting.
"""

STALLED_DIVISOR: Final = 60
"""A client that has moved next to nothing in this part of the time limit has stalled, and others need not wait for it.

Clients that hold the most are closed first, until half of the memory is free: a client that gets memory next may stall,
too.
"""

STALLED_BYTES: Final = 16 * 1024
"""Next to nothing: a client that moves less than this may only send a byte now and then to seem alive."""

LOOKS_PER_TIMEOUT: Final = 20
INTERVAL_SECONDS_MAX: Final = 1.0
INTERVAL_SECONDS_MIN: Final = 0.01


class PendingIo(Enum):
    """What a client has to do before the broker can free memory."""

    RECEIVE_RESPONSES = auto()
    SEND_REQUEST = auto()


class Watched(Protocol):
    """A connection, as `Watch` uses it."""

    @property
    def is_busy(self) -> bool:
        """Whether the broker, not the client, has to act next."""
        ...

    def measure(self) -> None:
        """Measure how much the client has moved, and give free room to waiting connections."""
        ...

    def moved_bytes(self, pending: PendingIo) -> int:
        """The number of bytes that the client has taken, or sent, since the connection was made, as last measured."""
        ...

    def held_bytes(self, pending: PendingIo) -> int:
        """The number of bytes of memory held until the client has done the duty."""
        ...

    def close_idle(self) -> None:
        """Close the connection: it was idle for too long."""
        ...

    def close_slow(self, pending: PendingIo) -> None:
        """Close the connection: its client is too slow with this duty."""
        ...


@dataclass(slots=True)
class _Mark:
    """How much a client had moved, and when."""

    moved_bytes: int
    at: float
    stalled_bytes: int
    """`moved_bytes` at the time when the client last moved more than next to nothing."""
    stalled_at: float


class Memory(Protocol):
    """Bytes that all connections hold together."""

    @property
    def has_waiting(self) -> bool:
        """Whether a connection waits for room."""
        ...

    @property
    def excess_bytes(self) -> int:
        """How many more bytes than half of the bound are held."""
        ...


class Watch:
    """Watches all connections. `now` is a clock in seconds; call `check` every `interval_seconds`."""

    def __init__(self, now: Callable[[], float], idle_seconds: float, slow_seconds: float) -> None:
        self._now = now
        self._idle_seconds = idle_seconds
        self._slow_seconds = slow_seconds
        self._active_at: OrderedDict[Watched, float] = OrderedDict()
        self._pending: dict[tuple[Watched, PendingIo], _Mark] = {}
        shortest = min(idle_seconds, slow_seconds / PRESSED_DIVISOR)
        self.interval_seconds = min(INTERVAL_SECONDS_MAX, max(INTERVAL_SECONDS_MIN, shortest / LOOKS_PER_TIMEOUT))

    def active(self, connection: Watched, now: float) -> None:
        """Record that a connection was made or used. `now` is a time of the watch's clock."""
        self._active_at[connection] = now
        self._active_at.move_to_end(connection)

    def start_pending(self, connection: Watched, pending: PendingIo) -> None:
        """The client has this duty from now on, unless it had it before."""
        if (connection, pending) not in self._pending:
            moved_bytes, now = connection.moved_bytes(pending), self._now()
            self._pending[connection, pending] = _Mark(moved_bytes, now, moved_bytes, now)

    def stop_pending(self, connection: Watched, pending: PendingIo) -> None:
        """The client has done the duty, or cannot do it now."""
        self._pending.pop((connection, pending), None)

    def remove(self, connection: Watched) -> None:
        """The connection is closed."""
        self._active_at.pop(connection, None)
        for pending in PendingIo:
            self.stop_pending(connection, pending)

    def check(self, memory: Mapping[PendingIo, Memory]) -> None:
        """Close idle and slow connections. `memory` has the memory that is held until clients have done a duty."""
        now = self._now()
        self._close_idle(now)
        pressed = {pending for pending, held in memory.items() if held.has_waiting}
        stalled: list[tuple[Watched, PendingIo]] = []
        for (connection, pending), mark in list(self._pending.items()):
            connection.measure()
            moved_bytes = connection.moved_bytes(pending)
            seconds, needed_bytes = self._slow_seconds, PROGRESS_BYTES
            if pending in pressed:
                seconds /= PRESSED_DIVISOR
                needed_bytes = max(PROGRESS_BYTES, connection.held_bytes(pending) // PRESSED_DIVISOR)
            if moved_bytes - mark.stalled_bytes >= STALLED_BYTES:
                mark.stalled_bytes, mark.stalled_at = moved_bytes, now
            if moved_bytes - mark.moved_bytes >= needed_bytes:
                mark.moved_bytes = moved_bytes
                mark.at = now
            elif now - mark.at >= seconds:
                connection.close_slow(pending)
            elif pending in pressed and now - mark.stalled_at >= self._slow_seconds / STALLED_DIVISOR:
                stalled.append((connection, pending))
        stalled.sort(key=lambda found: found[0].held_bytes(found[1]), reverse=True)
        # A closed connection gives its memory back a moment later, so its bytes are subtracted here.
        excess_bytes = {pending: memory[pending].excess_bytes for pending in pressed}
        for connection, pending in stalled:
            if excess_bytes[pending] > 0:
                excess_bytes[pending] -= connection.held_bytes(pending)
                connection.close_slow(pending)

    def _close_idle(self, now: float) -> None:
        while self._active_at:
            connection, active_at = next(iter(self._active_at.items()))
            if now - active_at < self._idle_seconds:
                return
            if connection.is_busy:
                self.active(connection, now)
            else:
                del self._active_at[connection]
                connection.close_idle()
