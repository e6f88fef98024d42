"""What the committed log says that the clients' operations did: as a follower sees it, and as each node has it."""

from __future__ import annotations

import asyncio
import hashlib

from chaos.workload import CONFIG
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import Endpoint, Offset
from raft.listener import BatchReader, CommittedBatch, Listener
from raft.observe import observe
from sim.oracle import CommittedWrite


class CommittedLog(Listener):
    """Takes the committed log from offset 0 and keeps the writes to registers and a digest of all bytes."""

    def __init__(self) -> None:
        self.writes: list[CommittedWrite] = []
        self.end_offset = Offset(0)
        self.gaps: list[str] = []
        """What was skipped or repeated, in words."""
        self._digest = hashlib.sha256()
        self._progress = asyncio.Event()

    @property
    def digest(self) -> str:
        """Of all batches so far, byte by byte."""
        return self._digest.hexdigest()

    async def handle_commit(self, reader: BatchReader) -> None:
        """Take it in."""
        with reader:
            for batch in reader:
                self._take(batch)
        self._progress.set()

    async def wait_for(self, end_offset: Offset, timeout_seconds: float) -> None:
        """Return when everything below `end_offset` was taken. Raises TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while self.end_offset < end_offset:
                self._progress.clear()
                await self._progress.wait()

    def _take(self, batch: CommittedBatch) -> None:
        if batch.base_offset != self.end_offset:
            self.gaps.append(f"after offset {self.end_offset} came offset {batch.base_offset}")
        self.end_offset = batch.end_offset
        self._digest.update(batch.data)
        for offset, data in enumerate(batch.records, batch.base_offset):
            record = MetadataRecord.FromString(data)
            if record.WhichOneof("record") == "config" and record.config.name == CONFIG:
                self.writes.append(CommittedWrite(offset, record.config.resource_name, record.config.value))


async def committed_log(endpoint: Endpoint, end_offset: Offset, cluster_id: str) -> CommittedLog:
    """What one node says was committed below `end_offset`. Raises ProtocolError."""
    log = CommittedLog()
    await observe([endpoint], log, end_offset=end_offset, cluster_id=cluster_id)
    return log
