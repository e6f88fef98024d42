"""Child processes of a node for work that must not delay it: they have their own interpreter, and a low priority."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import socket
from subprocess import DEVNULL, PIPE, Popen
from types import MappingProxyType

from statemachine.store.priority import BACKGROUND_NICENESS, stand_back


def start_module(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    connection: socket | None = None,
    niceness: int = BACKGROUND_NICENESS,
) -> Popen[bytes]:
    """Run a module of this program with pipes for its input and output; `communicate` with it.

    With a `connection`, the connection is its standard input instead, and it has no output. It has this process's
    environment, with what `environment` sets, and leads a process group of its own.
    """
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, is taken for a module of ours.
    command = (sys.executable, "-P", "-m", module, *arguments)
    # asyncio's subprocess call forks, and gRPC's threads do not survive a fork. This one is a vfork.
    process = Popen(  # noqa: S603
        command,
        env={**_environment(), **environment},
        stdin=PIPE if connection is None else connection.fileno(),
        stdout=PIPE if connection is None else DEVNULL,
        stderr=PIPE,
        start_new_session=True,
    )
    if niceness:
        stand_back(process.pid, niceness)
    return process


async def run_to_end(process: Popen[bytes]) -> tuple[int, bytes, bytes]:
    """The process's exit code, its output and its error output; it is killed if this call is cancelled."""
    end = asyncio.ensure_future(asyncio.to_thread(process.communicate))
    try:
        output, error_output = await asyncio.shield(end)
    except BaseException:
        process.kill()
        await end
        raise
    return process.returncode, output, error_output


def last_line(error_output: bytes) -> str:
    """The last line of such a process's error output; empty if there is none."""
    return (error_output.decode(errors="replace").strip().splitlines() or [""])[-1]


def _environment() -> dict[str, str]:
    """This process's environment, changed so that the child imports the same packages."""
    root = str(Path(__file__).resolve().parents[2])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not others else os.pathsep.join((root, others))}
