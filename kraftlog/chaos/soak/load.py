"""Steady load: a fixed rate of operations from many concurrent callers, on metadata that does not grow.

Half of the operations set a config of a lasting topic; the others create a topic or, once there are enough, delete the
oldest one. So the log grows all the time, and the metadata does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic, OutcomeUnknown
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.sim.quorum.registers.history import Outcome
from kraftpb.v1 import admin_pb2
from statemachine.words.limits import NOTHING_WRITTEN
from statemachine.words.resources import ResourceType

CONFIG: Final = "retention.ms"
BROKER_ID: Final = 1
LASTING_TOPICS: Final = 4000
PASSING_TOPICS: Final = 1000
TOPICS_PER_OPERATION: Final = 200
ATTEMPTS_MAX: Final = 10
CALLERS: Final = 48
TIMEOUT_MS: Final = 5000
CATCH_UP_SECONDS: Final = 0.25
"""Operations that are overdue for longer are skipped, so that they are not sent all at once after a stall."""


class SteadyLoad:
    """Concurrent callers of one client."""

    def __init__(self, bootstrap: Sequence[Endpoint], operations_per_second: float, random: Random) -> None:
        self._bootstrap = bootstrap
        self._interval_seconds = 1 / operations_per_second
        self._random = random
        self._numbers = count(1)
        self._passing: deque[str] = deque()
        self._next_turn = 0.0
        self._is_stopped = False
        self.outcomes: Counter[Outcome] = Counter()
        self.acknowledged_at: list[float] = []
        """When operations were acknowledged, in seconds of CLOCK_MONOTONIC."""
        self.last_error = ""

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Keep a broker alive within the block, and create the lasting topics. Raises ApiError."""
        async with AdminClient(self._bootstrap) as client, living_brokers(client, [BROKER_ID]):
            topics = [NewTopic(_lasting(number), 1, 1) for number in range(LASTING_TOPICS)]
            for first in range(0, LASTING_TOPICS, TOPICS_PER_OPERATION):
                await _create_surely(client, topics[first : first + TOPICS_PER_OPERATION])
            yield

    async def run(self) -> None:
        """Work until `stop`."""
        self._next_turn = time.monotonic()
        async with AdminClient(self._bootstrap, timeout_ms=TIMEOUT_MS) as client:
            await asyncio.gather(*(self._call(client) for _ in range(CALLERS)))

    def stop(self) -> None:
        """Let every caller finish its operation."""
        self._is_stopped = True

    async def _call(self, client: AdminClient) -> None:
        while not self._is_stopped:
            await self._turn()
            outcome = await self._execute(client, self._operation())
            self.outcomes[outcome] += 1
            if outcome is Outcome.ACKNOWLEDGED:
                self.acknowledged_at.append(time.monotonic())

    async def _turn(self) -> None:
        now = time.monotonic()
        self._next_turn = max(self._next_turn + self._interval_seconds, now - CATCH_UP_SECONDS)
        await asyncio.sleep(max(0.0, self._next_turn - now))

    def _operation(self) -> admin_pb2.Operation:
        number = next(self._numbers)
        if number % 2:
            return _set_config(_lasting(self._random.randrange(LASTING_TOPICS)), number)
        if len(self._passing) < PASSING_TOPICS:
            self._passing.append(f"passing-{number}")
            return create_topic(self._passing[-1])
        return _delete_topic(self._passing.popleft())

    async def _execute(self, client: AdminClient, operation: admin_pb2.Operation) -> Outcome:
        try:
            result = await client.execute(operation)
        except OutcomeUnknown as error:
            self.last_error = str(error)
            return Outcome.UNKNOWN
        except ApiError as error:
            self.last_error = str(error)
            return Outcome.REFUSED
        message = error_message(result)
        if message is None:
            return Outcome.ACKNOWLEDGED
        self.last_error = message
        return Outcome.REFUSED if result.end_offset == NOTHING_WRITTEN else Outcome.UNKNOWN


def create_topic(name: str, partitions: int = 1) -> admin_pb2.Operation:
    """Return an operation that creates a topic with one replica each. It writes a record for each and one more."""
    topic = admin_pb2.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return admin_pb2.Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))


def error_message(result: admin_pb2.OperationResult) -> str | None:
    """Return the first error of the operation or of a part of it, None if there is none."""
    errors = [(result.error_code, result.error_message)]
    for parts in (result.create_topics.topics, result.delete_topics.topics, result.alter_configs.resources):
        errors += [(part.error_code, part.error_message) for part in parts]
    return next((message for code, message in errors if code != ErrorCode.NONE), None)


async def _create_surely(client: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics, and repeat the operation if its outcome is unknown. Raises ApiError."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            await client.create_topics(topics)
        except OutcomeUnknown:
            if attempt + 1 == ATTEMPTS_MAX:
                raise
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or attempt == 0:
                raise
            return  # the previous attempt was carried out
        else:
            return


def _lasting(number: int) -> str:
    return f"lasting-{number}"


def _set_config(topic: str, value: int) -> admin_pb2.Operation:
    alteration = admin_pb2.ConfigAlteration(
        resource_type=ResourceType.TOPIC, resource_name=topic, name=CONFIG, value=str(value)
    )
    return admin_pb2.Operation(alter_configs=admin_pb2.AlterConfigsRequest(alterations=[alteration]))


def _delete_topic(name: str) -> admin_pb2.Operation:
    return admin_pb2.Operation(
        delete_topics=admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicReference(name=name)])
    )
