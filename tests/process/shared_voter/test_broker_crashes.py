"""Whatever ends a broker while producers run: each acknowledged record is there once, at its offset, in order."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from kraftlog.broker.clean_shutdown import FILE_NAME
from kraftlog.local.cluster import LocalCluster
from tests.effort import all_cases
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

PARTITIONS: Final = 3
KILLS: Final = 2
RECORDS_BETWEEN: Final = 2_000 if all_cases() else 500
"""Acknowledged between two of the things that a test does to the broker, and the most that wait in its client."""

names = itertools.count()


@pytest.fixture(scope="module")
def broker(voter: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The one that all tests here end and start again."""
    with BrokerProcess(addresses(voter), 60, tmp_path_factory.mktemp("crashes") / "broker").running() as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.said.read_text()


@pytest.fixture
def topic(voter: LocalCluster, broker: BrokerProcess, run: Run) -> str:
    """A topic of the test's own, on that broker."""
    name = f"crashes-{next(names)}"
    created = run(
        "topics", "create", name, "--replica-assignment", ",".join(["60"] * PARTITIONS),
        "--bootstrap-server", addresses(voter),
    )  # fmt: skip
    assert created.code == 0, created
    until_known(broker, name)
    return name


def until_known(broker: BrokerProcess, topic: str) -> None:
    """Wait until the broker knows a topic: it may be behind after what the test before has done to it.

    A producer gives up what is for a topic that is unknown for a second (`topic.metadata.propagation.max.ms`).
    """
    client = AdminClient({"bootstrap.servers": broker.servers})
    deadline = time.monotonic() + WAIT_SECONDS
    while client.list_topics(topic, WAIT_SECONDS).topics[topic].error is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Load:
    """An idempotent producer that sends to all partitions, with several requests in flight, until it is told to end."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._topic = topic
        self.acknowledged: dict[int, dict[int, int]] = {partition: {} for partition in range(PARTITIONS)}
        """By partition, the offset of each record, by its number."""
        self.failed: list[Any] = []
        self._count = 0
        self._grown = threading.Condition()
        self._is_ending = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.servers, "enable.idempotence": True, "acks": "all", "linger.ms": 1,
                "batch.num.messages": 50, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 120_000, "topic.metadata.propagation.max.ms": 1_000,
                "queue.buffering.max.messages": RECORDS_BETWEEN,
            }
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator[Load]:
        """It sends within the block, and has an answer for each record at its end."""
        self._thread.start()
        try:
            self.more()
            yield self
            self.more()
        finally:
            self._is_ending.set()
            self._thread.join()
        assert self._producer.flush(WAIT_SECONDS) == 0

    def more(self) -> None:
        """Wait until some more are acknowledged, or one has failed."""
        with self._grown:
            wanted = self._count + RECORDS_BETWEEN
            is_done = self._grown.wait_for(lambda: self._count >= wanted or bool(self.failed), WAIT_SECONDS)
            assert is_done, self._count

    def _run(self) -> None:
        for number in itertools.count():
            if self._is_ending.is_set():
                return
            while True:
                try:
                    self._producer.produce(
                        self._topic, b"%d" % number, partition=number % PARTITIONS,
                        on_delivery=lambda error, message, number=number: self._delivered(number, error, message),
                    )  # fmt: skip
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except confluent_kafka.KafkaException as error:  # the client knows that the topic is gone
                    with self._grown:
                        self.failed.append(error.args[0])
                        self._grown.notify_all()
                    return
            self._producer.poll(0)

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition()][number] = message.offset()
        else:
            self.failed.append(error)
        with self._grown:
            self._count += 1
            self._grown.notify_all()


def read(broker: BrokerProcess, topic: str, partition: int) -> dict[int, int]:
    """The offset of each record, by its number: each is there once, and they are in order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[int, int]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while True:
            messages = consumer.consume(1_000, 1.0)
            found += [(int(message.value()), message.offset()) for message in messages if message.error() is None]
            errors = [message.error() for message in messages if message.error() is not None]
            if any(error.code() == confluent_kafka.KafkaError._PARTITION_EOF for error in errors):
                break
            assert all(error.retriable() for error in errors), errors
    finally:
        consumer.close()
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    return dict(found)


