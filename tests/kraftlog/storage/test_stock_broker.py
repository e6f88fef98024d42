"""A log directory goes from a stock Kafka broker to us and back. Kafka's jars are fetched by `make peers`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kraftbase.files.posix import PosixFileSystem
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from tests.java import needs_kafka
from tests.kraftlog.broker.stock_broker import StockBroker
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    DIRECTORY_ID,
    NOW_MS,
    TRANSACTIONAL,
    StepRuntime,
    append,
    batch,
    produced,
)

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
    assert directory.records.topic_ids.keys() == directory.logs.keys()
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


def test_db75_a_stock_broker_keeps_the_newest_of_a_producers_entries_and_we_read_its_one(stock: StockBroker) -> None:
    """Our snapshots have an entry for each of a producer's last batches, Kafka's one for the last of them."""
    stock.end(signal.SIGTERM)
    directory = open_stock(stock)
    log = directory.logs[CLICKS]
    now_ms = int(time.time() * 1_000)
    for index in range(7):
        append(log, produced(7_000, 2 * index, 2), epoch=log.epochs.latest, now_ms=now_ms)
        append(log, produced(7_001, index, attributes=TRANSACTIONAL), epoch=log.epochs.latest, now_ms=now_ms)
    directory.close(broker_epoch=-1)
    stock.start()
    printed = stock.tool("TransactionsCommand", "describe-producers", "--topic", "clicks", "--partition", "0")
    described = [line.split() for line in printed.splitlines()]
    columns = described[0]
    found = {int(row[0]): dict(zip(columns, row, strict=True)) for row in described[1:]}
    assert found[7_000]["LastSequence"] == "13"
    assert found[7_000]["LastTimestamp"] == str(now_ms), "the stock broker expires it by when we have appended"
    assert found[7_001]["LastSequence"] == "6"
    assert found[7_001]["CurrentTransactionStartOffset"] == "3002"
    stock.tool("ConsoleProducer", "--topic", "clicks", text="theirs\n")  # so that its end has something to write
    stock.end(signal.SIGTERM)
    log = open_stock(stock).logs[CLICKS]
    assert log.append_as_leader(produced(7_000, 12, 2), log.epochs.latest, now_ms).is_duplicate
    state = log.producers.states.state_of(7_001)
    assert state is not None
    assert (len(state.batches), state.transaction_first_offset) == (1, 3_002)
