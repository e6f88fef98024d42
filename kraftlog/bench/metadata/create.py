"""Many partitions created at once, and topics of one partition created one by one.

The time of the first figure is from sending the first operation until the last of the five nodes has applied the last
record; a read at each node waits for it. The nodes take snapshots as usual.
"""

from __future__ import annotations

import time
from typing import Final

from kraftlog.bench.creation import OPERATIONS_IN_FLIGHT, create_all, operations, placed_topics
from kraftlog.bench.figures import summary
from kraftlog.bench.latency import WARM_UP_OPERATIONS
from kraftlog.bench.metadata.stage import Measured, Stage
from kraftlog.bench.targets import Target
from kraftlog.bench.workload import execute_once
from kraftpb.v1 import admin_pb2

PARTITIONS_PER_SECOND_MIN: Final = 10_000
LATENCY_MS_MAX: Final = 5.0


async def create_in_one_go(stage: Stage, topics: int, partitions_per_topic: int) -> Measured:
    """Create `topics` topics of `partitions_per_topic` partitions each, with three replicas."""
    made = operations(placed_topics("topic", topics, partitions_per_topic))
    started = time.monotonic()
    end_offset = await create_all(stage.client, made)
    acknowledged_seconds = time.monotonic() - started
    applied = {node_id: at - started for node_id, at in (await stage.applied_everywhere(end_offset)).items()}
    seconds, partitions = max(applied.values()), topics * partitions_per_topic
    per_second = partitions / seconds
    return Measured(
        {
            "topics": topics,
            "partitions": partitions,
            "operations": len(made),
            "operations_in_flight": OPERATIONS_IN_FLIGHT,
            "acknowledged_seconds": round(acknowledged_seconds, 3),
            "applied_seconds": {str(node_id): round(at, 3) for node_id, at in applied.items()},
            "partitions_per_second": round(per_second, 1),
        },
        f"{partitions:,} partitions created in one go: acknowledged after {acknowledged_seconds:.2f} s, applied by all"
        f" five nodes after {seconds:.2f} s.",
        [Target("partitions created, applied by all", round(per_second, 1), PARTITIONS_PER_SECOND_MIN, "/s", True)],
    )


def _single(prefix: str, topics: int) -> list[admin_pb2.Operation]:
    return [operations([topic])[0] for topic in placed_topics(prefix, topics, 1)]


async def create_one_by_one(stage: Stage, topics: int) -> Measured:
    """Create topics of one partition with three replicas, each after the previous one is acknowledged."""
    for operation in _single("warm-up", WARM_UP_OPERATIONS):
        await execute_once(stage.client, operation)
    made = _single("single", topics)
    times_ms = []
    started = time.monotonic()
    for operation in made:
        submitted = time.monotonic()
        await execute_once(stage.client, operation)
        times_ms.append((time.monotonic() - submitted) * 1000)
    per_second = topics / (time.monotonic() - started)
    figures = summary(times_ms)
    return Measured(
        {"topics": topics, "topics_per_second": round(per_second, 1), "submit_to_ack_ms": figures},
        f"{topics:,} topics of one partition, one by one: {per_second:,.0f} topics/s.",
        [Target("create one topic, p50", figures["p50"], LATENCY_MS_MAX, "ms")],
        [("create one topic", figures)],
    )
