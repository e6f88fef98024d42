"""Tells the controller in which of this broker's log directories each replica is (KIP-858).

The controller knows only what it was told: consider a broker with two directories, one of which fails. The controller
then elects other leaders for the partitions in that directory, and for no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import ApiError
from kraftbase.runtime import Runtime
from kraftlog.broker.shell.ports import ControllerPort
from kraftlog.replicas.partitions.partition import Partition
from kraftpb.v1 import admin_pb2

ASSIGNMENTS_MAX: Final = 2_000
"""Replicas in one request."""

TIMEOUT_MS: Final = 30_000
RETRY_MS: Final = 500

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AssignmentsPace:
    """How long a request may take, and how long to wait after one that has failed, in milliseconds."""

    timeout_ms: int = TIMEOUT_MS
    retry_ms: int = RETRY_MS


class _Asking(Enum):
    NOT_STARTED = auto()
    """What is pending is collected."""
    IDLE = auto()
    """Nothing is pending."""
    ASKS = auto()
    """A request is under way, or is about to be sent, or again."""
    STOPPED = auto()


class DirectoryAssignments:
    """What the controller has yet to be told. For one thread."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerPort,
        runtime: Runtime,
        pace: AssignmentsPace = AssignmentsPace(),
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._runtime = runtime
        self._pace = pace
        self._pending: dict[Partition, UUID] = {}
        self._asking = _Asking.NOT_STARTED

    def start(self) -> None:
        """Tell the controller from now on. Before, a broker takes thousands of replicas over: few requests have all."""
        self._asking = _Asking.IDLE
        self._ask_soon()

    def stop(self) -> None:
        """Tell it nothing any more."""
        self._asking = _Asking.STOPPED

    def placed(self, partition: Partition, directory_id: UUID) -> None:
        """A replica is in that directory, or in none; nothing is to be done if the metadata says so."""
        replicas, directories = list(partition.record.replicas), partition.record.directories
        at = replicas.index(self._broker_id)
        if at < len(directories) and directories[at] == directory_id.bytes:
            self._pending.pop(partition, None)
            return
        self._pending[partition] = directory_id
        self._ask_soon()

    def _ask_soon(self) -> None:
        if self._pending and self._asking is _Asking.IDLE:
            self._asking = _Asking.ASKS
            self._runtime.call_soon(self._ask)

    def _ask(self) -> None:
        if self._asking is _Asking.STOPPED:
            return
        told = dict(list(self._pending.items())[:ASSIGNMENTS_MAX])
        if not told:  # the metadata has it all by now
            self._asking = _Asking.IDLE
            return

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            self._answered(told, result)

        self._controller.ask(self._operation(told), self._pace.timeout_ms, answered, retry_unknown=True)

    def _answered(self, told: dict[Partition, UUID], result: admin_pb2.OperationResult | ApiError) -> None:
        if self._asking is _Asking.STOPPED:
            return
        if isinstance(result, ApiError):
            logger.info("the controller was not told of log directories; trying again", reason=str(result))
            self._runtime.call_later(self._pace.retry_ms, self._ask)
            return
        for partition, directory_id in told.items():
            if self._pending.get(partition) == directory_id:
                del self._pending[partition]
        for refused in result.assign_replicas_to_dirs.assignments:
            if refused.error_code:
                # A replica that was deleted or reassigned meanwhile, of which the metadata will tell.
                logger.info("a replica was not assigned to its directory", reason=refused.error_message)
        self._asking = _Asking.IDLE
        self._ask_soon()

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
