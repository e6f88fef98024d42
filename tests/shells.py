"""Blocks of the pages, run by a shell in which `kraftlog` is started as this process starts it: by fork, if it can be.

`kraftlog` on the shell's path is `tests/kraftlog_in_shells.py`. It hands its arguments, directory, variables and
descriptors to a thread of this process and ends as the command does that is started with them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.kraftlog.command_line import command, environment

REQUEST_BYTES_MAX: Final = 1 << 17
SOCKET_VARIABLE: Final = "KRAFTLOG_IN_SHELLS"
STUB: Final = Path(__file__).with_name("kraftlog_in_shells.py")


def run_block(
    block: str, directory: Path, *, timeout: float = 300, stderr: int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a block as a user does who has `kraftlog` on the path, in this directory and with these variables."""
    with kraftlog_for_shells() as (programs, its_variables):
        path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block],
            cwd=directory,
            env=environment(PATH=path, **its_variables, **variables),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )


@contextmanager
def kraftlog_for_shells() -> Iterator[tuple[Path, dict[str, str]]]:
    """A directory with `kraftlog` in it, and the variables that it needs."""
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        program = Path(directory, "kraftlog")
        program.write_text(f"#!{sys.executable} -ISE\n{STUB.read_text()}")
        program.chmod(0o700)
        address = str(Path(directory, "socket"))
        listener.bind(address)
        listener.listen()
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        try:
            yield Path(directory), {SOCKET_VARIABLE: address}
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            asked, _ = listener.accept()
        except OSError:
            return  # it is shut down
        threading.Thread(target=_serve, args=(asked,), daemon=True).start()


def _serve(asked: socket.socket) -> None:
    """Start a command, pass on the signals that the stub gets, and answer with the exit code."""
    with asked:
        data, files, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
        if not data:
            return
        process = _start(json.loads(data), files)
        threading.Thread(target=_answer, args=(asked, process), daemon=True).start()
        while number := asked.recv(8):
            process.send_signal(int(number))
        process.kill()  # the stub was killed; nothing happens to a command that has ended
        process.wait()


def _start(request: dict[str, Any], files: list[int]) -> subprocess.Popen[bytes]:
    read, written, errors = files
    variables = {name: value for name, value in request["environment"].items() if name != SOCKET_VARIABLE}
    try:
        return subprocess.Popen(
            command(*request["arguments"]),
            cwd=request["directory"],
            env=variables,
            stdin=read,
            stdout=written,
            stderr=errors,
        )
    finally:
        for file in files:
            os.close(file)


def _answer(asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
    code = process.wait()
    with suppress(OSError):  # the stub was killed
        asked.send(b"%d" % code)
