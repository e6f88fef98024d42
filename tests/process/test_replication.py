"""Three brokers with three replicas: what is acknowledged is on all disks, byte for byte, whoever is killed."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.storage.formats.batch_header import read_headers
from tests.effort import all_cases
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import SESSION_TIMEOUT_MS, addresses

pytestmark = pytest.mark.process

BROKERS: Final = (71, 72, 73)
PARTITIONS: Final = 3
RECORDS: Final = 3_000 if all_cases() else 900
LAG_MAX_MS: Final = 2_000
ASKED_EVERY_SECONDS: Final = 0.2
"""Each question takes the nodes as much time as a command."""

names = itertools.count()


@pytest.fixture(scope="module")
def voters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three voters of this module's own, which consider a broker dead soon."""
    directory = tmp_path_factory.mktemp("voters")
    settings = {"broker.session.timeout.ms": SESSION_TIMEOUT_MS}
    cluster = LocalCluster(open_or_create(directory, voters=3, observers=0, settings=settings))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def brokers(voters: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers, by id."""
    base = tmp_path_factory.mktemp("brokers")
    options = ("--config", f"replica.lag.time.max.ms={LAG_MAX_MS}")
    found = {number: BrokerProcess(addresses(voters), number, base / str(number), *options) for number in BROKERS}
    with found[71].running(), found[72].running(), found[73].running():
        yield found
        for broker in found.values():
            assert broker.stop() == 0
            assert "Traceback" not in broker.said.read_text()


@pytest.fixture
def topic(voters: LocalCluster, brokers: dict[int, BrokerProcess], run: Run) -> str:
    """A topic with a replica of each partition on each broker, and another leader for each."""
    name = f"replicated-{next(names)}"
    created = run(
        "topics", "create", name, "--replica-assignment", "71:72:73,72:73:71,73:71:72",
        "--config", "min.insync.replicas=2", "--bootstrap-server", addresses(voters),
    )  # fmt: skip
    assert created.code == 0, created
    return name


def servers(brokers: dict[int, BrokerProcess]) -> str:
    return ",".join(broker.servers for broker in brokers.values())


class Acknowledgements:
    """The records that a producer was acknowledged, by partition and offset."""

    def __init__(self) -> None:
        self.values: dict[tuple[int, int], bytes] = {}
        self.errors: list[Any] = []

    def delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.values[message.partition(), message.offset()] = message.value()


def produce(
    brokers: dict[int, BrokerProcess], topic: str, count: int, acknowledged: Acknowledgements, tag: str
) -> None:
    """Send so many records with acks=all, and wait for the answers."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers(brokers), "acks": "all", "enable.idempotence": True, "linger.ms": 2,
            "batch.num.messages": 100, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 200,
            "message.timeout.ms": 60_000, "topic.metadata.propagation.max.ms": 1_000,
        }
    )  # fmt: skip
    for index in range(count):
        producer.produce(
            topic, f"{tag}-{index}".encode(), partition=index % PARTITIONS, on_delivery=acknowledged.delivered
        )
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def read_back(brokers: dict[int, BrokerProcess], topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """At least so many records, by partition and offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers(brokers), "group.id": "reads", "enable.auto.commit": False,
         "reconnect.backoff.max.ms": 200}
    )  # fmt: skip
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    found[message.partition(), message.offset()] = message.value()
    finally:
        consumer.close()
    return found


def batches(log: Path) -> dict[int, bytes]:
    """The batches of a partition's segments, by base offset."""
    found = {}
    for segment in sorted(log.glob("*.log")):
        data = segment.read_bytes()
        for at, header in read_headers(data):
            found[header.base_offset] = data[at : at + header.size_bytes]
    return found


def logs_of(brokers: dict[int, BrokerProcess], topic: str, index: int) -> list[dict[int, bytes]]:
    return [batches(broker.partitions / f"{topic}-{index}") for broker in brokers.values()]


def await_in_sync(run: Run, voters: LocalCluster, topic: str, count: int = len(BROKERS)) -> None:
    """Wait until all replicas of a topic are in sync."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        (shown,) = run("topics", "describe", topic, "--bootstrap-server", addresses(voters), "--output", "json").json()
        if all(len(partition["Isr"]) == count for partition in shown["Partitions"]):
            return
        assert time.monotonic() < deadline, shown
        time.sleep(ASKED_EVERY_SECONDS)


def leader_of(run: Run, voters: LocalCluster, topic: str, index: int) -> int:
    """Whoever leads a partition now: on a busy machine a broker may have been fenced."""
    (shown,) = run("topics", "describe", topic, "--bootstrap-server", addresses(voters), "--output", "json").json()
    leader: int = shown["Partitions"][index]["Leader"]
    return leader


def test_what_is_acknowledged_is_the_same_bytes_on_every_broker(
    voters: LocalCluster, brokers: dict[int, BrokerProcess], topic: str, run: Run
) -> None:
    acknowledged = Acknowledgements()
    produce(brokers, topic, RECORDS, acknowledged, "first")
    assert not acknowledged.errors
    assert len(acknowledged.values) == RECORDS
    await_in_sync(run, voters, topic)  # on a busy machine a broker may have been fenced, and has less for a while
    for index in range(PARTITIONS):
        first, *others = logs_of(brokers, topic, index)
        assert sum(1 for partition, _ in acknowledged.values if partition == index) == RECORDS // PARTITIONS
        assert first
        assert all(other == first for other in others)


def test_bytes_that_change_under_a_leader_cost_nothing_and_the_next_start_copies_them_anew(
    brokers: dict[int, BrokerProcess], topic: str, voters: LocalCluster, run: Run
) -> None:
    """DB-88."""
    acknowledged = Acknowledgements()
    produce(brokers, topic, RECORDS, acknowledged, "before")
    leader = brokers[leader_of(run, voters, topic, 1)]
    (segment,) = (leader.partitions / f"{topic}-1").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(16)
        file.write(b"\7")  # another magic
    assert read_back(brokers, topic, RECORDS) == acknowledged.values
    produce(brokers, topic, RECORDS, acknowledged, "after")
    assert not acknowledged.errors
    assert leader.stop() == 0
    leader.start()
    await_in_sync(run, voters, topic)
    first, *others = logs_of(brokers, topic, 1)
    assert all(other == first for other in others)
    assert len(list(leader.partitions.glob("*-stray"))) == 1
    assert read_back(brokers, topic, 2 * RECORDS) == acknowledged.values


def test_nothing_that_was_acknowledged_is_lost_when_the_leading_broker_is_killed(
    brokers: dict[int, BrokerProcess], topic: str, voters: LocalCluster, run: Run
) -> None:
    acknowledged = Acknowledgements()
    produce(brokers, topic, RECORDS, acknowledged, "before")
    brokers[71].kill()
    produce(brokers, topic, RECORDS, acknowledged, "while it is down")
    brokers[71].start()
    await_in_sync(run, voters, topic)
    produce(brokers, topic, RECORDS, acknowledged, "after")
    assert not acknowledged.errors
    found = read_back(brokers, topic, 3 * RECORDS)
    assert {place: found.get(place) for place in acknowledged.values} == acknowledged.values
    for index in range(PARTITIONS):
        first, *others = logs_of(brokers, topic, index)
        assert all(other == first for other in others)


def test_nothing_is_lost_when_all_shut_down_and_the_last_one_gets_an_empty_disk_for_its_logs(
    brokers: dict[int, BrokerProcess], topic: str, voters: LocalCluster, run: Run
) -> None:
    """By how it was shut down it may lead; it has nothing, and if it led the others would cut what they have."""
    acknowledged = Acknowledgements()
    produce(brokers, topic, RECORDS, acknowledged, "before")
    for number in (72, 73, 71):
        assert brokers[number].stop() == 0
    shutil.rmtree(brokers[71].partitions)
    for number in (71, 72, 73):
        brokers[number].start()
    await_in_sync(run, voters, topic)
    assert not acknowledged.errors
    assert read_back(brokers, topic, RECORDS) == acknowledged.values
