"""The effects of the clients' operations in the committed log: as a follower sees it, and as each node has it."""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_left
from operator import itemgetter

from kraftbase.endpoint import Endpoint
from kraftbase.types import Offset
from kraftlog.chaos.workload import CONFIG
from kraftlog.sim.quorum.registers.oracle import CommittedWrite
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.listener import BatchReader, CommittedBatch, Listener
from raft.observe import observe


class CommittedLog(Listener):
    """Reads the committed log from an offset on and keeps the writes to registers and a digest of each batch."""

    def __init__(self, start_offset: Offset = Offset(0)) -> None:
        self.writes: list[CommittedWrite] = []
        self.end_offset = start_offset
        self.gaps: list[str] = []
        """A message for each gap or repetition."""
        self._batches: list[tuple[Offset, bytes]] = []
        self._progress = asyncio.Event()

    def digest(self, start_offset: Offset = Offset(0)) -> str:
        """Return a digest of the bytes of all batches from an offset on."""
        first = bisect_left(self._batches, start_offset, key=itemgetter(0))
        return hashlib.sha256(b"".join(digest for _, digest in self._batches[first:])).hexdigest()

    async def handle_commit(self, reader: BatchReader) -> None:
        """Read the batches."""
        with reader:
            for batch in reader:
                self._take(batch)
        self._progress.set()

    async def wait_for(self, end_offset: Offset, timeout_seconds: float) -> None:
        """Return when everything below `end_offset` was read. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while self.end_offset < end_offset:
                self._progress.clear()
                await self._progress.wait()

    def _take(self, batch: CommittedBatch) -> None:
        if batch.base_offset != self.end_offset:
            self.gaps.append(f"expected offset {self.end_offset}, got offset {batch.base_offset}")
        self.end_offset = batch.end_offset
        self._batches.append((batch.base_offset, hashlib.sha256(batch.data).digest()))
        for offset, data in enumerate(batch.records, batch.base_offset):
            record = MetadataRecord.FromString(data)
            if record.WhichOneof("record") == "config" and record.config.name == CONFIG:
                self.writes.append(CommittedWrite(offset, record.config.resource_name, record.config.value))


async def committed_log(endpoint: Endpoint, start_offset: Offset, end_offset: Offset, cluster_id: str) -> CommittedLog:
    """Return the committed log between two offsets, as one node has it. Raises ApiError."""
    log = CommittedLog(start_offset)
    await observe([endpoint], log, start_offset=start_offset, end_offset=end_offset, cluster_id=cluster_id)
    return log
