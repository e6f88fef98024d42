"""What clients do to a running broker costs only their own connections: the next client is served as before."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import confluent_kafka
import pytest

from kraftbase.errors import ErrorCode
from kraftbase.uuids import uuid_from_text
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.record_batch import Compression
from kraftlog.local.cluster import LocalCluster
from tests.effort import all_cases
from tests.kraftlog.broker.malformed_batches import with_body
from tests.kraftlog.command_line import Run
from tests.kraftlog.kafka.test_codecs import raw_snappy, zstd_with_window
from tests.kraftlog.kafka.test_record_scan import record
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses
from tests.process.hostile_frames import HostileFrames

pytestmark = pytest.mark.process

FRAMES: Final = 10_000 if all_cases() else 2_000
SEED: Final = 18
AT_ONCE: Final = 16
CONNECTIONS_MAX: Final = 2_100
MIB: Final = 1024 * 1024
GROWTH_BYTES_MAX: Final = 64 * MIB
KILLING: Final = b"\xff" * 8
"""A length after which a connection is closed, also if the frame before takes some of it."""

FETCH: Final = b"\x00\x01"

RECORDS: Final = [b"kept-%d" % number for number in range(200)]
LOG_LINES_MAX: Final = 60
LOG_BYTES_MAX: Final = 64 * 1024
ASK_SECONDS: Final = 2.0
"""The client asks for the leader once in a call, and does not hear of one that comes later."""

NO_LEADER: Final = (
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
)
names = itertools.count()


@pytest.fixture(scope="module")
def broker(voter: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that must live through all of this."""
    directory = tmp_path_factory.mktemp("hostile") / "broker"
    options = ("--config", f"max.connections.per.ip={CONNECTIONS_MAX}")
    with BrokerProcess(addresses(voter), 50, directory, *options).running() as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.said.read_text()


@pytest.fixture
def kept(broker: BrokerProcess, voter: LocalCluster, run: Run) -> Iterator[str]:
    """A topic with records. They are there at the end as they were, and the broker serves, and holds no more files."""
    name = f"kept-{next(names)}"
    assert run("topics", "create", name, "--partitions", 1, "--bootstrap-server", addresses(voter)).code == 0
    produce(broker, name)
    assert consume(broker, name, len(RECORDS)) == RECORDS
    files, said = broker.open_files(), broker.said.stat().st_size
    yield name
    assert consume(broker, name, len(RECORDS)) == RECORDS
    produce(broker, name)
    assert consume(broker, name, 2 * len(RECORDS)) == RECORDS * 2
    until(lambda: broker.open_files() <= files + 10)  # connections that wait for room show their ends one by one
    assert broker.said.stat().st_size - said <= LOG_BYTES_MAX
    assert len(broker.said.read_text().splitlines()) <= LOG_LINES_MAX


def produce(broker: BrokerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.servers, "linger.ms": 5, "enable.idempotence": True}
    )
    failed: list[object] = []
    for value in RECORDS:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert failed == []


