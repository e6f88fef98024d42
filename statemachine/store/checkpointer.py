"""When the write-ahead log of a node's metadata database starts over, between the transactions that fill it.

It runs in the worker that applies large runs, so that such a run and a checkpoint never meet. A run that is applied on
the event loop waits while the checkpoint must stop the writer. The loop itself waits for neither.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from kraftbase.runtime import OnDone, Runtime, Timer
from kraftbase.said_once import SaidOnce
from statemachine.store.store_port import StorePort
from statemachine.store.write_ahead_log import START_OVER_BYTES_MIN, WARN_BYTES

RETRY_MS: Final = 1_000
"""How long to wait after an attempt that did not succeed."""

WAIT_FOR_READERS_SECONDS: Final = 0.05
"""How long the writer is stopped so that readers finish: about as long as a reader takes for a page of a list."""

LONG_WAIT_SECONDS: Final = 1.0
"""The same when the log is large. New readers do not delay it, so it succeeds unless a reader is older than this."""

LONG_WAIT_PAUSE_MS: Final = 10_000
"""After a long wait that failed, no other for this long: an old reader costs at most a tenth of the writer's time."""

WARNING_PAUSE_MS: Final = 60_000

LOOK_MS: Final = 1_000
"""How often to check whether it is due, even if nothing is written: the log, or another program, may take the room."""

logger = structlog.get_logger(__name__)


