"""Child processes of a node for work that must not delay it: they have their own interpreter, and a low priority."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from types import MappingProxyType
from typing import Final

NICENESS: Final = 10
"""How much lower such a process's priority is than the node's own."""


def start_module(
    module: str, arguments: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> Popen[bytes]:
    """Run a module of this program with pipes for its input and output; `communicate` with it.

    It has this process's environment, with what `environment` sets.
    """
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, is taken for a module of ours.
    command = (sys.executable, "-P", "-m", module, *arguments)
    # Not the event loop's way: it forks, and gRPC's threads do not survive that. This one is a vfork.
    process = Popen(  # noqa: S603
        command, env={**_environment(), **environment}, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    _stand_back(process.pid)
    return process


async def run_to_end(process: Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Its exit code, its output and its error output; it is killed if this is cancelled."""
    end = asyncio.ensure_future(asyncio.to_thread(process.communicate))
    try:
        said, complaints = await asyncio.shield(end)
    except BaseException:
        process.kill()
        await end
        raise
    return process.returncode, said, complaints


def last_line(complaints: bytes) -> str:
    """The last line of such a process's error output; empty if there is none."""
    return (complaints.decode(errors="replace").strip().splitlines() or [""])[-1]


def _environment() -> dict[str, str]:
    """This process's environment, changed so that the child imports the same packages."""
    root = str(Path(__file__).resolve().parents[2])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not others else os.pathsep.join((root, others))}


def _stand_back(process_id: int) -> None:
    """Let all other work go before this process's, as far as the system allows."""
    with suppress(ProcessLookupError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, process_id, NICENESS)
    # Where Linux shares processors out to sessions, a process's own niceness counts only within its session.
    with suppress(OSError):
        Path(f"/proc/{process_id}/autogroup").write_text(str(NICENESS), encoding="ascii")
