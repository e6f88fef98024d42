"""A store, and a controller over a log in memory or over a real node with one voter."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftbase.runtime import AsyncioRuntime, Runtime, awaited
from kraftbase.types import Offset
from kraftlog.controller.controller import Controller
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.dead_brokers import Connect
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from snapshot.store import SnapshotStore
from statemachine.apply.machine import MetadataMachine
from statemachine.store.store import MetadataStore
from tests.kraftlog.controller.memory_log import MemoryLog
from tests.raft.nodes import running_cluster
from tests.statemachine.builders import CLUSTER_ID, alive, register
from tests.statemachine.machines import machine_on, wait_applied
from tests.statemachine.snapshots import posix_snapshots
from tests.statemachine.states import write_new_database
from tests.statemachine.waiting import until

PATIENCE_MS: Final = 600_000


@dataclass
class Bench:
    """A controller and its store, log and state machine."""

    log: Any
    """A MemoryLog or a RaftClient."""
    store: MetadataStore
    machine: MetadataMachine
    controller: Controller
    faults: list[BaseException]

    async def lead(self) -> None:
        """Wait until the controller is active in the log's epoch."""
        await until(lambda: self.controller._epoch == self.log.leader_and_epoch.epoch)

    async def run(self, operation: Operation) -> OperationResult:
        """Carry out one operation; acknowledged records are in the store then."""
        result = await execute(self.controller, operation)
        await self.applied()
        return result

    async def applied(self) -> None:
        """Wait until acknowledged records are in the store: an answer may come before its run is written."""
        if self.machine.unavailable_reason is None:
            await wait_applied(self.machine, Offset(0), PATIENCE_MS)

    async def answered(self, results: Sequence[OperationResult], count: int = 1) -> None:
        """Wait until `count` operations are answered and acknowledged records are in the store."""
        await until(lambda: len(results) >= count)
        await self.applied()

    async def done(self, operation: Operation) -> OperationResult:
        """Carry out one operation that must succeed in all its parts, however busy the machine is."""
        operation.timeout_ms = operation.timeout_ms or PATIENCE_MS
        result = await self.run(operation)
        assert errors(result) == [], result
        return result

    async def submit(self, *operations: Operation) -> list[OperationResult]:
        """Submit operations together; the list fills as they are answered."""
        results: list[OperationResult] = []
        taken = asyncio.Event()
        self.controller.submit(operations, results.append, taken.set)
        await taken.wait()
        return results

    async def with_brokers(self, *broker_ids: int) -> None:
        """Register brokers that are unfenced."""
        for broker_id in broker_ids:
            registered = await self.done(register(broker_id))
            await self.done(alive(broker_id, registered.register_broker.broker_epoch))


async def execute(controller: Controller, operation: Operation) -> OperationResult:
    """Carry out one operation and return its answer."""
    answer: asyncio.Future[OperationResult] = asyncio.get_running_loop().create_future()
    controller.submit([operation], answer.set_result)
    return await answer


def errors(result: OperationResult) -> list[ErrorCode]:
    """The errors of an operation or of its parts."""
    parts: list[Any] = [
        result,
        *result.create_topics.topics,
        *result.delete_topics.topics,
        *result.alter_configs.resources,
    ]
    return [ErrorCode(part.error_code) for part in parts if part.error_code]


TIERING = ControllerConfig(remote_log_storage_system_enable=True)
"""The default of tests: the metadata of tiering is tried with the rest."""


@asynccontextmanager
async def memory_bench(
    path: Path,
    *,
    auto_commit: bool = True,
    seed: int = 1,
    config: ControllerConfig | None = None,
    runtime: Runtime | None = None,
    connect: Connect | None = None,
) -> AsyncIterator[Bench]:
    """A controller over a log in memory that this node does not lead yet."""
    faults: list[BaseException] = []
    log = MemoryLog(faults.append, auto_commit=auto_commit)
    if not path.exists():
        write_new_database(path)
    store = MetadataStore.open(path, CLUSTER_ID)
    machine = machine_on(store)
    runtime = runtime or AsyncioRuntime()
    controller = Controller(
        log, store, machine, runtime=runtime, random=random.Random(seed), config=config or TIERING, connect=connect
    )
    log.register(machine, start_offset=store.applied_end_offset)
    try:
        yield Bench(log, store, machine, controller, faults)
    finally:
        await log.close()
        store.close()
    assert faults == []


@asynccontextmanager
async def node_bench(path: Path) -> AsyncIterator[Bench]:
    """A controller over a real node, the only voter of its cluster."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(path, voter_count=1))
        client = cluster.clients[1]
        store = MetadataStore.open(path / "metadata.db", client.cluster_id)
        stack.callback(store.close)
        machine = machine_on(store)
        controller = Controller(
            client, store, machine, runtime=AsyncioRuntime(), random=random.Random(1), config=TIERING
        )
        client.register(machine, start_offset=store.applied_end_offset)
        stack.push_async_callback(awaited, machine.begin_shutdown)
        stack.callback(client.unregister, machine)
        yield Bench(client, store, machine, controller, [])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
def store(database: Path) -> Iterator[MetadataStore]:
    store = MetadataStore.open(write_new_database(database), CLUSTER_ID)
    yield store
    store.close()


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotStore:
    """Where snapshots of a database go; there is none yet."""
    return posix_snapshots(tmp_path / "snapshots")


@pytest_asyncio.fixture
async def bench(database: Path) -> AsyncIterator[Bench]:
    """An active controller whose records are committed at once."""
    async with memory_bench(database) as bench:
        bench.log.lead()
        await bench.lead()
        yield bench


@pytest_asyncio.fixture
async def held(database: Path) -> AsyncIterator[Bench]:
    """An active controller with brokers 1, 2 and 3, whose further records the test commits by hand."""
    async with memory_bench(database) as bench:
        bench.log.lead()
        await bench.lead()
        await bench.with_brokers(1, 2, 3)
        bench.log.auto_commit = False
        yield bench


@pytest_asyncio.fixture(params=["memory", "node"])
async def any_bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """An active controller over each implementation of the log."""
    if request.param == "memory":
        async with memory_bench(tmp_path / "metadata.db") as bench:
            bench.log.lead()
            await bench.lead()
            yield bench
    else:
        async with node_bench(tmp_path) as bench:
            await bench.lead()
            yield bench


Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def rows(database: Path) -> Query:
    """Queries the database as any holder of the file could."""

    def ask(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(sql, parameters).fetchall()

    return ask
