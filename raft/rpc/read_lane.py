"""A share of the time for reads: on a busy node that writes, reads get a share, and connections take turns.

A node answers on one event loop, in one process: clients that read all the time would leave little time to votes,
fetches and operations. Each read is charged for its time. Consider a share of 10 % and reads that take 2 ms: while
records are written and the process is busy, 50 reads begin in a second, over all connections, and a connection that
sends a thousand delays only itself. While nothing is written, or there is time for all, all begin at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

CALL_SECONDS: Final = 0.001
"""The cost of a call before and after the read itself: about the time that gRPC takes on one core."""

MESSAGE_SECONDS: Final = 0.0003
"""The cost of one more message of a stream."""

BYTES_PER_SECOND: Final = 200_000_000
"""How fast answers are copied and encoded."""

BURST_SECONDS: Final = 0.1
"""The most credit that may be used at once, after a pause: occasional reads never wait."""

WRITES_PER_SECOND_MIN: Final = 10
"""Below this rate of records, such as an idle cluster's NoOps, reads are not limited."""

BUSY_SHARE_MIN: Final = 0.7
"""A process that is busy for a smaller share of the time than this has time for reads, however much is written."""

WINDOW_SECONDS: Final = 0.5
"""How often the lane checks whether records are written, and how busy the process was."""

_SCHEDULING: Final = Path("/proc/thread-self/schedstat")
"""Of the calling thread: nanoseconds on a processor, nanoseconds of waiting for a processor, number of time slices."""


def busy_seconds() -> float:
    """How long this process has used processors, and this thread has waited for one.

    Where other processes use the only processor, a process that is never idle uses little of it.
    """
    try:
        waited_ns = int(_SCHEDULING.read_text().split()[1])
    except (OSError, IndexError):  # not Linux, or a kernel without the counts
        waited_ns = 0
    return time.process_time() + waited_ns / 1e9


class ReadLane:
    """See the module. Used on one event loop."""

    def __init__(
        self,
        share: float,
        written: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = busy_seconds,
    ) -> None:
        """`share` is from 0 to 1; `written` counts records, such as the committed end offset.

        `now` is in seconds, and `busy` counts the seconds in which this process had work to do.
        """
        self._share = share
        self._written = written
        self._now = now
        self._busy = busy
        self._credit_seconds = BURST_SECONDS
        self._credited_at = now()
        self._window_start = now()
        self._window_written = written()
        self._window_busy = busy()
        self._is_contended = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, connection: str, seconds: float = CALL_SECONDS) -> None:
        """Return when a read of `connection` may begin, and charge it `seconds`, its minimum."""
        self._credit()
        if not self._waiting and self._has_credit:
            self._credit_seconds -= seconds
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append(turn)
        self._set_timer()
        await turn
        self.charge(seconds)

    def charge(self, seconds: float) -> None:
        """Charge a read for this much more time."""
        self._credit_seconds -= seconds

    @property
    def _has_credit(self) -> bool:
        return self._credit_seconds > 0 or not self._is_contended

    def _credit(self) -> None:
        now = self._now()
        if now - self._window_start >= WINDOW_SECONDS:
            self._look(now)
        self._credit_seconds += (now - self._credited_at) * self._share
        self._credited_at = now
        floor = BURST_SECONDS if not self._is_contended else -float("inf")
        self._credit_seconds = min(BURST_SECONDS, max(self._credit_seconds, floor))

    def _look(self, now: float) -> None:
        """Check the window that has ended: whether records were written and the process was busy.

        Delaying reads makes the process less busy, so reads are delayed until none of them waits.
        """
        seconds = now - self._window_start
        written, busy = self._written(), self._busy()
        writes = (written - self._window_written) / seconds >= WRITES_PER_SECOND_MIN
        somebody_waits = any(not turn.done() for turns in self._waiting.values() for turn in turns)
        is_busy = (busy - self._window_busy) / seconds >= BUSY_SHARE_MIN
        self._is_contended = writes and (is_busy or (self._is_contended and somebody_waits))
        self._window_start, self._window_written, self._window_busy = now, written, busy

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            seconds = max(0.0, -self._credit_seconds / self._share)
            self._timer = asyncio.get_running_loop().call_later(min(seconds, WINDOW_SECONDS) + 0.001, self._go_on)

    def _go_on(self) -> None:
        """Start as many reads as the credit allows, one of each connection in turn."""
        self._timer = None
        self._credit()
        released_seconds = 0.0
        while self._waiting and (not self._is_contended or self._credit_seconds > released_seconds):
            connection, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[connection] = turns
            if not turn.done():  # else the caller was cancelled
                turn.set_result(None)
                released_seconds += CALL_SECONDS  # the read is charged when its task runs
        self._set_timer()
