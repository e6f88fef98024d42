"""Starts `kraftlog` commands as processes of their own by fork: each saves the second that its imports would take.

A process that has imported everything waits for requests, a line of JSON each, and answers each with one. What it forks
runs what `python -m kraftlog` runs, in a session of its own, with its output in a file. When this process ends, however
it ends, the standard input of all of them ends, and with `--stop-at-eof` they do, too.

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
"""What the commands import when they are run. The command line is above this package: it is named, not imported."""


def main() -> None:
    """Serve until standard input ends. In a child this function ends with the command's exit."""
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
    """Do what a request wants. `codes` has what is known of processes that have ended. A child has process id 0."""
    if "exit_code_of" in request:
        pid = request["exit_code_of"]
        return {"pid": pid, "code": _exit_code(pid, codes)}
    pid = os.fork()
    codes.pop(pid, None)  # process ids come again
    return {"pid": pid}


def _become(arguments: list[str], log_path: str, standard_input: int) -> None:
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((standard_input, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.argv = ["kraftlog", *arguments]
    runpy.run_module("kraftlog", run_name="__main__", alter_sys=True)


def _exit_code(pid: int, codes: dict[int, int]) -> int | None:
    """None while it runs; minus the signal's number if a signal has ended it."""
    if pid not in codes:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            return None
        codes[pid] = os.waitstatus_to_exitcode(status)
    return codes[pid]


if __name__ == "__main__":
    main()
