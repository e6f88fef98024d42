"""Another program in this Python, whose answer is JSON on its standard output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterable
from contextlib import suppress
from typing import Any

from kraftlog.local.cluster import own_environment


class ProgramFailed(Exception):
    """The program ended with an error or took too long; the message has its last output."""


async def answer_of(
    module: str, *arguments: str, timeout_seconds: float, given: AsyncIterable[bytes] | None = None
) -> dict[str, Any]:
    """The output of `python -m module arguments`, with `given` written to its standard input. The process ends with
    this call.

    Raises ProgramFailed, and what `given` raises.
    """
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, would be imported instead of our
    # module.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *arguments),
        env=own_environment(),
        stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors, _ = await asyncio.gather(
                _all_of(process.stdout), _all_of(process.stderr), _write(process.stdin, given)
            )
            await process.wait()
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


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


async def _write(stream: asyncio.StreamWriter | None, given: AsyncIterable[bytes] | None) -> None:
    """Write everything, and close the stream. A program that ends before has said why."""
    if stream is None or given is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        async for data in given:
            stream.write(data)
            await stream.drain()
        stream.close()
        await stream.wait_closed()
