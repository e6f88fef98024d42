"""A runtime whose time and threads the test moves by hand: nothing runs before a test starts it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

WALL_CLOCK_MS = 1_700_000_000_000

OnDone: TypeAlias = Callable[[BaseException | None], None]


class HandTimer:
    """A wake-up call."""

    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandRuntime:
    """See the module. Work for the disk runs in its order, work aside when `run_aside_work` is called."""

    def __init__(self) -> None:
        self.time_ms = 1_000.0
        self.soon: deque[Callable[[], None]] = deque()
        self.on_disk: deque[tuple[Callable[[], None], OnDone]] = deque()
        self.aside: deque[tuple[Callable[[], None], OnDone]] = deque()
        self.timers: list[HandTimer] = []

    # --- what the test does -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until nothing is left to do, but wait for nothing."""
        while self.soon or self.on_disk or self.aside:
            if self.soon:
                self.soon.popleft()()
            elif self.on_disk:
                self.run_disk_work()
            else:
                self.run_aside_work()

    def run_disk_work(self) -> None:
        _do(*self.on_disk.popleft())

    def run_aside_work(self) -> None:
        _do(*self.aside.popleft())

    def advance(self, milliseconds: float) -> None:
        """Advance the time, and run everything that becomes due on the way."""
        end_ms = self.time_ms + milliseconds
        self.run()
        while due := sorted(
            (timer for timer in self.timers if timer.due_ms <= end_ms and not timer.is_cancelled),
            key=lambda timer: timer.due_ms,
        ):
            self.timers.remove(due[0])
            self.time_ms = max(self.time_ms, due[0].due_ms)
            due[0].callback()
            self.run()
        self.time_ms = end_ms

    # --- Runtime ------------------------------------------------------------------------------------------------------

    def now_ms(self) -> float:
        return self.time_ms

    def wall_clock_ms(self) -> int:
        return WALL_CLOCK_MS + int(self.time_ms)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        self.call_soon(callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        self.call_after_answers(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self.time_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def run_on_disk(self, work: Callable[[], None], on_done: OnDone) -> None:
        self.on_disk.append((work, on_done))

    def run_aside(self, work: Callable[[], None], on_done: OnDone) -> None:
        self.aside.append((work, on_done))


def _do(work: Callable[[], None], on_done: OnDone) -> None:
    failure: BaseException | None = None
    try:
        work()
    except BaseException as error:
        failure = error
    on_done(failure)
