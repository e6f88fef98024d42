"""One data broker as a process that a test kills, pauses, asks to end and starts again at the same port."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kraftbase.endpoint import Endpoint
from tests.kraftlog.command_line import command, environment
from tests.raft.nodes import free_port

WAIT_SECONDS = 60.0
HEARTBEAT_MS = 100


class BrokerProcess:
    """`kraftlog brokers run`. What it complains of is in the file `said`."""

    def __init__(self, addresses: object, broker_id: int, directory: Path, *options: object) -> None:
        self.directory = directory
        self.said = directory.with_name(f"{directory.name}.log")
        self.endpoint = Endpoint("localhost", free_port())
        self._broker_id = broker_id
        self._command = command(
            "brokers", "run", "--id", broker_id, "--endpoint", f"PLAINTEXT://{self.endpoint}", "--data-dir", directory,
            "--bootstrap-server", addresses, "--config", f"broker.heartbeat.interval.ms={HEARTBEAT_MS}", *options,
        )  # fmt: skip
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def servers(self) -> str:
        """`bootstrap.servers` of its clients."""
        return str(self.endpoint)

    @property
    def address(self) -> tuple[str, int]:
        """For a socket."""
        return "127.0.0.1", self.endpoint.port

    @property
    def process(self) -> subprocess.Popen[str]:
        """The present one."""
        assert self._process is not None
        return self._process

    @property
    def partitions(self) -> Path:
        """Its log directory."""
        return self.directory / "partitions"

    def start(self) -> None:
        """Start it, and wait until it is unfenced."""
        with self.said.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(f"Broker {self._broker_id} is unfenced"), self.said.read_text()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        return self._end(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self.process, None
        with process:
            process.send_signal(number)
            return process.wait(WAIT_SECONDS)

    def resident_bytes(self) -> int:
        """Its memory."""
        return self._status_bytes("VmRSS")

    def forget_peak(self) -> None:
        """From now on `peak_bytes` counts."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The most memory that it has had since `forget_peak`."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @contextmanager
    def running(self) -> Iterator[BrokerProcess]:
        """Started; whatever a test made of it, it is ended."""
        self.start()
        try:
            yield self
        finally:
            if self._process is not None:
                self.kill()
