"""Tells the controller in which of this broker's log directories each replica is (KIP-858).

The controller knows only what it was told: consider a broker with two directories, one of which fails. The controller
then elects other leaders for the partitions in that directory, and for no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.replicas.partitions.partition import Partition
from kraftpb.v1 import admin_pb2

ASSIGNMENTS_MAX: Final = 2_000
"""Replicas in one request."""

RETRY_MS: Final = 500

logger = structlog.get_logger(__name__)


class DirectoryAssignments:
    """What the controller has yet to be told. For one event loop."""

    def __init__(self, client: AdminClient, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._client = client
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._pending: dict[Partition, UUID] = {}
        self._is_pending = asyncio.Event()

    def placed(self, partition: Partition, directory_id: UUID) -> None:
        """A replica is in that directory, or in none; nothing is to be done if the metadata says so."""
        replicas, directories = list(partition.record.replicas), partition.record.directories
        at = replicas.index(self._broker_id)
        if at < len(directories) and directories[at] == directory_id.bytes:
            self._pending.pop(partition, None)
            return
        self._pending[partition] = directory_id
        self._is_pending.set()

    async def run(self) -> None:
        """Tell the controller until cancelled."""
        while True:
            await self._is_pending.wait()
            told = dict(list(self._pending.items())[:ASSIGNMENTS_MAX])
            try:
                result = await self._client.execute(self._operation(told), retry_unknown=True)
                if result.error_code:
                    raise ApiError(ErrorCode(result.error_code), result.error_message)
            except ApiError as error:
                logger.info("the controller was not told of log directories; trying again", reason=str(error))
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            for partition, directory_id in told.items():
                if self._pending.get(partition) == directory_id:
                    del self._pending[partition]
            for refused in result.assign_replicas_to_dirs.assignments:
                if refused.error_code:
                    # A replica that was deleted or reassigned meanwhile, of which the metadata will tell.
                    logger.info("a replica was not assigned to its directory", reason=refused.error_message)
            if not self._pending:
                self._is_pending.clear()

    def _operation(self, told: dict[Partition, UUID]) -> admin_pb2.Operation:
        assignments = [
            admin_pb2.DirectoryAssignment(
                topic_id=partition.topic_id,
                partition_id=partition.name.partition_id,
                directory_id=directory_id.bytes,
            )
            for partition, directory_id in told.items()
        ]
        return admin_pb2.Operation(
            assign_replicas_to_dirs=admin_pb2.AssignReplicasToDirsRequest(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch(), assignments=assignments
            )
        )
