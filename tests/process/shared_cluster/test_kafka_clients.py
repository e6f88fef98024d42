"""Kafka's own clients, unchanged, with our brokers: what they produce is what they consume."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Final, NamedTuple

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from tests.kraftlog.command_line import Run

pytestmark = pytest.mark.process

COUNT: Final = 500
TIMEOUT_SECONDS: Final = 60.0
PARTITIONS: Final = 3
names = itertools.count()


class Sent(NamedTuple):
    """A record as a client gives and gets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def records() -> list[Sent]:
    """With and without a key, a value, headers; each another time."""
    return [
        Sent(
            None if number % 3 == 0 else b"key-%d" % number,
            None if number % 7 == 0 and number % 3 else b"value-%d" % number * (number % 50),
            (("kind", b"test"), ("empty", b""), ("kind", b"again")) if number % 2 else (),
            1_700_000_000_000 + number,
        )
        for number in range(COUNT)
    ]


@pytest.fixture
def topic(ask: Run) -> str:
    """A topic of the test's own."""
    name = f"clients-{next(names)}"
    created = ask("topics", "create", name, "--partitions", PARTITIONS)
    assert created.code == 0, created
    return name


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def produce_confluent(servers: str, topic: str, sent: list[Sent], **settings: Any) -> list[int]:
    """Their offsets."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 5, **settings})
    offsets: dict[int, int] = {}

    def delivered(number: int, error: Any, message: Any) -> None:
        assert error is None, error
        offsets[number] = message.offset()

    for number, record in enumerate(sent):
        producer.produce(
            topic, key=record.key, value=record.value, headers=list(record.headers), partition=1,
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, message, number=number: delivered(number, error, message),
        )  # fmt: skip
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return [offsets[number] for number in range(len(sent))]


def wait_until_led(servers: str, topic: str) -> None:
    """Until the leader of the partition has heard that it leads. Before, it refuses records, and with acks=0 they are
    lost: the producer knows only that the connection was closed (DB-64).
    """
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while True:
            try:
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 1), TIMEOUT_SECONDS)
                return
            except confluent_kafka.KafkaException:
                if time.monotonic() > deadline:
                    raise
    finally:
        consumer.close()


def consume_confluent(servers: str, topic: str, count: int, **settings: Any) -> list[Sent]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False, **settings}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 1, 0)])
    found: list[Sent] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), TIMEOUT_SECONDS)
            assert messages, f"{len(found)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                found.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka(kafka_servers: str, topic: str, compression: str, is_idempotent: bool) -> None:
    sent = records()
    settings = {"compression.type": compression, "enable.idempotence": is_idempotent}
    assert produce_confluent(kafka_servers, topic, sent, **settings) == list(range(COUNT))
    assert consume_confluent(kafka_servers, topic, COUNT) == sent


@pytest.mark.parametrize("acks", ["0", "1"])
def test_confluent_kafka_with_fewer_acknowledgements(kafka_servers: str, topic: str, acks: str) -> None:
    sent = records()
    wait_until_led(kafka_servers, topic)
    produce_confluent(kafka_servers, topic, sent, acks=acks)
    assert consume_confluent(kafka_servers, topic, COUNT) == sent


def test_a_consumer_finds_offsets_by_time_and_the_ends(kafka_servers: str, topic: str) -> None:
    sent = records()
    produce_confluent(kafka_servers, topic, sent)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka_servers, "group.id": "unused"})
    try:
        wanted = confluent_kafka.TopicPartition(topic, 1, sent[123].timestamp_ms)
        (found,) = consumer.offsets_for_times([wanted], timeout=TIMEOUT_SECONDS)
        assert (found.error, found.offset) == (None, 123)
        ends = consumer.get_watermark_offsets(wanted, timeout=TIMEOUT_SECONDS)
        assert ends == (0, COUNT)
    finally:
        consumer.close()


def test_a_client_lists_all_topics(kafka_servers: str, topic: str) -> None:
    """Which librdkafka asks for with bytes too many."""
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka_servers})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    listed = client.list_topics(timeout=TIMEOUT_SECONDS).topics
    while topic not in listed and time.monotonic() < deadline:  # a broker hears of it a moment later
        listed = client.list_topics(timeout=TIMEOUT_SECONDS).topics
    assert sorted(listed[topic].partitions) == list(range(PARTITIONS))


# --- kafka-python -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_kafka_python(kafka_servers: str, topic: str, compression: str | None, is_idempotent: bool) -> None:
    sent = records()
    producer = kafka.KafkaProducer(
        bootstrap_servers=kafka_servers, acks="all", compression_type=compression, enable_idempotence=is_idempotent,
        linger_ms=5,
    )  # fmt: skip
    futures = [
        producer.send(
            topic, key=record.key, value=record.value, headers=list(record.headers), partition=1,
            timestamp_ms=record.timestamp_ms,
        )
        for record in sent
    ]  # fmt: skip
    assert [future.get(TIMEOUT_SECONDS).offset for future in futures] == list(range(COUNT))
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=kafka_servers, group_id=None, enable_auto_commit=False)
    try:
        partition = kafka.TopicPartition(topic, 1)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[Sent] = []
        while len(found) < COUNT:
            polled = consumer.poll(TIMEOUT_SECONDS * 1_000)
            assert polled, f"{len(found)} of {COUNT} came"
            found += [
                Sent(one.key, one.value, tuple((name, value) for name, value in one.headers), one.timestamp)
                for one in polled[partition]
            ]
        assert found == sent
        assert consumer.end_offsets([partition]) == {partition: COUNT}
    finally:
        consumer.close()


# --- aiokafka ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_aiokafka(kafka_servers: str, topic: str, is_idempotent: bool) -> None:
    sent = records()

    async def produce() -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=kafka_servers, acks="all", enable_idempotence=is_idempotent
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic, key=record.key, value=record.value, headers=list(record.headers), partition=1,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in sent
            ]  # fmt: skip
            return [(await future).offset for future in futures]
        finally:
            await producer.stop()

    async def consume() -> list[Sent]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka_servers, enable_auto_commit=False)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 1)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = [await consumer.getone() for _ in sent]
            assert await consumer.end_offsets([partition]) == {partition: len(sent)}
            return [Sent(one.key, one.value, tuple(one.headers), one.timestamp) for one in found]
        finally:
            await consumer.stop()

    async def both() -> None:
        assert await produce() == list(range(len(sent)))
        assert await consume() == sent

    asyncio.run(asyncio.wait_for(both(), TIMEOUT_SECONDS))


def wait_until_empty(servers: str, topic: str) -> None:
    """Return when the leaders of all partitions have logs without records."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        for partition in range(PARTITIONS):
            while _ends(consumer, confluent_kafka.TopicPartition(topic, partition)) != (0, 0):
                assert time.monotonic() < deadline
    finally:
        consumer.close()


