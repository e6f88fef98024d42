"""The runtime that the shells need: the time, timers, and a thread for the disk.

The production runtime is an asyncio event loop; the simulator has its own, in virtual time. The promises: every
callback runs on the shell's own thread (or loop), never within the call that requested it; work passed to `run_on_disk`
runs in order, one piece at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeAlias, runtime_checkable

OnDone: TypeAlias = Callable[[BaseException | None], None]
"""Called once, with the error; None on success."""

TURNS_FOR_ANSWERS: Final = 2
"""How many turns of an asyncio loop it takes until ready answers are with the network: one for the callers that wait
for them, one for fetches of newly committed records, which are answered in that turn.
"""

TURNS_FOR_REQUESTS: Final = 5
"""The same until requests that have arrived are read, too: the turns to receive a follower's fetch and to answer it."""


@runtime_checkable
class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> object:
        """Cancel it; nothing happens if it has fired. The return value has no meaning."""
        ...


class Runtime(Protocol):
    """See the module for the promises."""

    def now_ms(self) -> float:
        """Monotonic time, in milliseconds from an arbitrary point; callable in any thread."""
        ...

    def wall_clock_ms(self) -> int:
        """Milliseconds since 1970 by this machine's clock, which may jump."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back when everything that is ready to run has run."""
        ...

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back when the ready answers are with the network."""
        ...

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        """Call back when the ready answers are with the network, and requests that have arrived are read.

        For long work in steps: between two steps all other clients are served.
        """
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back after `delay_ms`."""
        ...

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Run `work` where it may block, then call `on_done` with the exception that it raised, if any."""
        ...

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        """As `run_on_disk`, for long work: it delays no other work, and has no order with it."""
        ...


class AsyncioRuntime:
    """The event loop that runs at creation, and an executor with one thread."""

    def __init__(self, executor: Executor | None = None) -> None:
        """`executor` is the thread for the disk; None: one of the loop's own threads, if it is never used."""
        self._loop = asyncio.get_running_loop()
        self._executor = executor

    def now_ms(self) -> float:
        """Monotonic time."""
        return time.monotonic_ns() / 1_000_000

    def wall_clock_ms(self) -> int:
        """The machine's clock."""
        return time.time_ns() // 1_000_000

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next round."""
        self._loop.call_soon(callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Call back `TURNS_FOR_ANSWERS` rounds of the loop from now."""
        self._loop.call_soon(self._turn, TURNS_FOR_ANSWERS - 1, callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        """Call back `TURNS_FOR_REQUESTS` rounds of the loop from now."""
        self._loop.call_soon(self._turn, TURNS_FOR_REQUESTS - 1, callback)

    def _turn(self, turns_left: int, callback: Callable[[], None]) -> None:
        if turns_left:
            self._loop.call_soon(self._turn, turns_left - 1, callback)
        else:
            callback()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call back after `delay_ms`."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Run `work` in the executor's thread."""
        self._run(self._executor, work, on_done)

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Run `work` in one of the loop's own threads."""
        self._run(None, work, on_done)

    def _run(self, executor: Executor | None, work: Callable[[], None], on_done: OnDone) -> None:
        def finish(done: asyncio.Future[None]) -> None:
            on_done(asyncio.CancelledError() if done.cancelled() else done.exception())

        self._loop.run_in_executor(executor, work).add_done_callback(finish)


async def awaited(begin: Callable[[OnDone], object]) -> None:
    """Wait until `begin` calls its `on_done`; raise the error that it is called with.

    If `begin` returns a `Timer`, it is cancelled when this call is.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(error: BaseException | None) -> None:
        if done.done():
            return  # the caller no longer waits
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    begun = begin(on_done)
    try:
        await done
    except asyncio.CancelledError:
        if isinstance(begun, Timer):
            begun.cancel()
        raise
