"""Starts `kraftlog` commands by fork, which saves the second that the imports of a new process would take.

The spawner imports everything, waits for requests, each a line of JSON, and answers each with a line. A forked process
runs as `python -m kraftlog`, in a new session, with its output in a file. When the spawner ends, even by a crash, the
standard input of all forked processes ends, and with `--stop-at-eof` they end, too.

    python -P -m kraftlog.chaos.damage.spawner
    {"start": ["brokers", "run", ...], "log": "broker-101.log"}    {"pid": 4711}
    {"exit_code_of": 4711}                                         {"pid": 4711, "code": null}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
from collections.abc import Mapping
from typing import Any, Final

from kraftlog.process.grpc_settings import set_grpc

MODULES: Final = (
    "uvloop",
    "kraftlog.cli.main",
    "kraftlog.broker.running",
    "kraftlog.commands.broker_process",
    "kraftlog.process.server",
)
"""The modules that the commands import. The command line is in a higher layer, so the modules are only named."""


def main() -> None:
    """Serve until standard input ends. In a forked process, run the command and return."""
    set_grpc()
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    ended, never_written = os.pipe()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answered = answer(request, codes)
        if answered["pid"] == 0:
            os.close(never_written)
            _become(request["start"], request["log"], ended)
            return
        print(json.dumps(answered), flush=True)  # noqa: T201


def answer(request: Mapping[str, Any], codes: dict[int, int]) -> dict[str, Any]:
    """Carry out a request and return the answer. `codes` has known exit codes. In a forked process the pid is 0."""
    if "exit_code_of" in request:
        pid = request["exit_code_of"]
        return {"pid": pid, "code": _exit_code(pid, codes)}
    pid = os.fork()
    codes.pop(pid, None)  # process ids are reused
    return {"pid": pid}


def _become(arguments: list[str], log_path: str, standard_input: int) -> None:
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((standard_input, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.argv = ["kraftlog", *arguments]
    runpy.run_module("kraftlog", run_name="__main__", alter_sys=True)


def _exit_code(pid: int, codes: dict[int, int]) -> int | None:
    """Return the exit code, None while the process runs, or minus the number of the signal that ended it."""
    if pid not in codes:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            return None
        codes[pid] = os.waitstatus_to_exitcode(status)
    return codes[pid]


if __name__ == "__main__":
    main()
