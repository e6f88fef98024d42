"""A command of kraftlog in a process of its own, as a user runs it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from kraftbase.errors import ConfigurationError
from kraftlog.local.cluster import own_environment

TIMEOUT_SECONDS: Final = 300.0


async def run_command(*arguments: str) -> dict[str, Any]:
    """What `kraftlog` with these arguments prints as JSON. Raises ConfigurationError if it fails, or takes too long."""
    command = (sys.executable, "-P", "-m", "kraftlog", *arguments)  # -P: not with the modules of the working directory
    process = await asyncio.create_subprocess_exec(
        *command,
        env=own_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    except TimeoutError:
        process.kill()
        raise ConfigurationError(
            f"kraftlog {arguments[0]} took more than {TIMEOUT_SECONDS:g} s; try again on a quieter machine"
        ) from None
    if process.returncode != 0:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ConfigurationError(
            f"kraftlog {arguments[0]} failed: {' '.join(last)}; run kraftlog {' '.join(arguments)} to see why"
        )
    answer: dict[str, Any] = json.loads(output)
    return answer
