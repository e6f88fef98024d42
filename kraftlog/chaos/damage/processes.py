"""The processes of a cluster of one voter and three brokers, all started by one `spawner`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.local.cluster import own_environment
from kraftlog.local.cluster_directory import ClusterDirectory

POLL_SECONDS: Final = 0.02
STOP_SECONDS: Final = 20.0
VOTER: Final = "node-1"


class Spawner:
    """The process that starts the other processes. For use in one thread."""

    def __init__(self) -> None:
        """Start the process. It imports in the background."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kraftlog.chaos.damage.spawner"],
            env=own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal reaches this process only
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process, and with it all processes that it has started."""
        self._process.communicate()

    def start(self, arguments: Iterable[str], log_path: Path) -> int:
        """Run `kraftlog` with these arguments; return its process id. Its output is appended to the file."""
        pid: int = self._ask({"start": list(arguments), "log": str(log_path)})["pid"]
        return pid

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code of a process, None while it runs."""
        code: int | None = self._ask({"exit_code_of": pid})["code"]
        return code

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the spawner has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        if not answer:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the spawner has ended; {request} has no answer")
        return answer


class Processes:
    """The voter and the brokers of a cluster directory, by their names: `node-1`, `broker-101` and so on."""

    def __init__(
        self, spawner: Spawner, directory: ClusterDirectory, ports: Mapping[int, int], configs: Mapping[str, str]
    ) -> None:
        """Starts nothing. `ports` has the brokers' ports by id, `configs` the configs of every broker."""
        self.directory = directory
        self.broker_ids = tuple(ports)
        self._spawner = spawner
        self._ports = ports
        self._configs = configs
        self._pids: dict[str, int] = {}

    @property
    def voter(self) -> Endpoint:
        """Where the voter answers."""
        return next(iter(self.directory.endpoints.values()))

    def endpoint(self, broker_id: int) -> Endpoint:
        """Where a broker listens."""
        return Endpoint("localhost", self._ports[broker_id])

    def data_path(self, broker_id: int) -> Path:
        """A broker's directory."""
        return self.directory.path / broker_name(broker_id)

    def log_path(self, name: str) -> Path:
        """The file with the output of a process."""
        return self.directory.path / "logs" / f"{name}.log"

    def start_voter(self) -> None:
        """Start the voter."""
        (node_id,) = self.directory.voter_ids
        config = self.directory.config_path(node_id)
        self._start(VOTER, ["start", "--config", str(config), "--stop-at-eof"])

    def start_broker(self, broker_id: int) -> None:
        """Start a broker."""
        configs = [part for item in self._configs.items() for part in ("--config", "=".join(item))]
        arguments = [
            "brokers", "run", "--stop-at-eof", "--id", str(broker_id), "--bootstrap-server", str(self.voter),
            "--endpoint", f"PLAINTEXT://{self.endpoint(broker_id)}", "--data-dir", str(self.data_path(broker_id)),
        ]  # fmt: skip
        self._start(broker_name(broker_id), arguments + configs)

    def is_running(self, name: str) -> bool:
        """Whether the process runs."""
        return name in self._pids and self._spawner.exit_code(self._pids[name]) is None

    async def end(self, names: Iterable[str], number: signal.Signals) -> None:
        """Send processes a signal that ends them, and wait; a process that does not end in time is killed."""
        running = [name for name in names if self.is_running(name)]
        for name in running:
            os.kill(self._pids[name], number)
        deadline = time.monotonic() + STOP_SECONDS
        while left := list(filter(self.is_running, running)):
            if time.monotonic() > deadline:
                await self.end(left, signal.SIGKILL)
            await asyncio.sleep(POLL_SECONDS)

    async def end_gently(self, name: str) -> None:
        """End a process with SIGTERM."""
        await self.end([name], signal.SIGTERM)

    async def kill_all(self) -> None:
        """End all processes with SIGKILL."""
        await self.end(list(self._pids), signal.SIGKILL)

    def _start(self, name: str, arguments: list[str]) -> None:
        self._pids[name] = self._spawner.start(arguments, self.log_path(name))


def broker_name(broker_id: int) -> str:
    """The name of its process and of its directory."""
    return f"broker-{broker_id}"
