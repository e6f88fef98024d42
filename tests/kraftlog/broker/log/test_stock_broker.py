"""A log directory goes from a stock Kafka broker to us and back. Kafka's jars are fetched by `make peers`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kraftbase.files.posix import PosixFileSystem
from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log.file_handles import FileHandles
from kraftlog.broker.log.log_directory import LogDirectory
from kraftlog.broker.log.partition_log import PartitionLog
from kraftlog.kafka.record_batch import read_batches
from tests.kraftlog.broker.log.agreement import check_agreement
from tests.kraftlog.broker.log.builders import (
    CLICKS,
    CLUSTER_ID,
    DIRECTORY_ID,
    NOW_MS,
    StepRuntime,
    append,
    batch,
)
from tests.kraftlog.broker.log.test_dump_log import JARS, needs_kafka
from tests.raft.nodes import free_port

pytestmark = [needs_kafka, pytest.mark.process]


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
            f"log.dirs={self.data}\noffsets.topic.replication.factor=1\nlog.segment.bytes=1048576\n"
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


def random_text(seed: int) -> str:
    return Random(seed).randbytes(500).hex()


@pytest.fixture
def stock(tmp_path: Path) -> Iterator[StockBroker]:
    """A stock broker that runs, with the topic `clicks`: 3,000 records of 1 KB, idempotent, half of them compressed."""
    broker = StockBroker(tmp_path)
    try:
        broker.start()
        broker.tool("TopicCommand", "--create", "--topic", "clicks", "--partitions", "1")
        for codec in ("none", "gzip"):
            lines = "".join(f"{codec}{index:04d}{random_text(index)}\n" for index in range(1_500))
            broker.tool("ConsoleProducer", "--topic", "clicks", "--compression-codec", codec, text=lines)
        yield broker
    finally:
        broker.end(signal.SIGKILL)


def open_stock(stock: StockBroker) -> LogDirectory:
    files = PosixFileSystem()
    directory = LogDirectory.open(
        files, str(stock.data), FileHandles(files), StepRuntime(), cluster_id=CLUSTER_ID, node_id=1,
        new_directory_id=DIRECTORY_ID,
    )  # fmt: skip
    directory.load(lambda partition: PartitionLogConfig(segment_bytes=2**20), NOW_MS)
    return directory


def spans_of(log: PartitionLog) -> list[tuple[int, int]]:
    """First and end offset of each batch, through reads."""
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while data := log.reader.read(offset, 2**20, log.log_end_offset):
        found += [(read.base_offset, read.end_offset) for read in read_batches(data)]
        offset = found[-1][1]
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["shut down", "killed"])
def test_a_directory_goes_from_a_stock_broker_to_us_and_back(stock: StockBroker, number: int) -> None:
    stock.end(number)
    directory = open_stock(stock)
    log = directory.logs[CLICKS]
    log.advance_high_watermark(log.log_end_offset)
    check_agreement(log)
    assert log.segment_count > 2
    spans = spans_of(log)
    assert (spans[0][0], spans[-1][1]) == (0, 3_000)
    assert all(end == begin for (_, end), (begin, _) in pairwise(spans))
    assert len(log.epochs.entries()) == 1
    assert len(log.producers.states) == 2
    assert directory.topic_ids.keys() == directory.logs.keys()
    for index in range(3):
        assert append(log, batch(2, value=b"ours"), epoch=log.epochs.latest) == 3_000 + 2 * index
    log.roll(NOW_MS)
    append(log, batch(1, value=b"ours"), epoch=log.epochs.latest)
    directory.close(broker_epoch=-1)
    stock.start()
    consumed = stock.tool(
        "consumer.ConsoleConsumer", "--topic", "clicks", "--partition", "0", "--offset", "earliest",
        "--max-messages", "3007",
    ).splitlines()  # fmt: skip
    assert len(consumed) == 3_007
    assert consumed[-7:] == ["ours"] * 7
    assert consumed[1_499] == f"none1499{random_text(1_499)}"
