"""A leader that hangs, and takes what is sent to it: the brokers' heartbeats go to the next one in time."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import LocalCluster
from kraftpb.v1.admin_pb2 import Operation, OperationResult

pytestmark = pytest.mark.process

BROKER_IDS = (11, 12, 13)


class Counting(AdminClient):
    """Counts the heartbeats that are answered, by broker."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.answered = dict.fromkeys(BROKER_IDS, 0)

    async def execute(self, operation: Operation, **options: Any) -> OperationResult:
        result = await super().execute(operation, **options)
        if operation.HasField("broker_heartbeat"):
            self.answered[operation.broker_heartbeat.broker_id] += 1
        return result


async def test_a_leader_that_hangs_fences_nobody(cluster: LocalCluster) -> None:
    leader = await cluster.wait_for_leader()
    others = [cluster.endpoint(node_id) for node_id in cluster.voter_ids if node_id != leader]
    async with (
        Counting([cluster.endpoint(leader), *others]) as client,
        AdminClient(others) as onlooker,
        living_brokers(client, BROKER_IDS),
    ):
        cluster.send_signal(leader, signal.SIGSTOP)
        try:
            assert await cluster.wait_for_leader() != leader
            before = dict(client.answered)
            # A heartbeat that is not sent again in time is so when the session has been over for long.
            while any(client.answered[broker_id] == before[broker_id] for broker_id in BROKER_IDS):
                brokers = (await onlooker.list_brokers()).brokers
                assert {broker.broker_id: broker.fenced for broker in brokers if broker.broker_id in BROKER_IDS} == (
                    dict.fromkeys(BROKER_IDS, False)
                )
                await asyncio.sleep(0.2)
        finally:
            cluster.send_signal(leader, signal.SIGCONT)
        for broker_id in BROKER_IDS:
            await client.unregister_broker(broker_id)
