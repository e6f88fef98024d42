"""A log directory goes from a stock Kafka broker to us and back. Kafka's jars are fetched by `make peers`."""

from __future__ import annotations

import signal
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
from tests.java import needs_kafka
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
from tests.kraftlog.broker.stock_broker import StockBroker

pytestmark = [needs_kafka, pytest.mark.process]


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
