"""Passes the outcomes of coroutines to callbacks: the asyncio side of the broker shell's ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kraftbase.errors import ApiError
from kraftbase.runtime import OnDone
from kraftlog.broker.shell.failures import FATAL
from kraftlog.broker.shell.ports import Answer, OnAnswer


class AwaitedAnswers:
    """Awaited answers on one event loop. Close it."""

    def __init__(self, on_fatal: Callable[[BaseException], None]) -> None:
        """`on_fatal` is called with an error that is no ApiError, or that a callback raises: a bug."""
        self._on_fatal = on_fatal
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Cancel everything that is not done, without calling back."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, asking: Coroutine[Any, Any, Answer], on_answer: OnAnswer[Answer]) -> None:
        """Await an answer, then call `on_answer` with the answer or with the ApiError that was raised."""
        task = asyncio.create_task(asking)
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, on_answer))

    def _done(self, on_answer: OnAnswer[Answer], task: asyncio.Task[Answer]) -> None:
        if task not in self._tasks:
            return  # closed
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ApiError):
            self._on_fatal(error)
            return
        try:
            on_answer(task.result() if error is None else error)
        except FATAL as failure:
            self._on_fatal(failure)


def call_back(work: Coroutine[Any, Any, None], on_done: OnDone) -> None:
    """Run `work` in a task, and call `on_done` with what it raised, or with None."""

    def done(task: asyncio.Task[None]) -> None:
        on_done(asyncio.CancelledError() if task.cancelled() else task.exception())

    task = asyncio.create_task(work)
    task.add_done_callback(done)
