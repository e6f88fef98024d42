"""A load carried out by a client in a process of its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.broker.loads.load import Load
from kraftlog.local.python_process import ProgramFailed, answer_of

TIMEOUT_SECONDS: Final = 900.0
"""A load that takes longer is killed."""


async def run_load(load: Load) -> dict[str, float]:
    """Run a load and return its figures. Raises ApiError with the client's last output if it failed or timed out."""
    kind = type(load).__name__
    try:
        printed = await answer_of(
            "kraftlog.bench.broker.loads", kind, json.dumps(asdict(load)), timeout_seconds=TIMEOUT_SECONDS
        )
    except ProgramFailed as failure:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the client {kind} of {load.bootstrap_servers} failed: {failure}"
        ) from None
    return {name: float(value) for name, value in printed.items()}
