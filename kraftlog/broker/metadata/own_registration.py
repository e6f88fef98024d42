"""This broker's own registration in the metadata: whether it exists, and whether it is fenced.

The answer to a heartbeat does not show that the broker was fenced: a late heartbeat unfences it at once, when other
replicas lead its partitions already.
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
        """Whether it was fenced after it was unfenced."""
        self._is_leaving = False

    def leave(self) -> None:
        """The broker has asked for its shutdown. It may be fenced at once, which is not logged then."""
        self._is_leaving = True

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Read the registration from a complete state.

        Raises ApiError(INVALID_REGISTRATION) if the cluster was restored while this process ran, and does not know it
        (CT-39).
        """
        record = BROKERS.get(metadata, (self._broker_id,))
        if 0 <= self._broker_epoch() < end_offset:
            self._check_is_known(record)
        if record is not None:
            self._see(record)

    # Consider a cluster whose voters are lost, and which is restored with its id while its brokers run. Its metadata is
    # older than some of this broker's records, so the broker must not apply it.
    def _check_is_known(self, record: RegisterBrokerRecord | None) -> None:
        """Raise ApiError unless the metadata has this process's registration, or a later one."""
        is_of_another = record is not None and record.broker_epoch != self._broker_epoch()
        if record is None or (is_of_another and is_awaited(record.incarnation_id)):
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"the metadata does not know that broker {self._broker_id} has registered with epoch"
                f" {self._broker_epoch()}: it was unregistered, or its cluster was restored from an old snapshot."
                " The broker ends, and changes nothing on its disks. After a restore see"
                " docs/operations/all-voters-are-lost.md",
            )

    def on_delta(self, delta: MetadataDelta) -> None:
        """Read changes of the broker's own registration."""
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
                f"Broker {self._broker_id} was fenced: the controller got no heartbeat from it for a session, or was"
                " asked to fence it. Other in-sync replicas lead its partitions; those without one are offline."
            )
