"""Which connections are idle, and which clients are slow: one timer looks, as long as there are connections.

Idle connections are at the front of a queue in which each request puts its connection at the end. For slowness only
those are looked at whose client has to do something, with the broker's memory held until then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

PROGRESS_BYTES: Final = 64 * 1024
"""A client that moves so many bytes in its time is not slow."""

PRESSED_DIVISOR: Final = 10
"""While others wait for the memory that a client holds it has this part of the time, and must free this part of it.

Without the second rule some clients that take a little now and then could keep all others waiting.
"""

STALLED_DIVISOR: Final = 60
"""A client that has moved next to nothing in this part of the time has stalled, and others need not wait for it.

Those that hold the most are closed first, until half of all is free: each that gets room may be one that stalls, too.
"""

STALLED_BYTES: Final = 16 * 1024
"""Next to nothing: a client that moves so little might as well send a byte now and then to seem alive."""

LOOKS_PER_TIMEOUT: Final = 20
INTERVAL_SECONDS_MAX: Final = 1.0
INTERVAL_SECONDS_MIN: Final = 0.01


class Duty(Enum):
    """What a client has to do, so that memory of the broker is free again."""

    TAKE_ANSWERS = auto()
    SEND_REST = auto()


class Watched(Protocol):
    """A connection, as it is watched."""

    @property
    def is_busy(self) -> bool:
        """Whether the broker, and not the client, has to do something."""
        ...

    def measure(self) -> None:
        """Find out how much the client has moved, and have room that is free now given to others."""
        ...

    def moved_bytes(self, duty: Duty) -> int:
        """How many bytes the client has taken, or sent, since the connection was made, as last measured."""
        ...

    def held_bytes(self, duty: Duty) -> int:
        """How many bytes of memory are held until it has done it."""
        ...

    def close_idle(self) -> None:
        """It is idle for too long."""
        ...

    def close_slow(self, duty: Duty) -> None:
        """Its client is too slow."""
        ...


@dataclass(slots=True)
class _Mark:
    """How much a client had moved at a time."""

    moved_bytes: int
    at: float
    stalled_bytes: int
    """As `moved_bytes`, of when it last moved more than next to nothing."""
    stalled_at: float


class Memory(Protocol):
    """Bytes that connections hold together."""

    @property
    def has_waiting(self) -> bool:
        """Whether any of them waits for room."""
        ...

    @property
    def excess_bytes(self) -> int:
        """How many more than half of what may be held are held."""
        ...


class Watch:
    """Looks after all connections. `now` is a clock in seconds; `look` is to be called every `interval_seconds`."""

    def __init__(self, now: Callable[[], float], idle_seconds: float, slow_seconds: float) -> None:
        self._now = now
        self._idle_seconds = idle_seconds
        self._slow_seconds = slow_seconds
        self._active_at: OrderedDict[Watched, float] = OrderedDict()
        self._duties: dict[tuple[Watched, Duty], _Mark] = {}
        shortest = min(idle_seconds, slow_seconds / PRESSED_DIVISOR)
        self.interval_seconds = min(INTERVAL_SECONDS_MAX, max(INTERVAL_SECONDS_MIN, shortest / LOOKS_PER_TIMEOUT))

    def active(self, connection: Watched, now: float) -> None:
        """A connection was made, or something happened on it. `now` is a time of the watch's clock."""
        self._active_at[connection] = now
        self._active_at.move_to_end(connection)

    def has_to(self, connection: Watched, duty: Duty) -> None:
        """From now on the client has to do that, if it had not to before."""
        if (connection, duty) not in self._duties:
            moved_bytes, now = connection.moved_bytes(duty), self._now()
            self._duties[connection, duty] = _Mark(moved_bytes, now, moved_bytes, now)

    def is_free(self, connection: Watched, duty: Duty) -> None:
        """The client has done it, or cannot do it now."""
        self._duties.pop((connection, duty), None)

    def forget(self, connection: Watched) -> None:
        """The connection is gone."""
        self._active_at.pop(connection, None)
        for duty in Duty:
            self.is_free(connection, duty)

    def look(self, memory: Mapping[Duty, Memory]) -> None:
        """Close what is idle or slow. `memory` is what is held until clients have done a duty."""
        now = self._now()
        self._close_idle(now)
        pressed = {duty for duty, held in memory.items() if held.has_waiting}
        stalled: list[tuple[Watched, Duty]] = []
        for (connection, duty), mark in list(self._duties.items()):
            connection.measure()
            moved_bytes = connection.moved_bytes(duty)
            seconds, needed_bytes = self._slow_seconds, PROGRESS_BYTES
            if duty in pressed:
                seconds /= PRESSED_DIVISOR
                needed_bytes = max(PROGRESS_BYTES, connection.held_bytes(duty) // PRESSED_DIVISOR)
            if moved_bytes - mark.stalled_bytes >= STALLED_BYTES:
                mark.stalled_bytes, mark.stalled_at = moved_bytes, now
            if moved_bytes - mark.moved_bytes >= needed_bytes:
                mark.moved_bytes = moved_bytes
                mark.at = now
            elif now - mark.at >= seconds:
                connection.close_slow(duty)
            elif duty in pressed and now - mark.stalled_at >= self._slow_seconds / STALLED_DIVISOR:
                stalled.append((connection, duty))
        stalled.sort(key=lambda one: one[0].held_bytes(one[1]), reverse=True)
        # What is closed gives back what it holds a moment later, when the memory is free.
        excess_bytes = {duty: memory[duty].excess_bytes for duty in pressed}
        for connection, duty in stalled:
            if excess_bytes[duty] > 0:
                excess_bytes[duty] -= connection.held_bytes(duty)
                connection.close_slow(duty)

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
