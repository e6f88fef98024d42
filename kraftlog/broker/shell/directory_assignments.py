"""Reports to the controller in which of this broker's log directories each replica is (KIP-858).

Consider a broker with two directories, one of which fails. The controller elects other leaders for the partitions that
were reported to be in that directory, and for no others.
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
"""The number of replicas in one request."""

TIMEOUT_MS: Final = 30_000
RETRY_MS: Final = 500

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AssignmentsPace:
    """How long a request may take, and the pause after one that failed, in milliseconds."""

    timeout_ms: int = TIMEOUT_MS
    retry_ms: int = RETRY_MS


class _Asking(Enum):
    NOT_STARTED = auto()
    """Reports are collected, but not sent."""
    IDLE = auto()
    """There is nothing to report."""
    ASKS = auto()
    """A request is in progress, or about to be sent or sent again."""
    STOPPED = auto()


class DirectoryAssignments:
    """What has yet to be reported to the controller. Not thread-safe."""

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
        """Send reports from now on. The replicas that a starting broker has taken over fit into a few requests."""
        self._asking = _Asking.IDLE
        self._ask_soon()

    def stop(self) -> None:
        """Send nothing more."""
        self._asking = _Asking.STOPPED

    def placed(self, partition: Partition, directory_id: UUID) -> None:
        """A replica is in that directory, or in none. Report it, unless the metadata has it already."""
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
        sent = dict(list(self._pending.items())[:ASSIGNMENTS_MAX])
        if not sent:  # by now the metadata has everything
            self._asking = _Asking.IDLE
            return

        def answered(result: admin_pb2.OperationResult | ApiError) -> None:
            self._answered(sent, result)

        self._controller.ask(self._operation(sent), self._pace.timeout_ms, answered, retry_unknown=True)

    def _answered(self, sent: dict[Partition, UUID], result: admin_pb2.OperationResult | ApiError) -> None:
        if self._asking is _Asking.STOPPED:
            return
        if isinstance(result, ApiError):
            logger.info("directory assignments not sent; retrying", reason=str(result))
            self._runtime.call_later(self._pace.retry_ms, self._ask)
            return
        for partition, directory_id in sent.items():
            if self._pending.get(partition) == directory_id:
                del self._pending[partition]
        for refused in result.assign_replicas_to_dirs.assignments:
            if refused.error_code:
                # The replica was deleted or reassigned, and this broker will learn it from the metadata.
                logger.info("replica not assigned to its directory", reason=refused.error_message)
        self._asking = _Asking.IDLE
        self._ask_soon()

    def _operation(self, sent: dict[Partition, UUID]) -> admin_pb2.Operation:
        assignments = [
            admin_pb2.DirectoryAssignment(
                topic_id=partition.topic_id,
                partition_id=partition.name.partition_id,
                directory_id=directory_id.bytes,
            )
            for partition, directory_id in sent.items()
        ]
        return admin_pb2.Operation(
            assign_replicas_to_dirs=admin_pb2.AssignReplicasToDirsRequest(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch(), assignments=assignments
            )
        )
