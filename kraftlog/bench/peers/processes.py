"""Servers of other projects as child processes: started, awaited, and killed at the end."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.local.child import ChildProcess

START_TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
LOG_LINES: Final = 3

Result = TypeVar("Result")


class Servers:
    """The processes of one system."""

    def __init__(self, name: str, children: Sequence[ChildProcess]) -> None:
        self._name = name
        self._children = children

    async def until(self, attempt: Callable[[], Awaitable[Result | None]]) -> Result:
        """Repeat `attempt` until it returns a result. Raises ApiError if a process ended, or the time is over."""
        try:
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                while (result := await attempt()) is None:
                    self._check_alive()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self._name} has no leader after {START_TIMEOUT_SECONDS:g} s; is the machine busy?",
            ) from None
        return result

    def _check_alive(self) -> None:
        for child in self._children:
            if not child.is_running:
                words = " / ".join(child.last_lines(LOG_LINES)) or "none"
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE,
                    f"a server of {self._name} ended with code {child.exit_code}; its last log lines: {words}",
                )


@asynccontextmanager
async def servers(
    name: str, commands: Mapping[str, Sequence[str]], directory: Path, environment: Mapping[str, str]
) -> AsyncIterator[Servers]:
    """Run these commands within the block; each writes to a file in `directory`. Kill them at the end."""
    children: list[ChildProcess] = []
    try:
        for label, command in commands.items():
            children.append(ChildProcess([*ends_with_parent(), *command], directory / f"{label}.log", environment))
        yield Servers(name, children)
    finally:
        for child in children:
            child.send_signal(signal.SIGKILL)
        await asyncio.gather(*(child.wait() for child in children))


def ends_with_parent() -> list[str]:
    """Return a prefix for a command that makes the kernel kill it when this process dies. Nodes do not need it."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL", "--"]
