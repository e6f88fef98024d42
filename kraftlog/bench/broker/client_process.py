"""A load carried out by a client in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.broker.loads.load import Load
from kraftlog.local.cluster import own_environment

TIMEOUT_SECONDS: Final = 900.0
"""A load that takes longer is ended."""


async def carried_out(load: Load) -> dict[str, float]:
    """The figures of a load. Raises ApiError with the client's last words if it failed, or took too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kraftlog.bench.broker.loads", type(load).__name__, json.dumps(asdict(load))),
        env=own_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise _failed(load, f"it has not ended after {TIMEOUT_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise _failed(load, lines[-1] if lines else f"it ended with code {process.returncode}")
    return {name: float(value) for name, value in json.loads(output).items()}


def _failed(load: Load, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the client {type(load).__name__} of {load.bootstrap_server} failed: {reason}",
    )
