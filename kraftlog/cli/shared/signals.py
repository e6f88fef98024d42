"""SIGTERM and SIGHUP end a command as Ctrl-C does: by an exception at the running statement, so that nothing is left
half-made. Commands that run until they are stopped handle SIGTERM themselves, in their event loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

TERMINATION_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")

_received: list[int] = []
"""The signal that ended this process's command; typer cannot distinguish KeyboardInterrupts."""


class TerminatedBySignal(KeyboardInterrupt):
    """A signal ended the command. This is not an Exception, so code that handles errors does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        _received.append(number)


def raise_on_signals() -> None:
    """Have these signals raise TerminatedBySignal from now on; those that are ignored, as under nohup, stay so."""
    for number in TERMINATION_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def interrupted_exit_code() -> int:
    """The exit code in a shell of a process that such a signal has ended; that of SIGINT if none was received."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def _raise(number: int, _frame: FrameType | None) -> None:
    raise TerminatedBySignal(number)


class SignalCancellation:
    """Ends the asynchronous part of a command: a signal cancels it, as SIGINT does in asyncio."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal received."""

    async def run_until_signal(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work`, as the whole of a task that such a signal cancels unless `work` handles it itself."""
        loop = asyncio.get_running_loop()
        numbers = [number for number in TERMINATION_SIGNALS if signal.getsignal(number) is _raise]
        for number in numbers:
            loop.add_signal_handler(number, self._end, asyncio.current_task(), number)
        try:
            return await work
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
                signal.signal(number, _raise)

    def _end(self, task: asyncio.Task[Any] | None, number: int) -> None:
        self.number = number
        if task is not None:
            task.cancel()
