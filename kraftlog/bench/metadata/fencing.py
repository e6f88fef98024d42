"""How long partitions have no leader when their leader is fenced, as an observer sees it.

Three brokers lead equally many partitions, and each has a replica of every partition. One stops its heartbeats, and an
operation fences it at once, so that the time does not depend on its session. The time starts when the operation is
sent, a little before the controller decides. It ends when an observer has applied that no partition is led by this
broker or without a leader. Each query to the observer names the next offset to wait for, so it is repeated whenever
more is applied. Both observers are queried, and the later one counts.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.creation import create_all, operations, shared_topics
from kraftlog.bench.metadata.stage import TIMEOUT_SECONDS, Measured, Stage
from kraftlog.bench.targets import Target
from kraftlog.bench.workload import BROKER_IDS, execute_once
from kraftpb.v1 import admin_pb2

PARTITIONS_PER_TOPIC: Final = 100
SECONDS_MAX: Final = 5.0


async def fence_leader(stage: Stage, leaders: int) -> Measured:
    """Fence a broker that leads about `leaders` partitions. Raises ApiError if they are not led again in time."""
    partitions = leaders * len(BROKER_IDS)
    topics = -(-partitions // PARTITIONS_PER_TOPIC)
    made = operations(shared_topics("topic", topics, min(partitions, PARTITIONS_PER_TOPIC)))
    await stage.applied_everywhere(await create_all(stage.client, made))
    leaving = stage.brokers[0].life
    led = await _count_led_by(stage, leaving.broker_id)
    operation = admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=leaving.broker_id))
    await leaving.stop()
    watching = [asyncio.create_task(_led_by_others(reader, leaving.broker_id)) for reader in stage.observers.values()]
    await asyncio.sleep(0)  # they query first
    started = time.monotonic()
    fenced = await execute_once(stage.client, operation)
    acknowledged_seconds = time.monotonic() - started
    led_seconds = [at - started for at in await asyncio.gather(*watching)]
    await stage.applied_everywhere(fenced.end_offset)
    everywhere_seconds = time.monotonic() - started
    return Measured(
        {
            "partitions_led": led,
            "partitions": topics * min(partitions, PARTITIONS_PER_TOPIC),
            "led_again_seconds": dict(
                zip(map(str, stage.observers), (round(at, 3) for at in led_seconds), strict=True)
            ),
            "out_of_every_isr_acknowledged_seconds": round(acknowledged_seconds, 3),
            "out_of_every_isr_applied_seconds": round(everywhere_seconds, 3),
        },
        f"A broker that leads {led:,} partitions is fenced: all are led by others, seen on both observers, after"
        f" {max(led_seconds):.2f} s; it is out of every ISR on all five nodes after {everywhere_seconds:.2f} s.",
        [Target("a fenced broker's partitions led again", round(max(led_seconds), 3), SECONDS_MAX, "s")],
    )


async def _count_led_by(stage: Stage, broker_id: int) -> int:
    reader = next(iter(stage.observers.values()))
    answer = await reader.query(f"SELECT count(*) FROM partitions WHERE leader = {broker_id}")  # noqa: S608 (a number)
    return int(str(answer.rows[0][0]))


async def _led_by_others(reader: AdminClient, broker_id: int) -> float:
    """Return when (CLOCK_MONOTONIC) every partition had a leader other than that broker, on the reader's node."""
    sql = f"SELECT 1 FROM partitions WHERE leader IN (-1, {broker_id}) LIMIT 1"  # noqa: S608 (a number)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    end_offset = 0
    while True:
        try:
            answer = await reader.query(sql, min_applied_end_offset=end_offset)
        except ApiError as error:  # a read waits for some seconds at a time
            if error.code is not ErrorCode.REQUEST_TIMED_OUT or time.monotonic() > deadline:
                raise
            continue
        if not answer.rows:
            return time.monotonic()
        end_offset = answer.applied_end_offset + 1
