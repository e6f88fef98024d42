"""Automatic placement: the two systems draw differently, so only properties of the placed topics are compared."""

from __future__ import annotations

import asyncio

from kraftlog.difftest.comparison import Difference, compare_answers
from kraftlog.difftest.image import Image
from kraftlog.difftest.steps import DeleteTopics, PlaceTopic
from kraftlog.difftest.system import System


async def compare_placed(number: int, step: PlaceTopic, kafka: System, own: System) -> list[Difference]:
    """Compare the topic if both systems have created it, and delete it."""
    await asyncio.gather(kafka.read_records(), own.read_records())
    found = [
        Difference(number, "placement", name, str(ours), str(theirs))
        for (name, ours), (_, theirs) in zip(
            properties(kafka.image, step.name).items(), properties(own.image, step.name).items(), strict=True
        )
        if ours != theirs
    ]
    both = DeleteTopics((step.name,))
    found += compare_answers(number, *await asyncio.gather(kafka.execute(both), own.execute(both)))
    await asyncio.gather(kafka.read_records(), own.read_records())
    return found


def properties(image: Image, topic: str) -> dict[str, object]:
    """Return the properties of a placed topic that must hold, or be the same on both systems."""
    partitions = [image.partitions[topic, number] for number in image.partition_ids(topic)]
    active = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
    counts = {broker_id: sum(broker_id in one.replicas for one in partitions) for broker_id in active}
    leads = {broker_id: sum(broker_id == one.leader for one in partitions) for broker_id in active}
    return {
        "exists": topic in image.topics,
        "partitions": len(partitions),
        "replication factors": sorted({len(one.replicas) for one in partitions}),
        "replicas are distinct": all(len(set(one.replicas)) == len(one.replicas) for one in partitions),
        "the ISR is the active replicas": all(
            one.isr == tuple(replica for replica in one.replicas if replica in active) for one in partitions
        ),
        "the first of the ISR leads": all(not one.isr or one.leader == one.isr[0] for one in partitions),
        "epochs are 0": all(one.leader_epoch == one.partition_epoch == 0 for one in partitions),
        "leaders are even within one": max(leads.values(), default=0) - min(leads.values(), default=0) <= 1,
        "active brokers first": all(set(one.replicas) <= active or active <= set(one.replicas) for one in partitions),
        "replicas are on many": sum(count > 0 for count in counts.values()) if len(partitions) == 1 else 0,
    }