class Checkpointer:
    """Makes the write-ahead log of a store start over. Everything is called on the event loop."""

    def __init__(self, store: StorePort, runtime: Runtime) -> None:
        """`runtime` has the worker that writes large runs to the store: its disk's thread."""
        self._store = store
        self._runtime = runtime
        self._is_running = False
        self._failures = SaidOnce()
        self._after_attempt: list[Callable[[], None]] = []
        """Callbacks that wait for the end of the current attempt."""
        self._must_be_still = False
        """Whether nothing may be written at the moment."""
        self._held_writer: OnDone | None = None
        """The callback that waits until writing is allowed again."""
        self._not_before_ms = 0.0
        """When the next attempt may begin."""
        self._look: Timer | None = None
        self._is_held = False
        """Whether a reader has made the last attempt fail since the log became large."""
        self._no_long_wait_before_ms = 0.0
        self._no_warning_before_ms = 0.0
        self._is_paused = False
        self._fault: BaseException | None = None

    def before_writing(self, proceed: OnDone) -> None:
        """Call `proceed` when a transaction may be written at once, maybe immediately. One caller at a time.

        It is called with WriteAheadLogHeld, a StoreUnavailable, if the write-ahead log has reached its limit.
        """
        if self._store.write_ahead_log.is_full:
            self._runtime.run_on_disk(
                lambda: self._store.write_ahead_log.check_bound(), partial(self._when_still, proceed)
            )
        else:
            self._when_still(proceed, None)

    def _when_still(self, proceed: OnDone, error: BaseException | None) -> None:
        if error is None and self._must_be_still:
            self._held_writer = proceed
        else:
            proceed(error)

    def after_writing(self, proceed: OnDone) -> None:
        """Start the log over when due; call `proceed` later when the log has become large, else now.

        It is called with FlushFailed, or another error, if the process must end.
        """
        if self._fault is not None or self._is_paused:
            proceed(self._fault)
            return
        self._look_again()
        if self._store.write_ahead_log.is_large and not self._is_held:
            self._begin(lambda: proceed(self._fault))
        else:
            self._begin_if_due()
            proceed(None)

    def make_room(self, on_done: Callable[[bool, BaseException | None], None]) -> None:
        """Start the log over now, for lack of room; `on_done` gets whether that has freed room, or FlushFailed."""
        size_bytes = self._store.write_ahead_log.size_bytes
        if self._is_paused or size_bytes == 0:
            on_done(False, None)
        else:
            self._begin(lambda: on_done(self._store.write_ahead_log.size_bytes < size_bytes, self._fault))

    def pause(self, on_idle: Callable[[], None]) -> None:
        """Call `on_idle` when no attempt is in progress, maybe at once; no attempt begins before `resume`."""
        self._is_paused = True
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._is_running:
            self._after_attempt.append(on_idle)
        else:
            on_idle()

    def resume(self) -> None:
        """Continue."""
        self._is_paused = False

    # --- one attempt --------------------------------------------------------------------------------------------------

    def _begin_if_due(self) -> None:
        if not self._is_paused and self._now_ms() >= self._not_before_ms and self._store.write_ahead_log.is_due:
            self._begin(lambda: None)

    def _begin(self, on_end: Callable[[], None]) -> None:
        """Begin an attempt, if there is none; then call `on_end`."""
        self._after_attempt.append(on_end)
        if not self._is_running:
            self._is_running = True
            self._runtime.run_on_disk(lambda: self._store.write_ahead_log.copy(), self._copied)

    def _copied(self, error: BaseException | None) -> None:
        if error is not None:
            self._end(error)
        else:
            self._guarded(self._start_over)

    def _start_over(self) -> None:
        is_large = self._store.write_ahead_log.is_large
        is_long = is_large and self._now_ms() >= self._no_long_wait_before_ms
        wait_seconds = LONG_WAIT_SECONDS if is_long else WAIT_FOR_READERS_SECONDS
        done: list[bool] = []
        self._must_be_still = True
        self._runtime.run_on_disk(
            lambda: done.append(self._store.write_ahead_log.start_over(wait_seconds)),
            lambda error: self._started_over(
                partial(self._decide_next, bool(done and done[0]), is_large, is_long), error
            ),
        )

    def _started_over(self, decide_next: Callable[[], None], error: BaseException | None) -> None:
        self._must_be_still = False
        writer, self._held_writer = self._held_writer, None
        if writer is not None:
            writer(None)
        if error is not None:
            self._end(error)
        else:
            self._guarded(decide_next)

    def _decide_next(self, is_done: bool, is_large: bool, is_long: bool) -> None:
        """Decide when to try again."""
        self._is_held = is_large and not is_done
        if is_long and not is_done:
            self._no_long_wait_before_ms = self._now_ms() + LONG_WAIT_PAUSE_MS
        if self._store.write_ahead_log.is_due:
            self._leave_it()
        if self._is_held and self._is_time_to_warn():
            self._warn()
        else:
            self._end(None)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step of the attempt; an exception ends the attempt."""
        try:
            step()
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        match error:
            case None:
                self._failures.ends()
            case sqlite3.Error():
                if self._failures.begins():
                    reason = str(error)
                    logger.warning("checkpoint of the metadata database failed; it is tried again later", reason=reason)
                self._leave_it()
            case _:
                self._fault = error
        self._is_running = False
        waiting, self._after_attempt = self._after_attempt, []
        for on_end in waiting:
            on_end()

    def _is_time_to_warn(self) -> bool:
        is_large = self._store.write_ahead_log.size_bytes >= WARN_BYTES
        return is_large and self._now_ms() >= self._no_warning_before_ms

    def _warn(self) -> None:
        self._no_warning_before_ms = self._now_ms() + WARNING_PAUSE_MS
        readers: list[str] = []

        def found(error: BaseException | None) -> None:
            logger.warning(
                "long read transaction holds the write-ahead log of the metadata database",
                size_bytes=self._store.write_ahead_log.size_bytes,
                readers="".join(readers),
            )
            self._end(error)

        self._runtime.run_on_disk(lambda: readers.append(self._store.write_ahead_log.holders()), found)

    def _leave_it(self) -> None:
        self._not_before_ms = self._now_ms() + RETRY_MS

    def _look_again(self) -> None:
        if self._look is None and self._store.write_ahead_log.size_bytes >= START_OVER_BYTES_MIN:
            self._look = self._runtime.call_later(LOOK_MS, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self._begin_if_due()
        self._look_again()

    def _now_ms(self) -> float:
        return self._runtime.now_ms()
