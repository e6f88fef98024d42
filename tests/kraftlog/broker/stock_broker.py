"""An unmodified Kafka broker, of the jars that `make peers` fetches."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.java import JARS
from tests.kraftlog.storage.builders import CLUSTER_ID
from tests.raft.nodes import free_port


class StockBroker:
    """An unmodified Kafka 4.3 with one node, on a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.data = path / "kafka-logs"
        self.port, controller_port = free_port(), free_port()
        self._settings = path / "server.properties"
        self._settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@localhost:{controller_port}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://localhost:{self.port},CONTROLLER://localhost:{controller_port}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={self.data}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\nlog.segment.bytes=1048576\n"
        )
        self._printed = path / "stock.txt"
        self._process: subprocess.Popen[bytes] | None = None
        run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._settings))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._printed.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", "-Xmx256m", "-cp", f"{JARS}/*", "kafka.Kafka", str(self._settings)],
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.tool("TopicCommand", "--list")  # it retries until the broker is there

    @property
    def pid(self) -> int:
        """The id of its process; it runs."""
        assert self._process is not None
        return self._process.pid

    def tool(self, name: str, *arguments: str, text: str = "") -> str:
        """Run one of Kafka's command-line tools against it."""
        servers = ("--bootstrap-server", f"localhost:{self.port}")
        return run_tool(f"org.apache.kafka.tools.{name}", *servers, *arguments, text=text)

    def end(self, number: int) -> None:
        """Send it a signal, and wait until it has ended."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=60)
            self._process = None


def run_tool(main: str, *arguments: str, text: str = "") -> str:
    ended = subprocess.run(
        ["java", "-cp", f"{JARS}/*", main, *arguments],
        input=text, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
