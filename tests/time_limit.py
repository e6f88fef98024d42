"""The time limit of each test, kept by one thread for all of them.

pytest-timeout starts a thread for each test and waits for its end, which takes more than most tests do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from pytest_timeout import timeout_timer

LOOK_SECONDS: Final = 1.0
"""How long a test may go on after its time."""


class Limit(NamedTuple):
    """Until when a test may take, by the monotonic clock, and with which settings of pytest-timeout."""

    end: float
    item: pytest.Item
    settings: Any


class TimeLimits:
    """A plugin that keeps the limits of the method "thread" in place of pytest-timeout.

    When a test exceeds its limit, `end` is called with the test and the settings of pytest-timeout. The one of
    pytest-timeout prints the stacks of all threads and ends the process.
    """

    def __init__(
        self, look_seconds: float = LOOK_SECONDS, end: Callable[[pytest.Item, Any], None] = timeout_timer
    ) -> None:
        self._look_seconds = look_seconds
        self._end = end
        self._running: Limit | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool | None:
        """The test begins."""
        if settings.method != "thread":
            return None
        self._running = Limit(time.monotonic() + settings.timeout, item, settings)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="time limits of tests", daemon=True)
            self._thread.start()
        return True

    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> bool | None:
        """The test has ended; or Python's debugger has taken over."""
        if self._running is None:
            return None
        self._running = None
        return True

    def pytest_unconfigure(self) -> None:
        """No test comes."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self._look_seconds):
            limit = self._running
            if limit is not None and time.monotonic() >= limit.end:
                self._end(limit.item, limit.settings)
