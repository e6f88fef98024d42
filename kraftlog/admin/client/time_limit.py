"""How long a command may take in all, where its user has set it: `--timeout`.

The code below the command line asks here how long it may take, and passes its own default. A program that calls it
without a command line has no limit of its own.
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
"""A single call to one node takes this part of the limit at most: a node that hangs leaves time to ask others."""

GRACE_SECONDS: Final = 0.5
"""How much later than its parts, which report better what was not done, the whole command gives up."""

CHANGE_HINT: Final = "the change may still be made: look before you try it again, or give --timeout more"

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
    """Give what follows at most this long in all; None: as long as each part takes by itself."""
    _limit.set(None if seconds is None else _Limit(seconds))


def allowed_seconds(default: float) -> float:
    """How long something may take that takes at most `default` seconds where no limit is set."""
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
