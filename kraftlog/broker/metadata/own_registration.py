"""What the metadata says of this broker's own registration: whether it is there, and whether it is fenced.

The answer to a heartbeat does not tell: one that comes late unfences the broker at once, when others lead its
partitions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.cluster_tables import BROKERS
from statemachine.words.adopted_brokers import is_awaited

logger = structlog.get_logger(__name__)


class OwnRegistration:
    """A publisher of the broker's state machine (`statemachine.apply.publishers.MetadataPublisher`)."""

    def __init__(self, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        """`broker_epoch` returns the epoch of this process's last registration."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._was_unfenced = False
        self._was_fenced = False
        """Since it was unfenced."""
        self._is_leaving = False

    def leave(self) -> None:
        """The broker has asked for its shutdown. If it leads nothing it is fenced at once, which is no news then."""
        self._is_leaving = True

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Begin anew with a whole state.

        Raises ApiError(INVALID_REGISTRATION) if it is that of a cluster which was restored under this process (CT-39).
        """
        record = BROKERS.get(metadata, (self._broker_id,))
        if 0 <= self._broker_epoch() < end_offset:
            self._check_is_known(record)
        if record is not None:
            self._see(record)

    # Consider a cluster whose voters are lost, and which is restored with its id while its brokers run. Its metadata
    # are from before this broker got some of what it has: it must carry out nothing of them.
    def _check_is_known(self, record: RegisterBrokerRecord | None) -> None:
        """Raise ApiError unless this process has registered with the metadata, or a later one."""
        is_of_another = record is not None and record.broker_epoch != self._broker_epoch()
        if record is None or (is_of_another and is_awaited(record.incarnation_id)):
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"the metadata do not know that broker {self._broker_id} has registered with epoch"
                f" {self._broker_epoch()}: it was unregistered, or its cluster was restored from an old snapshot. It"
                " ends, and changes nothing on its disks. After a restore see docs/operations/all-voters-are-lost.md",
            )

    def on_delta(self, delta: MetadataDelta) -> None:
        """Look at the broker's own changes."""
        for change in delta.brokers:
            if change.after is not None and change.after.broker_id == self._broker_id:
                self._see(change.after)

    def _see(self, registration: RegisterBrokerRecord) -> None:
        if not registration.fenced:
            if self._was_fenced:
                logger.warning(f"Broker {self._broker_id} is unfenced again.")
            self._was_unfenced, self._was_fenced = True, False
        elif self._was_unfenced and not self._is_leaving and not registration.in_controlled_shutdown:
            self._was_unfenced, self._was_fenced = False, True
            logger.warning(
                f"Broker {self._broker_id} was fenced: the controller had no heartbeat of it for a session, or was"
                " asked to fence it. Its partitions are led by other replicas in sync; those without one are offline."
            )
