"""All connections of a broker: what they share, and which are admitted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.apis import API_VERSIONS
from kraftlog.kafka.notation import Versions
from kraftlog.network.counters import Closed, Counters
from kraftlog.network.large_requests import LargeRequests
from kraftlog.network.limits import Limits
from kraftlog.network.rate_limited_log import RateLimitedLog
from kraftlog.network.requests import Handler
from kraftlog.network.small_answers import SmallAnswers
from kraftlog.network.turns import Turns
from kraftlog.network.unread import UnreadConnections
from kraftlog.network.watch import PendingIo, Watch, Watched
from kraftlog.telemetry.registry import Histogram


class Member(Watched, Protocol):
    """A connection, as `Connections` uses it."""

    def hurry_early(self) -> None:
        """Other connections wait for memory that this one's early answers hold: answer the requests they wait for."""
        ...

    def close(self, reason: Closed) -> None:
        """Close the connection when its written answers are sent."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...


class Connections:
    """The connections of one event loop."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        offered: Mapping[int, Versions],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.handler = handler
        self.limits = limits
        self.offered = offered
        self.on_fatal = on_fatal
        self.queued = SharedBytes(
            limits.queued_bytes_max,
            reserved_bytes=limits.queued_bytes_max // 4,
            small_bytes_max=limits.queued_bytes_max // 16,
        )
        self.unsent = SharedBytes(limits.unsent_bytes_max)
        self.turns = Turns(self.loop.call_soon, time.monotonic)
        self.large = LargeRequests(handler, limits.large_requests_bytes_max, self.turns, self.loop.call_soon)
        self.unread = UnreadConnections(self.loop)
        self.closures = RateLimitedLog(self.loop.time)
        self.watch = Watch(time.monotonic, limits.idle_timeout_ms / 1000, limits.slow_timeout_ms / 1000)
        self.counted = Counters()
        """Counts that the connections change; `counters` also has the bytes held."""
        self.times = {key: Histogram() for key in (*offered, API_VERSIONS)}
        """How long requests take until they are answered, in milliseconds, by the API's key."""
        self.small_answers = SmallAnswers(self.loop.call_soon, time.monotonic)
        self._longest_seconds = 0.0
        self._longest: str | None = None
        self._members: dict[Member, str] = {}
        self._by_address: Counter[str] = Counter()
        self._looking: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def counters(self) -> Counters:
        """The counts, with the bytes that are held now."""
        self.counted.queued_bytes = self.queued.held_bytes
        self.counted.unsent_bytes = self.unsent.held_bytes
        return self.counted

    # --- requests that take long --------------------------------------------------------------------------------------

    def note_long(self, seconds: float, request: str) -> None:
        """Record that a request has kept the event loop for `seconds`: the last request of its slice."""
        if seconds > self._longest_seconds:
            self._longest_seconds, self._longest = seconds, request

    def take_longest(self) -> str | None:
        """Return the longest request recorded since the last call, if any."""
        longest, self._longest = self._longest, None
        self._longest_seconds = 0.0
        return longest

    # --- admission ----------------------------------------------------------------------------------------------------

    def admit(self, member: Member, address: str) -> Closed | None:
        """Admit a connection, or return why not. The caller must report the end of an admitted connection to `left`."""
        self.counted.connections_accepted += 1
        refusal = self._refusal(address)
        if refusal is not None:
            self.counted.connections_closed[refusal] += 1
            return refusal
        self._members[member] = address
        self._by_address[address] += 1
        self.counted.connections_open += 1
        self._none_left.clear()
        self.watch.active(member, time.monotonic())
        if self._looking is None:
            self._check_clients_later()
        return None

    def _refusal(self, address: str) -> Closed | None:
        if self._is_closing:
            return Closed.ENDING
        if len(self._members) >= self.limits.connections_max:
            return Closed.TOO_MANY
        if self._by_address[address] >= self.limits.address_connections_max:
            return Closed.TOO_MANY_OF_ADDRESS
        return None

    def left(self, member: Member, reason: Closed) -> None:
        """An admitted connection is closed."""
        address = self._members.pop(member)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self.counted.connections_open -= 1
        self.counted.connections_closed[reason] += 1
        self.watch.remove(member)
        if not self._members:
            self._none_left.set()
            if self._looking is not None:
                self._looking.cancel()
                self._looking = None

    # --- idle and slow clients ----------------------------------------------------------------------------------------

    def _check_clients_later(self) -> None:
        self._looking = self.loop.call_later(self.watch.interval_seconds, self._check_clients)

    def _check_clients(self) -> None:
        self._check_clients_later()
        if self.unsent.has_waiting:
            for member in list(self._members):
                member.hurry_early()
        self.watch.check({PendingIo.RECEIVE_RESPONSES: self.unsent, PendingIo.SEND_REQUEST: self.queued})

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close each connection when its client has taken its answers, or all after `drain_timeout_ms`."""
        self._is_closing = True
        for member in list(self._members):
            member.close(Closed.ENDING)
        try:
            async with asyncio.timeout(self.limits.drain_timeout_ms / 1000):
                await self._none_left.wait()
        except TimeoutError:
            for member in list(self._members):
                member.abort()
            await self._none_left.wait()
        self.unread.close()
