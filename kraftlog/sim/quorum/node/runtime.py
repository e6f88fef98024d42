"""The runtime of a simulated process (`kraftbase.runtime.Runtime`): virtual time, a loop that stalls, a disk thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.runtime import Timer
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess

AFTER_ANSWERS_US_MAX: Final = 2 * MICROSECONDS_PER_MS
"""The longest time for which sending answers and requests delays a process's other work."""


class SimulatedRuntime:
    """Every callback is one step of the process. A sync on the loop stalls the loop for as long as the disk takes."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._random = process.machine.new_random()
        self._disk_free_at_us = 0

    def now_ms(self) -> float:
        """Return the monotonic time.

        It includes the current step's stall so far, without the part of a sync still to come.
        """
        process = self._process
        return process.machine.clock.now_ms(
            process.host.event_queue.now_us + process.stalled_us - process.sync_ahead_us
        )

    def wall_clock_ms(self) -> int:
        """Return the machine's wall clock."""
        return self._process.machine.clock.wall_clock_ms(self._process.host.event_queue.now_us)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in a step of its own, as soon as the process is free."""
        self._process.after(0, "soon", callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` in a step of its own.

        Half the time it is delayed: other events, even the end, may come first.
        """
        delay_us = self._random.randrange(AFTER_ANSWERS_US_MAX) if self._random.random() < 0.5 else 0
        self._process.after(delay_us, "after answers", callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        """The same as `call_after_answers`."""
        self.call_after_answers(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms` of the machine's time."""
        delay_us = self._process.machine.clock.world_delay_us(delay_ms)
        if delay_ms > 0:
            delay_us = max(1, delay_us)  # a wait of no time would be repeated forever
        return self._process.after(delay_us + self._process.stalled_us, "timer", callback)

    def run_on_disk(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        """Run `work` when the disk thread has had time for it, in the order of the calls."""
        process = self._process
        now_us = process.host.event_queue.now_us + process.stalled_us
        sync_us = process.machine.disk.draw_sync_us()
        self._disk_free_at_us = max(now_us, self._disk_free_at_us) + sync_us
        self._run_at(self._disk_free_at_us, sync_us, work, on_done)

    def run_aside(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        """Run `work` after a delay of a few syncs."""
        process = self._process
        now_us = process.host.event_queue.now_us + process.stalled_us
        sync_us = 5 * process.machine.disk.draw_sync_us()
        self._run_at(now_us + sync_us, sync_us, work, on_done)

    def _run_at(
        self, time_us: int, sync_us: int, work: Callable[[], None], on_done: Callable[[BaseException | None], None]
    ) -> None:
        process = self._process

        def finish() -> None:
            error: BaseException | None = None
            process.is_on_disk_thread = True
            process.sync_ahead_us = sync_us
            try:
                work()
            except BaseException as failure:
                error = failure
            finally:
                process.is_on_disk_thread = False
                process.sync_ahead_us = 0
            if isinstance(error, ProcessKilled):
                raise error
            on_done(error)

        process.after(time_us - process.host.event_queue.now_us, "disk", finish)
