"""One life of a broker's process, in steps, and its runtime.

Everything that happens to a process is a step: one callback, from start to end. The process may be killed within a
step, before any operation on its files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftbase.runtime import OnDone
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.clock import Clock
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.engine.virtual.disk import Disk
from kraftlog.sim.engine.virtual.event_queue import EventQueue, Timer

HANGING_US: Final = 20_000
"""A process that does nothing for longer than this hangs."""

SYNCS: Final = frozenset({"fsync", "fdatasync", "fsync_directory"})


class ProcessHost(Protocol):
    """The environment of a process."""

    event_queue: EventQueue
    clock: Clock
    disk: Disk
    marks: Marks

    def before_operation(self, operation: str, path: str) -> None:
        """Fail an operation where the disk fails. Raises StorageError, FlushFailed."""
        ...

    def process_ended(self) -> None:
        """Handle a process that has ended within a step."""
        ...


class BrokerProcess:
    """A process, and its `kraftbase.runtime.Runtime`."""

    def __init__(self, host: ProcessHost) -> None:
        self.has_ended = False
        self.is_killed = False
        self.operations_left: int | None = None
        """The number of file operations until the process is killed; None: it is not killed."""
        self.operations = 0
        self.after_step: Callable[[], None] = lambda: None
        """Called after each step that the process survives."""
        self.hung_until_us = 0
        """When the last hang or pause of the process ended, or will end."""
        self._host = host
        self._queue = host.event_queue
        self._stalled_us = 0
        self._busy_until_us = 0
        self._disk_free_at_us = 0
        self._is_on_disk_thread = False

    # --- steps --------------------------------------------------------------------------------------------------------

    def after(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Run `callback` as a step after `delay_us`."""
        timer = self._queue.after(delay_us + self._stalled_us, lambda: self.run(callback, timer))
        return timer

    def run(self, callback: Callable[[], None], timer: Timer | None = None) -> None:
        """Run `callback` as a step now, or as soon as the process does not wait for its disk."""
        if self.has_ended or (timer is not None and timer.is_cancelled):
            return
        now_us = self._queue.now_us
        if self._busy_until_us > now_us:
            self._queue.after(self._busy_until_us - now_us, lambda: self.run(callback, timer))
            return
        self._stalled_us = 0
        try:
            callback()
        except ProcessKilled:
            self.has_ended = True
        except Violation:
            raise
        except Exception as error:
            if not self.has_ended:  # errors of a process that has ended do not count
                raise Violation(f"{GOES_ON}: its process ended with {error!r}") from error
        self._busy_until_us = max(self._busy_until_us, now_us + self._stalled_us)
        if self._stalled_us > HANGING_US:
            self.hung_until_us = self._busy_until_us
        self._stalled_us = 0
        if self.has_ended:
            self._host.process_ended()
        else:
            self.after_step()

    def pause(self, duration_us: int) -> None:
        """Do nothing for a while, as a process stopped by a signal.

        Events that arrive during the pause run after it.
        """
        self._busy_until_us = self.hung_until_us = max(self._busy_until_us, self._queue.now_us + duration_us)

    def before_operation(self, operation: str, path: str) -> None:
        """Handle a file operation that is about to happen.

        A sync stalls the process unless it is on the disk thread.
        """
        if self.has_ended:
            raise ProcessKilled
        self.operations += 1
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                self.has_ended = self.is_killed = True
                self._host.marks.hit(f"killed before {operation}")
                raise ProcessKilled
        self._host.before_operation(operation, path)
        if operation in SYNCS and not self._is_on_disk_thread:
            self._stalled_us += self._host.disk.draw_sync_us()

    # --- the runtime --------------------------------------------------------------------------------------------------

    def now_ms(self) -> float:
        """Return the monotonic time."""
        return self._host.clock.now_ms(self._queue.now_us + self._stalled_us)

    def wall_clock_ms(self) -> int:
        """Return the machine's wall clock."""
        return self._host.clock.wall_clock_ms(self._queue.now_us)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` in a step of its own."""
        self.after(0, callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        """Run `callback` in a step of its own."""
        self.after(0, callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        """Run `callback` in a step of its own."""
        self.after(0, callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` after `delay_ms`."""
        return self.after(max(1, int(delay_ms * 1_000)), callback)

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Run `work` when the disk thread has had time for it, in the order of the calls."""
        now_us = self._queue.now_us
        begins_us = max(now_us + self._stalled_us, self._disk_free_at_us)
        takes_us = self._host.disk.draw_sync_us()
        self._disk_free_at_us = begins_us + takes_us
        # A sync covers everything written before it began, and maybe more.
        works_us = self._disk_free_at_us if takes_us % 2 else begins_us
        failures: list[BaseException] = []

        def do() -> None:
            self._is_on_disk_thread = True
            try:
                work()
            except ProcessKilled:
                raise
            except BaseException as failure:
                failures.append(failure)
            finally:
                self._is_on_disk_thread = False

        self._queue.after(works_us - now_us, lambda: self.run(do))
        self._queue.after(
            self._disk_free_at_us - now_us, lambda: self.run(lambda: on_done(failures[0] if failures else None))
        )

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        """Run `work` after the time of a sync."""
        self.run_on_disk(work, on_done)
