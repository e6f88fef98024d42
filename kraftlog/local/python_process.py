"""Another program in this Python, whose answer is JSON on its standard output."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from kraftlog.local.cluster import own_environment


class ProgramFailed(Exception):
    """It ended with an error or took too long; the message has its last words."""


async def answer_of(module: str, *arguments: str, timeout_seconds: float) -> dict[str, Any]:
    """What `python -m module arguments` prints. It is ended with this call. Raises ProgramFailed."""
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, is taken for a module of ours.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *arguments),
        env=own_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        raise ProgramFailed(f"it has not ended after {timeout_seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise ProgramFailed(lines[-1] if lines else f"it ended with code {process.returncode}")
    answer: dict[str, Any] = json.loads(output)
    return answer
