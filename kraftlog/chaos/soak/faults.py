"""The faults that only a soak has: slow readers and statements, and snapshots on demand."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing, suppress
from random import Random
from typing import Final

from kraftbase.errors import ApiError, StorageError
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import connect
from kraftlog.chaos import nemesis, partitions
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.checks import SNAPSHOT_TIMEOUT_SECONDS
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.nemesis import Nemesis
from kraftlog.chaos.schedule import Kind
from kraftpb.v1.snapshot_pb2 import CreateSnapshotRequest
from kraftpb.v1.snapshot_pb2_grpc import SnapshotServiceStub
from raft.storage.directory import METADATA_DATABASE_NAME
from statemachine.tables.database import open_reader

STATEMENT: Final = (
    "WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter)"
    " SELECT count(*) FROM counter, (SELECT end_offset FROM applied)"
)
"""A query that never ends by itself, and reads all the time. The node ends it."""
STATEMENT_TIMEOUT_MS: Final = 15_000
"""Longer than the 10 s for which a node lets a query run."""


class SlowReader(Nemesis):
    """Holds a read transaction on a node's live database, in another process, this one."""

    name = "a slow reader"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._held = ExitStack()

    async def start(self, arena: Arena) -> None:
        """Begin a read transaction and read, so that SQLite keeps the state of that time."""
        node_id = roomy_node(arena, self.random)
        path = arena.cluster.directory.data_path(node_id) / METADATA_DATABASE_NAME
        with suppress(StorageError):  # the node is starting, and has none yet
            connection = self._held.enter_context(closing(open_reader(path)))
            self._held.enter_context(arena.reading(node_id))
            connection.execute("BEGIN")
            connection.execute("SELECT end_offset FROM applied").fetchall()

    async def stop(self, arena: Arena) -> None:
        """End the transaction."""
        self._held.close()


class SlowStatement(Nemesis):
    """Sends a node an SQL query that never ends, and that the node aborts in time."""

    name = "a slow statement"

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._asking: asyncio.Task[None] | None = None

    async def start(self, arena: Arena) -> None:
        """Send the query."""
        self._asking = asyncio.create_task(self._ask(arena, roomy_node(arena, self.random)))

    async def stop(self, arena: Arena) -> None:
        """Cancel the query. The node has aborted it long before, unless the run ends early."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, arena: Arena, node_id: NodeId) -> None:
        async with AdminClient([arena.cluster.endpoint(node_id)], timeout_ms=STATEMENT_TIMEOUT_MS) as client:
            with arena.reading(node_id), suppress(ApiError):
                await client.query(STATEMENT)


class TakeSnapshot(Nemesis):
    """Lets a node take a snapshot."""

    name = "a snapshot on demand"

    async def start(self, arena: Arena) -> None:
        """Request the snapshot; a node that does not run takes none."""
        node_id = self.any_node(arena)
        arena.note(f"snapshot {node_id}")
        with suppress(ApiError):
            async with connect(arena.cluster.endpoint(node_id)) as channel:
                stub = SnapshotServiceStub(channel)
                await stub.CreateSnapshot(CreateSnapshotRequest(), timeout=SNAPSHOT_TIMEOUT_SECONDS)
                arena.counts["snapshots on demand"] += 1


PROCESS_KINDS: Final = (
    Kind(nemesis.KillOne, 4, (0.05, 2.0)),
    Kind(nemesis.KillLeader, 4, (0.05, 2.0)),
    Kind(nemesis.KillAll, 1, (0.05, 1.0)),
    Kind(nemesis.GracefulRestart, 1, (0.05, 1.0)),
)
OTHER_KINDS: Final = (
    Kind(SlowReader, 4, (2.0, 30.0)),
    Kind(SlowStatement, 2, (11.0, 12.0)),
    Kind(TakeSnapshot, 2, (0.1, 1.0)),
    Kind(nemesis.PauseOne, 2, (0.5, 5.0)),
    Kind(partitions.FillDisk, 2, (2.0, 8.0)),
)
LANES: Final = (Lane("processes", PROCESS_KINDS, (4.0, 10.0)), Lane("others", OTHER_KINDS, (1.0, 4.0)))
"""Nodes have time to settle after a kill: a soak detects what accumulates, not what a crash leaves behind."""


def roomy_node(arena: Arena, random: Random) -> NodeId:
    """Return a node without a small disk, which the write-ahead log that a reader holds could fill."""
    return random.choice([node_id for node_id in arena.cluster.node_ids if node_id not in arena.disks])
