"""Starts `python -m kraftlog` by fork from a process that has imported everything: half of a start's work is imports.
So it does with the modules that a node runs as processes of their own.

This stands below `subprocess.Popen`, so tests and the code that they run notice nothing: it is a process of its own
with its own descriptors, environment, directory and session, and a child of this one. What this cannot do is started as
ever: another program or interpreter, other variables of Python's or gRPC's, a terminal, descriptors that are kept open.
A command that starts processes itself has them forked from a copy of itself, so they are its own children.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT

SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER: orphans among the descendants become children of this process."""
MODULES: Final = (
    "kraftlog",
    "kraftlog.bench.probe",
    "kraftlog.chaos.damage.spawner",
    "statemachine.store.scrub",
    "statemachine.store.snapshot_worker",
)
"""What is started by fork. The process for queries is not: it has bounds of memory."""
IN_NAMESPACE: Final = ["ip", "netns", "exec"]
"""Begins a command that runs another one in a network namespace, whose name comes next."""
STARTS_OTHERS: Final = (["start"], ["up"], ["demo"], ["bench"], ["chaos"])
"""Commands that start processes of their own, and wait for the ends of those."""
PYTHON: Final = sys.executable
"""A test may put another program in its place: that is started as ever."""
ARGUMENTS: Final = 22
"""Of `_fork_exec`, without those that differ between the versions of Python."""
_STARTS_ALIKE: Final = ("PYTHON", "GRPC_", "LD_", "MALLOC_")
"""Variables that are read before the first line of ours runs."""
_NOT_READ: Final = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}

by_exec: Final[Callable[..., int]] = subprocess._fork_exec  # type: ignore[attr-defined]
"""As Python does it."""


class Forking:
    """The process that forks. Unless `requests` leads to one, it is started with the first request."""

    def __init__(self, requests: socket.socket | None = None) -> None:
        self._lock = threading.Lock()
        self._requests = requests
        self._process: subprocess.Popen[bytes] | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)

    def start(self, request: dict[str, Any], files: Sequence[int]) -> int:
        """The id of a process that does what the request says. Raises OSError if there is none."""
        with self._lock:
            if self._requests is None:
                self._requests = self._begin()
            with self._as_subreaper():
                socket.send_fds(self._requests, [json.dumps(request).encode()], list(files))
                return int(self._requests.recv(32))

    def close(self) -> None:
        """End it. What it has started goes on."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
            self._requests = self._process = None

    def _begin(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", Path(__file__).with_name("forking.py"), str(its.fileno())],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        return ours

    @contextmanager
    def _as_subreaper(self) -> Iterator[None]:
        self._libc.prctl(SUBREAPER, 1, 0, 0, 0)
        try:
            yield
        finally:
            self._libc.prctl(SUBREAPER, 0, 0, 0, 0)


def install(requests: socket.socket | None = None) -> Forking:
    """From now on, in this process, until `close`. A test that needs it as Python does it puts `by_exec` back."""
    forking = Forking(requests)

    def fork_exec(*arguments: Any) -> int:
        request = request_of(arguments)
        if request is None:
            return by_exec(*arguments)
        _, _, _, _, _, _, read, _, _, written, _, errors, *_ = arguments
        files = [standard if given < 0 else given for standard, given in enumerate((read, written, errors))]
        if any(map(os.isatty, files)):
            return by_exec(*arguments)
        return forking.start(request, files)

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]
    return forking


def request_of(arguments: Sequence[Any]) -> dict[str, Any] | None:
    """What to ask for in place of a call of `_fork_exec`; None if it must be made."""
    if len(arguments) < ARGUMENTS:
        return None
    words, _, _, kept, directory, variables = arguments[:6]
    errors_pipe, _, has_session, group, *others = arguments[13:22]
    command, namespace = [os.fsdecode(word) for word in words], None
    if command[:3] == IN_NAMESPACE and len(command) > 4:
        namespace, command = command[3], command[4:]
    if command[1:2] == ["-P"]:
        del command[1]
    environment = dict(os.environ)
    if variables is not None:
        environment = dict(os.fsdecode(variable).split("=", 1) for variable in variables)
    if (
        command[:2] != [PYTHON, "-m"]
        or command[2] not in MODULES
        or set(kept) != {errors_pipe}
        or group != -1
        or any(other is not None and other != -1 for other in others)
        or environment.get("PYTHONPATH", "").split(os.pathsep)[0] != str(ROOT)
        or _read_early(environment) != _read_early(dict(os.environ))
    ):
        return None
    return {
        "module": command[2],
        "arguments": command[3:],
        "namespace": namespace,
        "directory": str(Path(os.fsdecode(directory or ".")).resolve()),
        "environment": environment,
        "has_session": bool(has_session),
        "starts_others": command[2] == "kraftlog" and command[3:4] in STARTS_OTHERS,
    }


def _read_early(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(_STARTS_ALIKE) and name not in _NOT_READ
    }
