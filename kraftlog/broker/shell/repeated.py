"""Periodic work of a broker in slices, between which the event loop serves everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from kraftbase.runtime import Runtime, Timer
from kraftlog.broker.shell.failures import FATAL
from kraftlog.network.turns import SLICE_SECONDS

SLICE_MS: Final = SLICE_SECONDS * 1000

Steps = Iterator[object]
"""Work in steps; a slice may end after any step."""


class Repeated:
    """One kind of periodic work. Not thread-safe."""

    def __init__(
        self,
        runtime: Runtime,
        interval_ms: float,
        work: Callable[[], Steps],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`interval_ms` is the time from the end of the work to its next beginning. If the work raises, `on_failed` is
        called with the error, and the work is not repeated."""
        self._runtime = runtime
        self._interval_ms = interval_ms
        self._work = work
        self._on_failed = on_failed
        self._timer: Timer | None = None
        self._is_stopped = False

    def start(self, *, is_due: bool = False) -> None:
        """Do the work after each interval; with `is_due` also now."""
        if is_due:
            self._begin()
        else:
            self._wait()

    def stop(self) -> None:
        """Do the work no longer, and leave the rest of it undone."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = self._runtime.call_later(self._interval_ms, self._begin)

    def _begin(self) -> None:
        if not self._is_stopped:
            self._go_on(self._work())

    def _go_on(self, steps: Steps) -> None:
        if self._is_stopped:
            return
        ends_at_ms = self._runtime.now_ms() + SLICE_MS
        try:
            for _ in steps:
                if self._runtime.now_ms() >= ends_at_ms:
                    self._runtime.call_soon(partial(self._go_on, steps))
                    return
        except FATAL as error:
            self._is_stopped = True
            self._on_failed(error)
        else:
            self._wait()
