"""Checks of brokers after all faults have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.chaos.brokers.cluster import ClusterWithBrokers
from kraftlog.chaos.brokers.ledger import At, Ledger
from kraftlog.kafka.record_batch import read_batches
from kraftlog.local.brokers import LocalBrokers
from statemachine.query.descriptions import PartitionDescription

SETTLE_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.2
FENCED: Final = b" was fenced:"
"""A broker's log line about its fencing has this text."""


async def until_in_sync(cluster: ClusterWithBrokers) -> None:
    """Wait until every replica is in sync, and no partition is being reassigned. Raises ApiError, TimeoutError."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            found = [of for partitions in (await cluster.partitions()).values() for of in partitions]
            if all(
                set(of.isr) == set(of.replicas) and of.leader >= 0 and not (of.adding_replicas or of.removing_replicas)
                for of in found
            ):
                return
            await asyncio.sleep(POLL_SECONDS)


async def until_all_produce(ledger: Ledger, partitions: Sequence[At]) -> None:
    """Wait until every partition has acknowledged another record. Raises TimeoutError."""
    before = ledger.offsets_to_find()
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            now = ledger.offsets_to_find()
            if all(now.get(at, 0) > before.get(at, 0) for at in partitions):
                return
            await asyncio.sleep(POLL_SECONDS)


async def none_is_fenced(cluster: ClusterWithBrokers, seconds: float) -> list[str]:
    """Return a violation for each broker whose log says within this time that it was fenced, although it is healthy."""
    before = {broker_id: cluster.log_path(broker_id).stat().st_size for broker_id in cluster.broker_ids}
    await asyncio.sleep(seconds)
    return [
        f"broker {broker_id} was fenced in peace, while a client sent large requests"
        for broker_id, size in before.items()
        if FENCED in cluster.log_path(broker_id).read_bytes()[size:]
    ]


def replicas_agree(
    brokers: LocalBrokers, described: Mapping[str, Sequence[PartitionDescription]], *, is_retained: bool = False
) -> list[str]:
    """Check that the replicas of each partition have the same bytes, with correct sequences of each producer.

    The brokers must not run. With `is_retained` each replica has deleted old segments on its own, so only the offsets
    that all replicas have are compared. Return the violations.
    """
    wrong = []
    for topic, partitions in described.items():
        for of in partitions:
            name = f"{topic}-{of.partition_id}"
            batches = {
                broker_id: _batches(brokers.data_path(broker_id) / PARTITIONS_NAME / name) for broker_id in of.replicas
            }
            if is_retained:
                batches = _from_common_start(batches)
            if len(set(batches.values())) > 1:
                sizes = {broker_id: len(content) for broker_id, content in batches.items()}
                wrong.append(f"the replicas of {name} differ; their bytes: {sizes}")
            wrong += [f"{name}: {story}" for story in sequences_hold(batches[of.replicas[0]])]
    return wrong


def sequences_hold(batches: bytes) -> list[str]:
    """Return the violations in a partition: a batch must continue its producer's previous sequence."""
    following: dict[tuple[int, int], int] = {}
    wrong = []
    for batch in read_batches(batches):
        if batch.producer_id < 0:
            continue  # no idempotent producer
        producer = (batch.producer_id, batch.producer_epoch)
        expected = following.get(producer, batch.base_sequence)
        if batch.base_sequence != expected:
            wrong.append(
                f"at {batch.base_offset} producer {batch.producer_id} has sequence {batch.base_sequence} in epoch"
                f" {batch.producer_epoch}, not {expected}"
            )
        following[producer] = batch.base_sequence + batch.end_offset - batch.base_offset
    return wrong


def _from_common_start(found: Mapping[int, bytes]) -> dict[int, bytes]:
    """Return the bytes of each replica from the highest log start of all replicas on."""
    batches = {broker_id: list(read_batches(content)) for broker_id, content in found.items()}
    start = max((of[0].base_offset for of in batches.values() if of), default=0)
    return {
        broker_id: b"".join(bytes(batch.data) for batch in of if batch.base_offset >= start)
        for broker_id, of in batches.items()
    }


def _batches(directory: Path) -> bytes:
    """Return the bytes of all of a replica's segments. Segments of other replicas may begin at other offsets."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
