"""One child process: started with its output in a file, awaited from any event loop, and ended with its parent.

- The child is in a process group of its own, so Ctrl-C in the terminal reaches only the parent, which then stops the
  children in its own order.
- The child's standard input is a pipe that is never written to. When the parent dies, however it dies, the pipe closes,
  and a child started with `--stop-at-eof` stops: see `stop_at_end_of_input`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

LOG_TAIL_BYTES: Final = 16 * 1024

Name = TypeVar("Name")


class ChildProcess:
    """A process that was started by this one. Its standard output and error are appended to `log_path`."""

    def __init__(self, command: Sequence[str], log_path: Path, environment: Mapping[str, str]) -> None:
        """Start it. Raises OSError if the program or the file cannot be opened."""
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (the command is ours)
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._exit: Future[int] = Future()
        threading.Thread(target=self._await_exit, name=f"wait-{self._process.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, minus the signal's number if a signal ended it, None while it runs."""
        return self._exit.result() if self._exit.done() else None

    @property
    def is_running(self) -> bool:
        """Whether it runs, stopped by SIGSTOP or not."""
        return not self._exit.done()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    async def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait for its end."""
        self.send_signal(number)
        await self.wait()

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        return await asyncio.shield(asyncio.wrap_future(self._exit))

    async def stop(self, grace_seconds: float) -> None:
        """Ask it to end (SIGTERM), and end it (SIGKILL) if it has not within `grace_seconds`."""
        self.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), grace_seconds)
        except TimeoutError:
            await self.end(signal.SIGKILL)

    def last_lines(self, count: int) -> list[str]:
        """The last `count` lines that it wrote, fewer if they are long."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace").splitlines()[-count:]

    def _await_exit(self) -> None:
        exit_code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._exit.set_result(exit_code)


async def ends(children: Mapping[Name, ChildProcess]) -> AsyncGenerator[Name, None]:
    """The name of each child that ends from now on, until all have ended."""
    waiting = {asyncio.create_task(child.wait()): name for name, child in children.items()}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield waiting.pop(task)
    finally:
        for task in waiting:
            task.cancel()


def stop_at_end_of_input() -> None:
    """Send SIGTERM to this process when its standard input ends: what a child does when its parent dies."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stop-at-eof", daemon=True).start()
