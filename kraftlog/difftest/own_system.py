"""Three kraftlog voters, reached through the admin client, and their log, which is watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.workload import bench_cluster
from kraftlog.difftest.kafka_requests import Known
from kraftlog.difftest.own_answers import answer_of
from kraftlog.difftest.own_records import from_own
from kraftlog.difftest.own_requests import operation_of
from kraftlog.difftest.records import Record
from kraftlog.difftest.steps import Step
from kraftlog.difftest.system import SESSION_TIMEOUT_MS, Answer, System
from kraftpb.v1.metadata_pb2 import MetadataBatch
from raft.core.types import Batch
from raft.observe import watch
from raft.storage.batch import batch_body

READ_TIMEOUT_SECONDS: Final = 30.0

SETTINGS: Final[dict[str, object]] = {
    "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
    "auto.leader.rebalance.enable": False,
    "unclean.leader.election.interval.ms": 86_400_000,
    "controller.quorum.fetch.timeout.ms": 10_000,
    "controller.quorum.election.timeout.ms": 2_000,
}
"""No controller acts by itself, and a busy machine does not change the leader."""


class OwnSystem(System):
    """A running cluster of three voters."""

    def __init__(self, client: AdminClient, cluster_id: str) -> None:
        super().__init__()
        self._client = client
        self._cluster_id = cluster_id
        self._unread: list[Batch] = []
        self._watched_end_offset = 0
        self._end_offset = 0
        self._wanted_end_offset = 0
        self._arrived = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path) -> AsyncIterator[OwnSystem]:
        """A new cluster in `directory`, running within the block. Raises ApiError if it does not start."""
        async with (
            bench_cluster(directory, "kraftlog", observers=0, settings=SETTINGS) as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
        ):
            system = cls(client, cluster.cluster_id)
            leader = await cluster.wait_for_leader()
            watching = asyncio.create_task(system._watch(cluster.endpoint(leader)))
            try:
                yield system
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    @property
    def name(self) -> str:
        """The name in reports."""
        return "kraftlog"

    async def execute(self, step: Step) -> Answer:
        """Carry out a step as one operation, without a retry."""
        known = Known(self.image, self.names, self._cluster_id, self._end_offset)
        result = await self._client.execute(operation_of(step, known), retry=False)
        self._wanted_end_offset = max(self._wanted_end_offset, result.end_offset, result.state_end_offset)
        return answer_of(step, result)

    async def read_records(self) -> list[Record]:
        """Return the new committed records, at least up to the end offset of the last answer."""
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                while self._watched_end_offset < self._wanted_end_offset:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"the log of kraftlog does not reach offset {self._wanted_end_offset}"
            ) from None
        unread, self._unread = self._unread, []
        records: list[Record] = []
        for batch in unread:
            if not batch.is_control:
                for record in MetadataBatch.FromString(bytes(batch_body(batch))).records:
                    self.take(from_own(record, self.names), records)
            self._end_offset = batch.end_offset
        return records

    async def _watch(self, endpoint: Endpoint) -> None:
        async with aclosing(watch([endpoint], start_offset=Offset(0))) as stream:
            async for watched in stream:
                if watched.batches:
                    self._unread += watched.batches
                    self._watched_end_offset = watched.batches[-1].end_offset
                    self._arrived.set()
