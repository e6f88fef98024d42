"""Measures how long brokers take to learn of a change of metadata while faults affect the nodes that they follow.

A config of a topic is set to one number after another, and each broker is queried until it answers with the newest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.types import NodeId
from kraftlog.admin.client.client import Alteration
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.brokers.cluster import with_brokers
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

CONFIG: Final = "max.message.bytes"
BASE: Final = 1_048_588
"""Kafka's default. The value only grows here."""
TOPIC_RESOURCE: Final = 2
SEEN_SECONDS_MAX: Final = 10.0
"""The bound for a running broker that reaches all nodes while a majority of them is healthy. A reader leaves a node
that is cut off or has a full disk within 5 s; an election, a slow link and a busy machine may add to this."""
POLL_SECONDS: Final = 0.1
REST_SECONDS: Final = 1.0


class Freshness:
    """Sets a config and queries the brokers, until cancelled."""

    def __init__(self, arena: Arena, brokers: Mapping[NodeId, Endpoint], topic: str) -> None:
        """No other client may change the configs of `topic`."""
        self.changes = 0
        self.longest_seconds = 0.0
        """The longest time until a broker knew of a change, while no fault excused a delay."""
        self.violations: list[str] = []
        self._arena = arena
        self._brokers = brokers
        self._topic = topic

    async def run(self) -> None:
        """Work until cancelled."""
        client = with_brokers(self._arena).client
        while True:
            with suppress(ApiError):
                value = BASE + self.changes + 1
                await client.alter_configs([Alteration(TOPIC_RESOURCE, self._topic, CONFIG, str(value))])
                self.changes += 1
                await asyncio.gather(*(self._until_seen(broker_id, value) for broker_id in self._brokers))
            await asyncio.sleep(REST_SECONDS)

    async def _until_seen(self, broker_id: NodeId, value: int) -> None:
        owed_since: float | None = None
        while True:
            asking = asyncio.create_task(asyncio.to_thread(self._knows, self._brokers[broker_id], value))
            while not asking.done():
                await asyncio.wait({asking}, timeout=POLL_SECONDS)
                owed_since = (owed_since or time.monotonic()) if self._is_owed(broker_id) else None
            owed_seconds = 0.0 if owed_since is None else time.monotonic() - owed_since
            if asking.result():
                self.longest_seconds = max(self.longest_seconds, owed_seconds)
                return
            if owed_seconds > SEEN_SECONDS_MAX:
                story = f"broker {broker_id} did not know of a change of metadata after {owed_seconds:.1f} s"
                self._arena.note(story)
                self.violations.append(story)
                return
            await asyncio.sleep(POLL_SECONDS)

    def _is_owed(self, broker_id: NodeId) -> bool:
        """Whether the broker runs and reaches all nodes, and a majority of the nodes is healthy."""
        truth = self._arena.truth
        return (
            truth.owes_service
            and broker_id in truth.running - truth.paused
            and not any(broker_id in cut and truth.voter_ids & set(cut) for cut in truth.cuts)
        )

    def _knows(self, endpoint: Endpoint, value: int) -> bool:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._topic, configuration_keys=(CONFIG,)
        )
        try:
            with BrokerConnection(endpoint) as connection:
                answer = connection.call(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse)
        except ApiError:
            return False
        return any(int(of.value or 0) >= value for result in answer.results for of in result.configs)
