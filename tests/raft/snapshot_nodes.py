"""A state machine for tests of snapshots on real nodes: a list of records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from kraftbase.files.files import FileSystem
from kraftbase.types import Offset
from raft.client import RaftClient
from raft.core.config import QuorumConfig
from raft.core.types import OffsetAndEpoch
from raft.listener import BatchReader, LoadSnapshotReader
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig, LogStartPolicy
from tests.raft.nodes import Cluster, Recorder, until_voters_take_part

TIMESTAMP_MS: Final = 1_700_000_000_000
RECORDS_PER_BATCH: Final = 5
SESSION_MS: Final = 300

QUICK: Final = QuorumConfig(
    election_timeout_ms=150,
    fetch_timeout_ms=600,
    fetch_max_wait_ms=200,
    request_timeout_ms=1000,
    fetch_snapshot_max_bytes=64,
)
"""A snapshot takes many requests."""

SMALL_SEGMENTS: Final = LogConfig(segment_bytes=1_000, preallocate_bytes=1, reserve_bytes=0)
REPLICATED: Final = LogStartConfig(retention_bytes=0, replica_session_timeout_ms=SESSION_MS, replica_restart_grace_ms=0)
EAGER: Final = LogStartConfig(retention_bytes=0, policy=LogStartPolicy.EAGER)


class Loader(Recorder):
    """Holds every record, from snapshots and commits; can be made to stop reading."""

    def __init__(self, name: str = "loader") -> None:
        super().__init__()
        self._name = name
        self.loaded: list[OffsetAndEpoch] = []
        self.first_commit_offset: Offset | None = None
        """Of the first commit since the last snapshot."""
        self.counts: dict[int, int] = {}
        """The number of records that it had at the end of each batch."""
        self.is_asked = False
        """Whether it got anything."""
        self.may_read = asyncio.Event()
        self.may_read.set()

    @property
    def name(self) -> str:
        return self._name

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        self.is_asked = True
        await self.may_read.wait()
        with reader:
            self.records = [record for batch in reader for record in batch.records]
            self.loaded.append(reader.snapshot_id)
            self.end_offset = reader.end_offset
            self.counts = {reader.end_offset: len(self.records)}
            self.first_commit_offset = None
        self._changed.set()

    async def handle_commit(self, reader: BatchReader) -> None:
        self.is_asked = True
        await self.may_read.wait()
        count = len(self.records)
        for batch in reader:
            count += len(batch.records)
            self.counts[batch.end_offset] = count
        if self.first_commit_offset is None:
            self.first_commit_offset = reader.base_offset
        await super().handle_commit(reader)


def take_snapshot(client: RaftClient, loader: Loader, offset: int | None = None) -> OffsetAndEpoch:
    """Take a snapshot of the state of `loader` when it had read up to `offset`, by default now, on the node of
    `client`.
    """
    end = loader.end_offset if offset is None else Offset(offset)
    epochs = client._node.log.epochs
    snapshot_id = OffsetAndEpoch(epoch=epochs.epoch_before(end), offset=end)
    records = loader.records[: loader.counts[end]]
    writer = client.create_snapshot(snapshot_id, TIMESTAMP_MS)
    assert writer is not None
    with writer:
        for start in range(0, len(records), RECORDS_PER_BATCH):
            writer.append(records[start : start + RECORDS_PER_BATCH])
        writer.freeze()
    return snapshot_id


class SnapshotCluster(Cluster):
    """Nodes with small segments whose recorders load snapshots."""

    def loader(self, node_id: int) -> Loader:
        recorder = self.recorders[node_id]
        assert isinstance(recorder, Loader)
        return recorder

    async def up(self, node_id: int, files: FileSystem | None = None) -> RaftClient:
        return await self.start(node_id, config=QUICK, log_config=SMALL_SEGMENTS, files=files)

    async def append(self, first: int, end: int) -> None:
        """Append numbered records at the leader, a batch each, and wait until every node has them."""
        client = await self.leader()
        for number in range(first, end):
            await client.append([b"record %d" % number])
        offset = client.log_end_offset
        async with asyncio.timeout(100):
            for recorder in self.recorders.values():
                while recorder.end_offset < offset:
                    recorder._changed.clear()
                    await recorder._changed.wait()

    def snapshot_everywhere(self, offset: int | None = None) -> OffsetAndEpoch:
        """Every node takes the same snapshot."""
        (snapshot_id,) = {
            take_snapshot(client, self.loader(node_id), offset) for node_id, client in self.clients.items()
        }
        return snapshot_id


def numbered(*bounds: int) -> list[bytes]:
    return [b"record %d" % number for number in range(*bounds)]


@contextlib.asynccontextmanager
async def snapshot_cluster(
    base: Path,
    voter_count: int = 3,
    *,
    log_start: LogStartConfig = REPLICATED,
    files: dict[int, FileSystem] | None = None,
) -> AsyncIterator[SnapshotCluster]:
    cluster = SnapshotCluster(base, voter_count, log_start, make_recorder=Loader)
    try:
        for node_id in range(1, voter_count + 1):
            await cluster.up(node_id, (files or {}).get(node_id))
        await until_voters_take_part(cluster.nodes.values())
        yield cluster
    finally:
        await asyncio.gather(*(cluster.stop(node_id) for node_id in list(cluster.nodes)))
