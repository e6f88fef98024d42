"""A command of kraftlog in a process of its own, as a user runs it."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any, Final

from kraftbase.errors import ConfigurationError
from kraftlog.local.python_process import ProgramFailed, answer_of

TIMEOUT_SECONDS: Final = 300.0


async def run_command(*arguments: str, given: AsyncIterable[bytes] | None = None) -> dict[str, Any]:
    """The JSON output of `kraftlog` with these arguments, with `given` on its standard input.

    Raises ConfigurationError if it fails, or takes too long.
    """
    try:
        return await answer_of("kraftlog", *arguments, timeout_seconds=TIMEOUT_SECONDS, given=given)
    except ProgramFailed as failure:
        raise ConfigurationError(
            f"kraftlog {arguments[0]} failed: {failure}; run kraftlog {' '.join(arguments)} to see why"
        ) from None
