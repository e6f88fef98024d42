"""The clients: they write and read registers, and record every answer.

A register is one config of a topic: a write sets it to the number of its operation, so every value is unique. The admin
API has no read at the leader. A read here is a write to another register that must be acknowledged first (the barrier),
and then a read on any node that has applied the barrier. The node returns the state at the offset that it names, which
is after everything that was acknowledged before the read began: such a read is linearizable.

Registers are replaced by new ones after a while, so that the history of each is short enough to be checked as a whole.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic, OutcomeUnknown
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.sim.quorum.registers.history import History, Kind, Operation, Outcome
from kraftpb.v1 import admin_pb2
from statemachine.words.limits import NOTHING_WRITTEN
from statemachine.words.resources import ResourceType

CONFIG: Final = "retention.ms"
REGISTERS: Final = 4
OPERATIONS_PER_GENERATION: Final = 2000
BARRIER: Final = "barrier"
READ_SHARE: Final = 0.3
TIMEOUT_MS: Final = 2000
PAUSE_SECONDS: Final = 0.03
BROKER_ID: Final = 1


class Workload:
    """Concurrent clients of one cluster."""

    def __init__(self, bootstrap: Sequence[Endpoint], random: Random, clients: int) -> None:
        self._bootstrap = bootstrap
        self._random = random
        self._clients = clients
        self._numbers = count(1)
        self._stop = asyncio.Event()
        self._generation = 0
        self._used = 0
        self._creating = asyncio.Lock()
        self.history = History(writes_tell_found=False)
        """Every operation and its answer; times are nanoseconds of CLOCK_MONOTONIC."""
        self.acknowledged_at: list[float] = []
        """When writes were acknowledged, in seconds of CLOCK_MONOTONIC."""
        self.outcomes: Counter[Outcome] = Counter()

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Keep a broker alive within the block, and create the topics of the operations. Raises ApiError."""
        async with AdminClient(self._bootstrap) as client, living_brokers(client, [BROKER_ID]):
            await client.create_topics([_topic(name) for name in self._names(0)])
            yield

    async def run(self) -> None:
        """Work until `stop`."""
        clients = [
            _Client(self, client_id, Random(self._random.getrandbits(32))) for client_id in range(1, self._clients + 1)
        ]
        await asyncio.gather(*(client.work(self._bootstrap, self._stop) for client in clients))

    def stop(self) -> None:
        """Let every client finish its operation."""
        self._stop.set()

    def begin(self, client_id: int, kind: Kind, key: str) -> Operation:
        """Record the begin of an operation. A write gets a number that no other operation writes."""
        self._used += 1
        return self.history.begin(
            client_id=client_id,
            kind=kind,
            key=key,
            value=str(next(self._numbers)) if kind is Kind.WRITE else None,
            invoked_at=time.monotonic_ns(),
        )

    def acknowledge(self, operation: Operation, offset: int, found: str | None = None) -> None:
        """Record that an operation was carried out: a write is the record at `offset`, a read saw all records below."""
        now = time.monotonic_ns()
        self.history.acknowledge(operation, now, offset=offset, found=found)
        self.outcomes[Outcome.ACKNOWLEDGED] += 1
        if operation.kind is Kind.WRITE:
            self.acknowledged_at.append(now / 1e9)

    def refuse(self, operation: Operation) -> None:
        """Record that an operation certainly has no effect."""
        self.history.refuse(operation, time.monotonic_ns())
        self.outcomes[Outcome.REFUSED] += 1

    def lose_track(self, operation: Operation) -> None:
        """Record that an operation may take effect now, later or never."""
        self.history.lose_track(operation, time.monotonic_ns())
        self.outcomes[Outcome.UNKNOWN] += 1

    async def keys(self, client: AdminClient) -> list[str]:
        """Return the current registers, the barrier last. Create new ones after enough operations. Raises ApiError."""
        if self._used >= OPERATIONS_PER_GENERATION and not self._creating.locked():
            async with self._creating:
                following = self._generation + 1
                try:
                    await client.create_topics([_topic(name) for name in self._names(following)])
                except ApiError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
                self._generation, self._used = following, 0
        return self._names(self._generation)

    @staticmethod
    def _names(generation: int) -> list[str]:
        return [f"register-{generation}-{number}" for number in range(REGISTERS)] + [f"{BARRIER}-{generation}"]


class _Client:
    """One client, with one operation at a time."""

    def __init__(self, workload: Workload, client_id: int, random: Random) -> None:
        self._workload = workload
        self._client_id = client_id
        self._random = random

    async def work(self, bootstrap: Sequence[Endpoint], stop: asyncio.Event) -> None:
        """Carry out one operation after the other until `stop`."""
        shuffled = self._random.sample(bootstrap, len(bootstrap))
        async with AdminClient(shuffled, timeout_ms=TIMEOUT_MS) as client:
            while not stop.is_set():
                try:
                    *registers, barrier = await self._workload.keys(client)
                except ApiError:
                    continue
                key = self._random.choice(registers)
                if self._random.random() < READ_SHARE:
                    await self._read(client, key, barrier)
                else:
                    await self._write(client, key)
                await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_SECONDS))

    async def _write(self, client: AdminClient, key: str) -> int | None:
        """Write a register; return the offset after the record, None if it was not acknowledged."""
        operation = self._workload.begin(self._client_id, Kind.WRITE, key)
        try:
            result = await client.execute(_set_register(key, str(operation.value)))
        except OutcomeUnknown:
            self._workload.lose_track(operation)
            return None
        except ApiError:
            self._workload.refuse(operation)
            return None
        if _has_error(result):
            forget = self._workload.refuse if result.end_offset == NOTHING_WRITTEN else self._workload.lose_track
            forget(operation)
            return None
        self._workload.acknowledge(operation, result.end_offset - 1)
        return result.end_offset

    async def _read(self, client: AdminClient, key: str, barrier: str) -> None:
        operation = self._workload.begin(self._client_id, Kind.READ, key)
        end_offset = await self._write(client, barrier)
        if end_offset is None:
            self._workload.refuse(operation)
            return
        try:
            described = await client.describe_configs(ResourceType.TOPIC, key, min_applied_end_offset=end_offset)
        except ApiError:
            self._workload.refuse(operation)
            return
        values = [config.value for config in described.configs if config.name == CONFIG]
        self._workload.acknowledge(operation, described.applied_end_offset, values[0] if values else None)


def _topic(name: str) -> NewTopic:
    return NewTopic(name, num_partitions=1, replication_factor=1)


def _set_register(key: str, value: str) -> admin_pb2.Operation:
    alteration = admin_pb2.ConfigAlteration(
        resource_type=ResourceType.TOPIC, resource_name=key, name=CONFIG, value=value
    )
    return admin_pb2.Operation(alter_configs=admin_pb2.AlterConfigsRequest(alterations=[alteration]))


def _has_error(result: admin_pb2.OperationResult) -> bool:
    return result.error_code != 0 or any(resource.error_code for resource in result.alter_configs.resources)
