"""What a broker holds for all its clients is bounded, also if many consumers ask for much and read nothing."""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path
from typing import Final

import pytest

from kraftlog.broker.settings import QUEUED_BYTES, STATIC_CONFIGS
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.local.cluster import LocalCluster
from kraftlog.network.limits import Limits
from kraftlog.storage.batch_records import INFLATION_BYTES_MAX
from tests.kraftlog.command_line import Run
from tests.kraftlog.storage.builders import batch
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses
from tests.process.shared_voter.test_large_requests import most_resident_bytes

MIB: Final = 1024 * 1024
ALL_BYTES_MAX: Final = 256 * MIB
BATCHES: Final = 59
CONSUMERS: Final = 30
TOPIC: Final = "greed"
FETCH_VERSION, PRODUCE_VERSION = 12, 9


def test_the_bounds_of_all_connections_add_up_to_256_mib() -> None:
    limits = Limits()
    bounds = {
        "requests in hand": limits.queued_bytes_max,
        "answers that are not taken": limits.unsent_bytes_max,
        "requests with many elements": limits.large_requests_bytes_max,
        "batches that are inflated": INFLATION_BYTES_MAX,
    }
    assert sum(bounds.values()) <= ALL_BYTES_MAX
    shared = {name for name in Limits.__slots__ if name.endswith("_bytes_max") and not name.startswith("connection_")}
    assert shared == {"request_bytes_max", "queued_bytes_max", "unsent_bytes_max", "large_requests_bytes_max"}
    assert limits.request_bytes_max <= limits.queued_bytes_max
    assert int(STATIC_CONFIGS[QUEUED_BYTES].default) == limits.queued_bytes_max


async def ask(address: tuple[str, int], request: ProduceRequest | FetchRequest, version: int) -> asyncio.StreamWriter:
    """Send it over a connection of its own; its answer is not read."""
    _, writer = await asyncio.open_connection(*address, limit=1)
    writer.transport.pause_reading()
    writer.write(b"".join(ClientConnection("greedy").send(request, version)))
    await writer.drain()
    return writer


def fetch(max_wait_ms: int) -> FetchRequest:
    """Everything; it is parked until there is more than there will be."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100 * MIB)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=50 * MIB, max_bytes=50 * MIB,
        topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),),
    )  # fmt: skip


async def pipeline(address: tuple[str, int]) -> asyncio.StreamWriter:
    """Behind a fetch that waits for long, many whose answers wait for its answer."""
    _, writer = await asyncio.open_connection(*address, limit=1)
    writer.transport.pause_reading()
    client = ClientConnection("greedy")
    wanted = FetchPartition(partition=0, fetch_offset=BATCHES, partition_max_bytes=MIB)
    parked = FetchRequest(
        max_wait_ms=600_000, min_bytes=1, max_bytes=MIB, topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),)
    )
    for request in (parked, *[fetch(0)] * CONSUMERS):
        writer.write(b"".join(client.send(request, FETCH_VERSION)))
    await writer.drain()
    return writer


async def produce(address: tuple[str, int], count: int) -> None:
    data = batch(1, value=bytes(900_000), timestamp_ms=int(time.time() * 1_000))
    parts = (PartitionProduceData(index=0, records=data),)
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=(TopicProduceData(name=TOPIC, partition_data=parts),)
    )
    client = ClientConnection("producer")
    reader, writer = await asyncio.open_connection(*address)
    done = 0
    while done < count:
        writer.write(b"".join(client.send(request, PRODUCE_VERSION)))
        (size_bytes,) = struct.unpack(">i", frame := await reader.readexactly(4))
        client.receive_data(frame + await reader.readexactly(size_bytes))
        answer = client.next_event()
        assert answer is not None
        done += not answer.body.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    writer.close()


async def consume(address: tuple[str, int]) -> int:
    """Read everything, with fetches that take what they get; the end offset."""
    client, offset = ClientConnection("consumer"), 0
    reader, writer = await asyncio.open_connection(*address)
    while offset < BATCHES:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * MIB)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, max_bytes=50 * MIB, topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),)
        )
        writer.write(b"".join(client.send(request, FETCH_VERSION)))
        (size_bytes,) = struct.unpack(">i", frame := await reader.readexactly(4))
        client.receive_data(frame + await reader.readexactly(size_bytes))
        answer = client.next_event()
        assert answer is not None and isinstance(answer.body, FetchResponse)
        records = answer.body.responses[0].partitions[0].records
        offset += len(bytes(records or b"")) // 900_000
    writer.close()
    return offset


@pytest.mark.process
@pytest.mark.slow  # its broker has spun for minutes once, on a busy machine: that is to be found out
def test_consumers_that_fetch_much_at_once_and_read_nothing(voter: LocalCluster, tmp_path: Path, run: Run) -> None:
    with BrokerProcess(addresses(voter), 61, tmp_path / "broker").running() as broker:
        created = run(
            "topics", "create", TOPIC, "--replica-assignment", 61, "--config", "flush.before.ack=false",
            "--bootstrap-server", addresses(voter),
        )  # fmt: skip
        assert created.code == 0, created
        deadline = time.monotonic() + WAIT_SECONDS
        while not (broker.partitions / f"{TOPIC}-0").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

        async def greed() -> None:
            await produce(broker.address, BATCHES - 1)  # less than 50 MiB: each fetch waits
            writers = [await ask(broker.address, fetch(60_000), FETCH_VERSION) for _ in range(CONSUMERS)]
            await produce(broker.address, 1)
            more = [await ask(broker.address, fetch(0), FETCH_VERSION) for _ in range(CONSUMERS)]
            assert await consume(broker.address) == BATCHES
            late = await pipeline(broker.address)
            assert await consume(broker.address) == BATCHES
            for writer in (*writers, *more, late):
                writer.transport.abort()

        idle_bytes = broker.resident_bytes()
        Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
        asyncio.run(greed())
        grown_bytes = most_resident_bytes(broker) - idle_bytes
        assert grown_bytes <= ALL_BYTES_MAX, f"{grown_bytes / MIB:.0f} MiB above idle"
        assert broker.stop() == 0
