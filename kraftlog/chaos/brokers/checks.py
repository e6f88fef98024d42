"""What must hold of brokers after all faults have ended."""

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
"""In the log of a broker."""


async def until_in_sync(cluster: ClusterWithBrokers) -> None:
    """Wait until every replica of every partition is in sync, and none moves. Raises ApiError, TimeoutError."""
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
    """Which brokers say within this time that they were fenced. Nothing else is wrong with them."""
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
    """The files of the replicas of each partition have the same bytes, and in these each producer's sequence holds.

    The brokers do not run. With `is_retained` each replica has deleted its oldest segments for itself: what all of them
    have is compared.
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
    """What is wrong in a partition: within an epoch of a producer, each batch goes on where the one before ended."""
    following: dict[tuple[int, int], int] = {}
    wrong = []
    for batch in read_batches(batches):
        if batch.producer_id < 0:
            continue  # it is not idempotent
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
    """The bytes of each replica from the highest offset at which one of them starts."""
    batches = {broker_id: list(read_batches(content)) for broker_id, content in found.items()}
    start = max((of[0].base_offset for of in batches.values() if of), default=0)
    return {
        broker_id: b"".join(bytes(batch.data) for batch in of if batch.base_offset >= start)
        for broker_id, of in batches.items()
    }


def _batches(directory: Path) -> bytes:
    """A replica's bytes. Its segments may begin elsewhere than another's."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
