"""How fast Kafka's bytes are read and written, and a Kafka's metadata is imported, without a cluster.

Metadata records are in the proportions of a small real cluster: mostly partitions and their changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftlog.bench.figures import write_json
from kraftlog.bench.kafka_import import import_targets
from kraftlog.bench.machine import machine
from kraftlog.bench.targets import Target, targets_table
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import encode_batch, read_batches
from kraftlog.kafka.record_values import decode_metadata_record, encode_metadata_record
from kraftlog.kafka.records import Record

ROUNDS: Final = 7
"""The best of this many rounds counts: a disturbance of one round is not the codec's."""

ROUND_SECONDS: Final = 0.1
RECORDS_PER_BATCH: Final = 100
PRODUCE_BYTES: Final = 1024 * 1024
TOPICS: Final = 1_000
PARTITIONS: Final = 6
REPLICAS: Final = (1, 2, 3)
ID: Final = bytes(range(16))

_PARTITION: Final = PartitionRecord(
    partition_id=3, topic_id=ID, replicas=REPLICAS, isr=REPLICAS, leader=1, leader_epoch=4, partition_epoch=7,
    directories=(ID, ID, ID),
)  # fmt: skip

MIX: Final[list[tuple[Message, int]]] = [
    *[(PartitionChangeRecord(partition_id=3, topic_id=ID, isr=(1, 2), leader=2), 2)] * 9,
    *[(_PARTITION, 2)] * 7,
    *[(TopicRecord(name="measurements-of-the-day", topic_id=ID), 0)] * 3,
    *[(ConfigRecord(resource_type=2, resource_name="measurements", name="retention.ms", value="86400000"), 0)] * 3,
    *[(NoOpRecord(), 0)] * 2,
    (FeatureLevelRecord(name="metadata.version", feature_level=30), 0),
]
"""Records, each with its version."""


async def run(records: int, partitions: int, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure, print and write the result; return True even if a target is missed, since the machine may be slow."""
    with console.status("reading and writing Kafka's bytes"):
        targets = [*_partition_record(), *_metadata_log(records), *_requests()]
    with console.status(f"importing a Kafka's metadata with {partitions:,} partitions"):
        targets += import_targets(partitions, directory)
    write_json(
        json_path,
        {
            "records": records,
            "partitions": partitions,
            "targets": {target.name: target.as_json() for target in targets},
            "machine": await machine(directory),
        },
    )
    console.print(targets_table(targets))
    return True


def _partition_record() -> Iterator[Target]:
    data = encode(_PARTITION, 2)
    yield Target("PartitionRecord read", 1e6 * _seconds(lambda: decode(PartitionRecord, 2, data)), 9, "us")
    yield Target("PartitionRecord written", 1e6 * _seconds(lambda: encode(_PARTITION, 2)), 4.5, "us")


def _metadata_log(count: int) -> Iterator[Target]:
    values = list(islice(cycle(MIX), count))
    data = [encode_metadata_record(value, version) for value, version in values]
    log = b"".join(_batches(data))

    def read_log() -> None:
        for batch in read_batches(log):
            batch.check_crc()
            for record in batch.records():
                decode_metadata_record(record.value or b"")

    def write_log() -> None:
        b"".join(_batches([encode_metadata_record(value, version) for value, version in values]))

    yield Target("metadata log read", count / _seconds(read_log), 100_000, "records/s", is_minimum=True, decimals=0)
    yield Target("metadata log written", count / _seconds(write_log), 50_000, "records/s", is_minimum=True, decimals=0)


def _batches(values: list[bytes]) -> Iterator[bytes]:
    for start in range(0, len(values), RECORDS_PER_BATCH):
        records = [
            Record(start + delta, 0, None, value)
            for delta, value in enumerate(values[start : start + RECORDS_PER_BATCH])
        ]
        yield encode_batch(records, base_offset=start, partition_leader_epoch=1)


def _requests() -> Iterator[Target]:
    batches = bytes(PRODUCE_BYTES)
    topic = TopicProduceData(topic_id=ID, partition_data=(PartitionProduceData(index=3, records=batches),))
    produce = encode(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,)), 13)
    yield Target("Produce of 1 MB read", 1e6 * _seconds(lambda: decode(ProduceRequest, 13, produce)), 10, "us")
    response = _metadata_response()
    yield Target("Metadata of 6,000 partitions written", 1e3 * _seconds(lambda: encode(response, 13)), 20, "ms")


def _metadata_response() -> MetadataResponse:
    brokers = tuple(MetadataResponseBroker(node_id=number, host="localhost", port=9092) for number in REPLICAS)
    topics = tuple(
        MetadataResponseTopic(
            name=f"topic-{number}",
            topic_id=ID,
            partitions=tuple(
                MetadataResponsePartition(
                    partition_index=partition, leader_id=1, leader_epoch=5, replica_nodes=REPLICAS, isr_nodes=REPLICAS
                )
                for partition in range(PARTITIONS)
            ),
        )
        for number in range(TOPICS)
    )
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def _seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of a call in the best round."""
    call()
    calls = 1
    while (taken := _round(call, calls)) < ROUND_SECONDS:
        calls = max(2 * calls, int(calls * ROUND_SECONDS / taken))
    return min(taken, *(_round(call, calls) for _ in range(ROUNDS - 1))) / calls


def _round(call: Callable[[], Any], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started