def _ends(consumer: confluent_kafka.Consumer, partition: confluent_kafka.TopicPartition) -> tuple[int, int] | None:
    try:
        ends: tuple[int, int] | None = consumer.get_watermark_offsets(partition, timeout=1.0)
    except confluent_kafka.KafkaException:  # it has no leader yet
        return None
    return ends


# --- with a group.id, and transactions (DB-110) -----------------------------------------------------------------------


def test_confluent_kafka_reads_with_a_group_and_without_an_offset(kafka_servers: str, topic: str) -> None:
    """librdkafka demands a group.id, and looks for the group's committed offset."""
    produce_confluent(kafka_servers, topic, records())
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka_servers, "group.id": "mine", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 1)])
        messages = consumer.consume(10, TIMEOUT_SECONDS)
        assert [(message.error(), message.offset()) for message in messages] == [(None, at) for at in range(10)]
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            consumer.commit(asynchronous=False)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError._UNSUPPORTED_FEATURE
    finally:
        consumer.close()


def test_kafka_python_reads_with_a_group_and_without_an_offset(kafka_servers: str, topic: str) -> None:
    produce_confluent(kafka_servers, topic, records())
    consumer = kafka.KafkaConsumer(bootstrap_servers=kafka_servers, group_id="mine", auto_offset_reset="earliest")
    try:
        partition = kafka.TopicPartition(topic, 1)
        consumer.assign([partition])
        found = consumer.poll(TIMEOUT_SECONDS * 1_000)[partition]
        assert [one.offset for one in found] == list(range(len(found)))
        assert found
    finally:
        consumer.close(autocommit=False)


def test_aiokafka_reads_with_a_group_and_without_an_offset(kafka_servers: str, topic: str) -> None:
    produce_confluent(kafka_servers, topic, records())

    async def read() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=kafka_servers, group_id="mine", auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 1)
            consumer.assign([partition])
            assert await consumer.committed(partition) is None
            return (await consumer.getone()).offset
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(read(), TIMEOUT_SECONDS)) == 0


def test_no_client_tries_a_transaction_again(kafka_servers: str) -> None:
    confluent = confluent_kafka.Producer({"bootstrap.servers": kafka_servers, "transactional.id": "mine"})
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        confluent.init_transactions(TIMEOUT_SECONDS)
    assert refused.value.args[0].fatal()
    python = kafka.KafkaProducer(bootstrap_servers=kafka_servers, transactional_id="mine")
    with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
        python.init_transactions()
    python.close()

    async def begin() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_servers, transactional_id="mine")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.TransactionalIdAuthorizationFailed):
        asyncio.run(asyncio.wait_for(begin(), TIMEOUT_SECONDS))


# --- one client's records, another's consumer -------------------------------------------------------------------------


def test_a_topic_that_is_deleted_and_made_again_is_empty(ask: Run, kafka_servers: str, topic: str) -> None:
    sent = records()
    produce_confluent(kafka_servers, topic, sent)
    assert ask("topics", "delete", topic).code == 0
    assert ask("topics", "create", topic, "--partitions", PARTITIONS).code == 0
    wait_until_empty(kafka_servers, topic)  # until a leader knows, what is written by name is the old topic's
    fewer = sent[:10]
    assert produce_confluent(kafka_servers, topic, fewer) == list(range(10))
    assert consume_confluent(kafka_servers, topic, 10) == fewer
