"""Run as a script: a process that has imported what `kraftlog` imports, and forks one for each request.

A request is a line of JSON with three descriptors: standard input, output and error. The answer is a line with the
process id. What is forked has the parent of this process as its own parent, which for that moment is a subreaper.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kraftlog.chaos.damage.spawner import MODULES
from kraftlog.process.grpc_settings import set_grpc
from kraftlog.process.quick_start import import_structlog
from tests import forked_starts

REQUEST_BYTES_MAX: Final = 1 << 20
NAMESPACES: Final = Path("/run/netns")
CLONE_NEWNET: Final = 0x40000000


def main() -> None:
    """Serve until the other end of the socket is closed. In a child this ends with the command's exit."""
    set_grpc()
    import_structlog()
    for module in MODULES:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))


def serve(requests: socket.socket) -> None:
    """Fork a process for each request until the other end is closed. In a child this ends with the command's exit."""
    with requests:
        while True:
            data, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
            if not data:
                return
            pid = fork_orphan()
            if pid == 0:
                requests.close()
                break
            for file in files:
                os.close(file)
            requests.sendall(b"%d\n" % pid)
    become(json.loads(data), files)


def fork_orphan() -> int:
    """Fork a process whose parent, one in between, has ended; returns its id here, and 0 in it."""
    readable, writable = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            os.close(writable)
            return 0
        os.write(writable, b"%d" % pid)
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(readable, 32))
    os.close(readable)
    os.close(writable)
    return pid


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Be the process that was asked for."""
    if request["namespace"] is not None:
        enter_namespace(request["namespace"])
    if request["has_session"]:
        os.setsid()
    for target, file in enumerate(files):
        os.dup2(file, target)
    for file in files:
        os.close(file)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["starts_others"]:
        forked_starts.install(fork_server())
    sys.argv = [request["module"], *request["arguments"]]
    Path("/proc/self/comm").write_text(" ".join(sys.argv[:2]))  # what `ps` and tests see: the command line is not ours
    if request["module"] != "kraftlog":
        sys.modules.pop(request["module"], None)  # or Python warns that it is there already
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int | None):
            end_at_once(end.code or 0)
        raise


def enter_namespace(name: str) -> None:
    """Use a network namespace that `ip netns add` has made from now on. Raises OSError if it cannot be entered."""
    with (NAMESPACES / name).open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")


def end_at_once(code: int) -> None:
    """End as Python does, but free no modules: that would copy most of the memory shared with the parent, in 0.05 s.

    Returns if standard output or error cannot be written: Python has an exit code for it.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def fork_server() -> socket.socket:
    """A copy of this process, before it has threads, that forks what this process starts; where it takes requests."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        os.setsid()
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        serve(its)
        os._exit(0)
    its.close()
    return ours


if __name__ == "__main__":
    main()
