"""What the metadata says of this broker's own registration: whether the controller has fenced it.

The answer to a heartbeat does not tell: one that comes late unfences the broker at once, when others lead its
partitions.
"""

from __future__ import annotations

import sqlite3

import structlog

from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from raft.core.types import Offset
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.cluster_tables import BROKERS

logger = structlog.get_logger(__name__)


class OwnRegistration:
    """A publisher of the broker's state machine (`statemachine.apply.publishers.MetadataPublisher`)."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._was_unfenced = False
        self._was_fenced = False
        """Since it was unfenced."""

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Begin anew with a whole state."""
        for _, record in BROKERS.find(metadata, (self._broker_id,)):
            self._see(record)

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
        elif self._was_unfenced and not registration.in_controlled_shutdown:
            self._was_unfenced, self._was_fenced = False, True
            logger.warning(
                f"Broker {self._broker_id} was fenced: the controller had no heartbeat of it for a session. Its"
                " partitions are led by other replicas in sync; those without one are offline."
            )
