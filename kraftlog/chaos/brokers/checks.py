"""What must hold of brokers after all faults have ended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.chaos.brokers.cluster import ClusterWithBrokers
from kraftlog.chaos.brokers.ledger import At, Ledger
from kraftlog.local.brokers import LocalBrokers
from statemachine.query.descriptions import PartitionDescription

SETTLE_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.2


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


def replicas_agree(brokers: LocalBrokers, described: Mapping[str, Sequence[PartitionDescription]]) -> list[str]:
    """The files of the replicas of each partition have the same bytes. The brokers do not run."""
    wrong = []
    for topic, partitions in described.items():
        for of in partitions:
            name = f"{topic}-{of.partition_id}"
            found = {
                broker_id: _batches(brokers.data_path(broker_id) / PARTITIONS_NAME / name) for broker_id in of.replicas
            }
            if len(set(found.values())) > 1:
                wrong.append(f"the replicas of {name} differ: {found}")
    return wrong


def _batches(directory: Path) -> tuple[int, str]:
    """How many bytes of batches there are, and their digest. Segments may begin elsewhere on another broker."""
    digest, count = hashlib.sha256(), 0
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        count += len(content)
        digest.update(content)
    return count, digest.hexdigest()[:12]
