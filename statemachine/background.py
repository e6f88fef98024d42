"""Processes of a node's own for work that must not be in its way: they share no interpreter with it, and stand back."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

NICENESS: Final = 10
"""How far such a process stands back behind the node's own."""


def start_module(module: str, arguments: Sequence[str]) -> Popen[bytes]:
    """Run a module of this program with pipes for all that it reads and says; `communicate` with it."""
    # -P: what lies in the directory where the node was started is not ours to import.
    command = (sys.executable, "-P", "-m", module, *arguments)
    # Not the event loop's way: it forks, and gRPC's threads do not survive that. This one is a vfork.
    process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)  # noqa: S603
    _stand_back(process.pid)
    return process


def _stand_back(process_id: int) -> None:
    """Let everybody else's work go before this process's, as far as the system can be told."""
    with suppress(ProcessLookupError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, process_id, NICENESS)
    # Where Linux shares processors out to sessions, a process's own niceness counts only within its session.
    with suppress(OSError):
        Path(f"/proc/{process_id}/autogroup").write_text(str(NICENESS), encoding="ascii")