def consume(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    """All that is in it; there are so many."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        partition = confluent_kafka.TopicPartition(topic, 0, 0)
        assert watermarks(consumer, partition) == (0, count)
        consumer.assign([partition])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), WAIT_SECONDS)
            assert messages, f"{len(found)} of {count} came"
            found += [message.value() for message in messages if message.error() is None]
        return found
    finally:
        consumer.close()


def watermarks(consumer: confluent_kafka.Consumer, partition: confluent_kafka.TopicPartition) -> tuple[int, int]:
    """Those of the leader. Sessions are short here: on a busy machine a partition has no leader for a moment."""
    found: list[tuple[int, int]] = []

    def has_leader() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, ASK_SECONDS))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in NO_LEADER:
                raise
        return bool(found)

    until(has_leader)
    return found[0]


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def read_to_end(reader: asyncio.StreamReader) -> int:
    """Read until the broker has closed the connection, however it did; how many bytes came."""
    byte_count = 0
    with contextlib.suppress(OSError):
        while data := await reader.read(MIB):
            byte_count += len(data)
    return byte_count


# --- frames -----------------------------------------------------------------------------------------------------------


def test_thousands_of_hostile_frames(broker: BrokerProcess, kept: str, voter: LocalCluster, run: Run) -> None:
    at = ("--bootstrap-server", addresses(voter))
    assert run("topics", "create", "target", "--partitions", 1, *at).code == 0
    (target,) = run("topics", "describe", "target", *at, "--output", "json").json()
    hostile = HostileFrames(SEED, "target", uuid_from_text(target["TopicId"]).bytes)
    frames = hostile.frames(FRAMES)
    before = broker.resident_bytes()

    answered = 0

    async def connection() -> None:
        nonlocal answered
        for frame in frames:
            reader, writer = await asyncio.open_connection(broker.endpoint.host, broker.endpoint.port)
            with contextlib.suppress(OSError):
                may_wait = frame[4:6] == FETCH
                writer.write(frame + KILLING if may_wait else frame)
                writer.write_eof()
                byte_count = await read_to_end(reader)
                answered += byte_count > 0
            writer.transport.abort()

    async def attack() -> None:
        await asyncio.gather(*(connection() for _ in range(AT_ONCE)))

    asyncio.run(asyncio.wait_for(attack(), WAIT_SECONDS))
    assert FRAMES / 4 < answered < FRAMES
    assert "a request failed" not in broker.said.read_text()
    assert broker.resident_bytes() - before <= GROWTH_BYTES_MAX
    assert consume(broker, "target", 0) == []
    (log,) = (broker.partitions / "target-0").glob("*.log")
    assert log.stat().st_size == 0


def test_requests_that_are_never_whole_are_not_held_against_others(broker: BrokerProcess, kept: str) -> None:
    """Each says that it has 100 MB, and sends some bytes."""
    before = broker.resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            half = stack.enter_context(socket.create_connection(broker.address))
            half.sendall(struct.pack(">ihhi", 100 * MIB, 0, 9, 1) + b"x" * 100_000)
        assert consume(broker, kept, len(RECORDS)) == RECORDS
        assert broker.resident_bytes() - before <= 200 * 2 * MIB


SENDERS: Final = 8 if all_cases() else 4
INFLATED: Final = {
    "gzip": (Compression.GZIP, 66 * MIB, gzip.compress, 40 * MIB),
    "zstd with its largest window": (Compression.ZSTD, 130 * MIB, partial(zstd_with_window, window_log=27), 160 * MIB),
    "one block of snappy": (Compression.SNAPPY, 20 * MIB, raw_snappy, 60 * MIB),
}
"""The codec of a batch, the bytes of its only record, and by how much the broker's memory may grow."""


@pytest.mark.parametrize("name", INFLATED)
def test_batches_that_inflate_to_much_take_little_memory_however_many_clients_send_them(
    broker: BrokerProcess, kept: str, voter: LocalCluster, run: Run, name: str
) -> None:
    at = ("--bootstrap-server", addresses(voter))
    assert run("topics", "create", "inflated", "--partitions", 1, *at).code == 0
    codec, size_bytes, encode, growth_bytes_max = INFLATED[name]
    data = with_body(encode(record(b"\0", 0, 0, -1, size_bytes, bytes(size_bytes), 0)), 1, codec)
    partition = PartitionProduceData(index=0, records=data)
    topics = (TopicProduceData(name="inflated", partition_data=(partition,)),)
    asked = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics)
    before = broker.resident_bytes()
    broker.forget_peak()

    async def send() -> ErrorCode:
        """What it is answered once the broker knows the topic, which was made a moment ago."""
        while (code := await send_once()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await asyncio.sleep(0.05)
        return code

    async def send_once() -> ErrorCode:
        reader, writer = await asyncio.open_connection(broker.endpoint.host, broker.endpoint.port)
        client = ClientConnection("inflates")
        writer.write(b"".join(client.send(asked, 12)))
        while (answer := client.next_event()) is None:
            client.receive_data(await reader.read(MIB))
        writer.close()
        assert isinstance(answer.body, ProduceResponse)
        return ErrorCode(answer.body.responses[0].partition_responses[0].error_code)

    async def attack() -> list[ErrorCode]:
        return await asyncio.gather(*(send() for _ in range(SENDERS)))

    assert asyncio.run(asyncio.wait_for(attack(), 4 * WAIT_SECONDS)) == [ErrorCode.NONE] * SENDERS
    assert broker.peak_bytes() - before <= growth_bytes_max
    assert run("topics", "delete", "inflated", *at).code == 0


# --- connections ------------------------------------------------------------------------------------------------------


def test_two_thousand_connections_that_come_and_go(broker: BrokerProcess, kept: str) -> None:
    before = broker.resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(2_000):
            stack.enter_context(socket.create_connection(broker.address))
        assert consume(broker, kept, len(RECORDS)) == RECORDS
    assert broker.resident_bytes() - before <= GROWTH_BYTES_MAX


def test_ten_thousand_requests_whose_answers_are_not_read(broker: BrokerProcess, kept: str) -> None:
    """Requests that are small, with answers that are large: the client is not read on before it has taken some."""
    before = broker.resident_bytes()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    asked = FetchRequest(max_wait_ms=0, max_bytes=MIB, topics=(FetchTopic(topic=kept, partitions=(partition,)),))
    client = ClientConnection("greedy")
    data = b"".join(piece for _ in range(10_000) for piece in client.send(asked, 12))
    with socket.create_connection(broker.address) as greedy:
        greedy.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < len(data):
                sent += greedy.send(data[sent:])
        assert consume(broker, kept, len(RECORDS)) == RECORDS
        assert broker.resident_bytes() - before <= GROWTH_BYTES_MAX
        greedy.setblocking(True)
        answers, writing = 0, threading.Thread(target=greedy.sendall, args=(data[sent:],))
        writing.start()
        while answers < 10_000:
            client.receive_data(greedy.recv(MIB))
            while client.next_event() is not None:
                answers += 1
        writing.join()


def test_more_connections_than_one_address_may_have(broker: BrokerProcess, kept: str) -> None:
    """One more is closed at once; when others have gone there is room again."""
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(socket.create_connection(broker.address))
        refused = stack.enter_context(socket.create_connection(broker.address))
        with contextlib.suppress(ConnectionError):
            assert refused.recv(1) == b""
