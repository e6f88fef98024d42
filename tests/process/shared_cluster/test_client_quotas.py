"""Quotas as Kafka's clients meet them: they are told to wait, they do, and nothing is lost (DB-94)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka
import kafka
import pytest

from tests.kraftlog.command_line import Run

pytestmark = pytest.mark.process

BYTES_PER_SECOND: Final = 10_000
"""So a client may have 100 kB at once."""
RECORD: Final = b"x" * 5_000
COUNT: Final = 24
TIMEOUT_SECONDS: Final = 60.0
names = itertools.count()


@pytest.fixture
def topic(ask: Run) -> str:
    """A topic of the test's own."""
    name = f"quotas-{next(names)}"
    assert ask("topics", "create", name, "--partitions", 1).code == 0
    return name


@pytest.fixture
def slow(ask: Run) -> Iterator[str]:
    """A client id with quotas, for as long as the test takes."""
    quotas = ("producer_byte_rate", "consumer_byte_rate")
    added = [part for key in quotas for part in ("--add-config", f"{key}={BYTES_PER_SECOND}")]
    deleted = [part for key in quotas for part in ("--delete-config", key)]
    assert ask("quotas", "alter", "--client-id", "slow", *added).code == 0
    yield "slow"
    assert ask("quotas", "alter", "--client-id", "slow", *deleted).code == 0


def produce(servers: str, topic: str, client_id: str, throttles: list[float]) -> None:
    """Send `COUNT` records in requests of one each."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "batch.num.messages": 1,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    failed: list[Any] = []
    for _ in range(COUNT):
        producer.produce(topic, value=RECORD, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    assert failed == []


def test_db94_a_producer_is_told_to_wait(kafka_servers: str, topic: str, slow: str) -> None:
    """The quota is committed when the test begins, and the broker that leads applies it a moment later."""
    throttles: list[float] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not throttles and time.monotonic() < deadline:
        produce(kafka_servers, topic, slow, throttles)
    assert max(throttles, default=0) > 0
    throttles.clear()
    produce(kafka_servers, topic, "quick", throttles)
    assert throttles == []


def test_db94_a_reader_is_told_to_wait_and_gets_everything(
    kafka_servers: str, topic: str, slow: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With kafka-python, which reads in sessions (KIP-227), again and again until the broker has applied the quota."""
    produce(kafka_servers, topic, "quick", [])
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=kafka_servers, client_id=slow, group_id=None, enable_auto_commit=False
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    throttled = "FetchResponse throttled by broker"
    until = time.monotonic() + TIMEOUT_SECONDS
    try:
        while throttled not in caplog.text and time.monotonic() < until:
            consumer.seek(partition, 0)
            found: list[bytes] = []
            while len(found) < COUNT and time.monotonic() < until:
                found += [record.value for records in consumer.poll(1_000).values() for record in records]
            assert found == [RECORD] * COUNT
    finally:
        consumer.close()
    assert throttled in caplog.text
