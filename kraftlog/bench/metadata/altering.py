"""AlterPartition at a fixed rate from three brokers, each with a separate client.

Every operation removes a replica from the ISR of one partition that the broker leads, or adds it again. Operations are
sent at the rate whether or not earlier ones are answered (an open loop), and their times count from when they were due,
so that a controller that falls behind shows it. A partition is altered again only after its last answer, which has its
new epoch. If all of a broker's partitions wait for answers, the next operations wait, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import id_to_bytes
from kraftlog.bench.creation import create_all, operations, shared_topics
from kraftlog.bench.figures import summary
from kraftlog.bench.metadata.stage import LivingBroker, Measured, Stage
from kraftlog.bench.targets import Target
from kraftpb.v1 import admin_pb2

TOPICS: Final = 30
PARTITIONS_PER_TOPIC: Final = 100
"""Every broker then leads 1,000 partitions. At 1,000 operations/s each partition is altered every three seconds."""
WARM_UP_SECONDS: Final = 1.0
ACHIEVED_SHARE_MIN: Final = 0.99
"""The required share of the offered rate, below 1 since the last answers arrive after the last operation was due."""


@dataclass(slots=True)
class Led:
    """A partition as its leader knows it."""

    topic_id: bytes
    partition_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    """The replicas, the leader first."""
    is_whole: bool = True
    """Whether all replicas are in the ISR."""


class AlteringBroker:
    """A broker that leads partitions, and the results of its operations."""

    def __init__(self, broker: LivingBroker, led: list[Led]) -> None:
        self.times_ms: list[float] = []
        self.errors: list[str] = []
        self._broker = broker
        self._idle: asyncio.Queue[Led] = asyncio.Queue()
        for partition in led:
            self._idle.put_nowait(partition)

    async def alter(self, due: float) -> None:
        """Alter the ISR of the partition that was altered longest ago; `due` by CLOCK_MONOTONIC."""
        partition = await self._idle.get()
        try:
            await self._alter(partition)
        except ApiError as error:
            self.errors.append(str(error))
        else:
            self.times_ms.append((time.monotonic() - due) * 1000)
        self._idle.put_nowait(partition)

    async def _alter(self, partition: Led) -> None:
        life = self._broker.life
        isr = partition.replicas[:-1] if partition.is_whole else partition.replicas
        altered = admin_pb2.AlteredPartition(
            topic_id=partition.topic_id,
            partition_id=partition.partition_id,
            leader_epoch=partition.leader_epoch,
            new_isr=[admin_pb2.IsrMember(broker_id=broker_id, broker_epoch=-1) for broker_id in isr],
            partition_epoch=partition.partition_epoch,
        )
        request = admin_pb2.AlterPartitionRequest(
            broker_id=life.broker_id, broker_epoch=life.broker_epoch, partitions=[altered]
        )
        result = await self._broker.client.execute(admin_pb2.Operation(alter_partition=request), retry=False)
        _check(result.error_code, result.error_message)
        (answer,) = result.alter_partition.partitions
        _check(answer.error_code, answer.error_message)
        partition.leader_epoch, partition.partition_epoch = answer.leader_epoch, answer.partition_epoch
        partition.is_whole = not partition.is_whole


async def alter_at_rate(stage: Stage, rate: float, seconds: float) -> Measured:
    """Offer `rate` operations per second for `seconds`, from the brokers in turn."""
    brokers = await _leaders(stage)
    await _offer(brokers, rate, WARM_UP_SECONDS)
    for broker in brokers:
        broker.times_ms.clear()
    taken = await _offer(brokers, rate, seconds)
    times_ms = [time_ms for broker in brokers for time_ms in broker.times_ms]
    errors = [error for broker in brokers for error in broker.errors]
    achieved = len(times_ms) / taken
    figures: dict[str, Any] = {
        "offered_per_second": rate,
        "seconds": round(taken, 3),
        "acknowledged": len(times_ms),
        "failed": len(errors),
        "errors": dict(Counter(error.partition(":")[0] for error in errors)),
        "acknowledged_per_second": round(achieved, 1),
    }
    times = []
    if times_ms:
        figures["due_to_ack_ms"] = summary(times_ms)
        times.append(("AlterPartition, from when it was due", figures["due_to_ack_ms"]))
    return Measured(
        figures,
        f"{rate:,.0f} AlterPartition/s offered by {len(brokers)} brokers for {seconds:g} s: {achieved:,.0f}/s"
        f" acknowledged, {len(errors)} failed.",
        [Target("AlterPartition acknowledged", round(achieved, 1), ACHIEVED_SHARE_MIN * rate, "/s", True)],
        times,
        errors,
    )


async def _leaders(stage: Stage) -> list[AlteringBroker]:
    """Create topics, and return each broker with the partitions that it leads; all replicas are in sync."""
    end_offset = await create_all(stage.client, operations(shared_topics("topic", TOPICS, PARTITIONS_PER_TOPIC)))
    await stage.applied_everywhere(end_offset)
    described = await stage.client.describe_topics(min_applied_end_offset=end_offset)
    led: dict[int, list[Led]] = {broker.life.broker_id: [] for broker in stage.brokers}
    for topic in described.topics:
        for found in topic.partitions:
            led[found.leader].append(
                Led(
                    id_to_bytes(topic.topic_id),
                    found.partition_id,
                    found.leader_epoch,
                    found.partition_epoch,
                    found.replicas,
                )
            )
    return [AlteringBroker(broker, led[broker.life.broker_id]) for broker in stage.brokers]


async def _offer(brokers: list[AlteringBroker], rate: float, seconds: float) -> float:
    """Send each operation when it is due; return the seconds until all are answered."""
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(max(1, int(rate * seconds))):
            due = started + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(brokers[number % len(brokers)].alter(due))
    return time.monotonic() - started


def _check(code: int, message: str) -> None:
    if code != ErrorCode.NONE:
        raise ApiError(ErrorCode(code), message)
