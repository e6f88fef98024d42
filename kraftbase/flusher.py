"""Makes the log durable: on the event loop while the disk is fast and the loop has time, else in a thread.

A thread hop costs more than a fast fsync (both threads contend for the GIL); but a slow fsync on the loop delays votes
and fetches, and any fsync delays a busy loop. The times of recent flushes and loop iterations decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from kraftbase.runtime import Runtime

SLOW_FLUSH_MS: Final = 2.0
"""When recent flushes took longer than this, later ones run in the thread; heartbeats can wait this long."""

BUSY_TURN_MS: Final = 1.0
"""When recent iterations of the loop took longer than this, the loop is busy: it has work during a flush."""

RECENT_WEIGHT: Final = 0.2
"""The weight of the last value in a running mean."""


class Flush(Protocol):
    """A flush that was started."""

    def run(self) -> None:
        """Make it durable, in any thread. Raises FlushFailed."""
        ...


F = TypeVar("F", bound=Flush)
Flushed = TypeVar("Flushed", covariant=True)


class Flushable(Protocol[F, Flushed]):
    """A log that can be flushed, or several at once. The result shows how far it is durable."""

    def flush(self) -> Flushed:
        """Make all of it durable now."""
        ...

    def start_flush(self) -> F:
        """Begin a flush."""
        ...

    def finish_flush(self, pending: F) -> Flushed:
        """Record that `pending.run()` has returned."""
        ...


class Flusher(Generic[F, Flushed]):
    """Flushes one log, or several together, one flush at a time, and reports the end of each.

    `on_flushed` is called on the loop with the flush's result, for a log the offset up to which it is durable;
    `on_fatal` with an exception after which it must not be flushed again.
    """

    def __init__(
        self,
        log: Flushable[F, Flushed],
        runtime: Runtime,
        on_flushed: Callable[[Flushed], None],
        on_fatal: Callable[[BaseException], None],
        is_long: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_long` returns whether the next flush will take long; then it runs in the thread."""
        self._log = log
        self._runtime = runtime
        self._on_flushed = on_flushed
        self._on_fatal = on_fatal
        self._is_long = is_long
        self.recent_flush_ms = 0.0
        """A running mean of how long flushes take, without the hop to the thread and back."""
        self.last_flush_ms = 0.0
        """How long the last flush took, measured as `recent_flush_ms`."""
        self.recent_turn_ms = 0.0
        """A running mean of the time from the request to the flush, one iteration of the loop."""
        self._requested_at_ms = 0.0

    def request(self) -> None:
        """Flush soon: after all ready messages were given to the network."""
        self._requested_at_ms = self._runtime.now_ms()
        self._runtime.call_soon(self._flush)

    def _flush(self) -> None:
        started_ms = self._runtime.now_ms()
        turn_ms = started_ms - self._requested_at_ms
        self.recent_turn_ms += (turn_ms - self.recent_turn_ms) * RECENT_WEIGHT
        try:
            is_quick = self.recent_flush_ms < SLOW_FLUSH_MS and self.recent_turn_ms < BUSY_TURN_MS
            if is_quick and not self._is_long():
                end_offset = self._log.flush()
                self._note(self._runtime.now_ms() - started_ms)
                self._on_flushed(end_offset)
            else:
                self._flush_in_thread()
        except BaseException as error:
            self._on_fatal(error)

    def _flush_in_thread(self) -> None:
        pending = self._log.start_flush()
        took_ms = 0.0

        def flush() -> None:
            # The time is measured here, not from the request to the result: the hop and the thread's other work do not
            # depend on the disk, and would keep flushes in the thread for good. The wait for the GIL is still included.
            nonlocal took_ms
            started_ms = self._runtime.now_ms()
            pending.run()
            took_ms = self._runtime.now_ms() - started_ms

        def finish(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                end_offset = self._log.finish_flush(pending)
                self._note(took_ms)
                self._on_flushed(end_offset)
            except BaseException as failure:
                self._on_fatal(failure)

        self._runtime.run_on_disk(flush, finish)

    def _note(self, took_ms: float) -> None:
        self.last_flush_ms = took_ms
        self.recent_flush_ms += (took_ms - self.recent_flush_ms) * RECENT_WEIGHT