def check(broker: BrokerProcess, topic: str, load: Load) -> None:
    """Nothing has failed, so what is there is what was acknowledged."""
    assert load.failed == []
    for partition, acknowledged in load.acknowledged.items():
        assert read(broker, topic, partition) == acknowledged


def test_it_is_killed_many_times(broker: BrokerProcess, topic: str) -> None:
    with Load(broker, topic).running() as load:
        for _ in range(KILLS):
            broker.kill()
            broker.start()
            load.more()
    check(broker, topic, load)


def test_it_is_paused_until_it_is_fenced(broker: BrokerProcess, topic: str, voter: LocalCluster, run: Run) -> None:
    def is_fenced() -> bool:
        described = run("brokers", "describe", "--id", 60, "--bootstrap-server", addresses(voter), "--output", "json")
        return bool(described.json()["Fenced"])

    with Load(broker, topic).running() as load:
        broker.signal(signal.SIGSTOP)
        try:
            while not is_fenced():
                pass
        finally:
            broker.signal(signal.SIGCONT)
        load.more()
    check(broker, topic, load)
    said = broker.said.read_text()
    fenced = said.count("Broker 60 was fenced: the controller got no heartbeat from it for a session,")
    assert 1 <= fenced <= said.count("the event loop did not turn for")  # a busy machine may stop it, too
    assert said.count("Broker 60 is unfenced again.") in (fenced, fenced - 1)


def test_it_is_asked_to_end_under_load(broker: BrokerProcess, topic: str) -> None:
    with Load(broker, topic).running() as load:
        assert broker.stop() == 0
        assert (broker.directory / FILE_NAME).exists()
        assert (broker.partitions / ".kafka_cleanshutdown").exists()
        broker.start()
        load.more()
    check(broker, topic, load)


def test_the_quorum_goes_and_comes_back(broker: BrokerProcess, topic: str, voter: LocalCluster) -> None:
    """It serves on: its clients need no controller."""
    (node_id,) = voter.voter_ids
    with Load(broker, topic).running() as load:
        asyncio.run(voter.kill(node_id))
        try:
            for _ in range(3):
                load.more()
        finally:
            asyncio.run(voter.start())
            asyncio.run(voter.wait_for_leader())
        load.more()
    check(broker, topic, load)


def test_configs_change_under_load(broker: BrokerProcess, topic: str, voter: LocalCluster, run: Run) -> None:
    at = ("--bootstrap-server", addresses(voter))
    of = ("--entity-type", "topics", "--entity-name", topic)
    changes = ("flush.before.ack=false", "max.message.bytes=2000000", "retention.ms=100000000", "flush.before.ack=true")
    with Load(broker, topic).running() as load:
        for change in changes:
            altered = run("configs", "alter", *of, "--add-config", change, *at)
            assert altered.code == 0, altered
            load.more()
    check(broker, topic, load)


def test_its_topic_is_deleted_under_load(broker: BrokerProcess, topic: str, voter: LocalCluster, run: Run) -> None:
    """The rest of that load fails, by name; other topics go on, and the directory is gone in the end."""
    at = ("--bootstrap-server", addresses(voter))
    other = f"{topic}-other"
    assert run("topics", "create", other, "--replica-assignment", ",".join(["60"] * PARTITIONS), *at).code == 0
    with Load(broker, other).running() as load:
        with Load(broker, topic).running() as doomed:
            assert run("topics", "delete", topic, *at).code == 0
        assert {error.code() for error in doomed.failed} <= {
            confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
            confluent_kafka.KafkaError._UNKNOWN_TOPIC,
            confluent_kafka.KafkaError._UNKNOWN_PARTITION,
            confluent_kafka.KafkaError._DESTROY,  # of what was left in a partition that the client has forgotten
        }
        assert doomed.failed
        load.more()
    check(broker, other, load)
    assert not list(broker.partitions.glob(f"{topic}-[0-9]"))
