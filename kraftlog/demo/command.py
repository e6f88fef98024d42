"""A command of kraftlog in a process of its own, as a user runs it."""

from __future__ import annotations

from typing import Any, Final

from kraftbase.errors import ConfigurationError
from kraftlog.local.python_process import ProgramFailed, answer_of

TIMEOUT_SECONDS: Final = 300.0


async def run_command(*arguments: str) -> dict[str, Any]:
    """What `kraftlog` with these arguments prints as JSON. Raises ConfigurationError if it fails, or takes too long."""
    try:
        return await answer_of("kraftlog", *arguments, timeout_seconds=TIMEOUT_SECONDS)
    except ProgramFailed as failure:
        raise ConfigurationError(
            f"kraftlog {arguments[0]} failed: {failure}; run kraftlog {' '.join(arguments)} to see why"
        ) from None
