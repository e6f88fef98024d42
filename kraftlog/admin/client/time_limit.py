"""How long a command may take in all, if its user has set `--timeout`. The code below the command line gets its limits
here, and passes its own default. A program that calls it without a command line has no limit of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from kraftbase.errors import ApiError, ErrorCode

CALLS_PER_LIMIT: Final = 3
"""A single call to one node takes at most this part of the limit, so that time is left after a node that hangs."""

GRACE_SECONDS: Final = 0.5
"""How much later the whole command stops than its parts, whose errors are more specific."""

CHANGE_HINT: Final = "the change may still be made: check before you try again, or raise --timeout"

SECONDS_LEFT_MIN: Final = 0.001

Result = TypeVar("Result")


class _Limit:
    """The time that a command was given, and how much of it is used. A wait for its user does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._used = 0.0
        self._since: float | None = None

    @property
    def seconds_left(self) -> float:
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return max(SECONDS_LEFT_MIN, self.seconds - self._used - running)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._used += time.monotonic() - self._since
            self._since = None


_limit: ContextVar[_Limit | None] = ContextVar("_limit", default=None)


@contextmanager
def limits_end() -> Iterator[None]:
    """A limit that is set in the block ends with the block."""
    token = _limit.set(None)
    try:
        yield
    finally:
        _limit.reset(token)


def set_limit(seconds: float | None) -> None:
    """Limit the block to this long in all; None: each part has its own limit."""
    _limit.set(None if seconds is None else _Limit(seconds))


def allowed_seconds(default: float) -> float:
    """The limit of a step that may take `default` seconds if no limit is set."""
    limit = _limit.get()
    return default if limit is None else limit.seconds_left


def allowed_call_seconds(default: float) -> float:
    """The same for a single call to one of several nodes."""
    limit = _limit.get()
    return default if limit is None else min(limit.seconds_left, max(default, limit.seconds / CALLS_PER_LIMIT))


async def within_limit(work: Coroutine[Any, Any, Result], hint: str = CHANGE_HINT) -> Result:
    """The result of `work`. Raises ApiError(REQUEST_TIMED_OUT), with the hint, if it takes longer."""
    limit = _limit.get()
    if limit is None:
        return await work
    with limit.running():
        try:
            async with asyncio.timeout(limit.seconds_left + GRACE_SECONDS) as cut:
                return await work
        except TimeoutError:
            if not cut.expired():
                raise
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {limit.seconds:g} s; {hint}") from None
