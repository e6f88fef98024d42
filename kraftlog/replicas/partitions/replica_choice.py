"""Chooses the replica that a consumer should read from: one in its rack that has the offset, if possible (KIP-392).

The leader chooses, since only it knows its followers' offsets. Candidates are the unfenced followers in the ISR whose
logs have the offset. The leader chooses itself if it is in the consumer's rack, or if no candidate is; otherwise the
candidate in the rack with the highest log end offset.
"""

from __future__ import annotations

from typing import Final, Protocol

from kraftbase.errors import ApiError
from kraftlog.replicas.partitions.partition import Partition

NO_PREFERENCE: Final = -1
"""The leader itself answers."""


class Racks(Protocol):
    """The racks and states of brokers in the metadata."""

    def rack(self, broker_id: int) -> str:
        """Return a broker's rack; empty if unknown."""
        ...

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a broker is fenced."""
        ...


class RackAwareChoice:
    """The rule of Kafka's RackAwareReplicaSelector, on one broker."""

    def __init__(self, broker_id: int, cluster: Racks) -> None:
        self._broker_id = broker_id
        self._cluster = cluster

    def preferred(self, partition: Partition, offset: int, leader_epoch: int, rack: str) -> int:
        """Return the replica to read from, or NO_PREFERENCE, also if this broker does not lead in that epoch."""
        if not rack or rack == self._cluster.rack(self._broker_id):
            return NO_PREFERENCE
        try:
            partition.leader_log(leader_epoch)
        except ApiError:
            return NO_PREFERENCE
        ends = partition.followers_with(offset)
        near = [
            candidate
            for candidate in ends
            if self._cluster.rack(candidate) == rack and not self._cluster.is_fenced(candidate)
        ]
        return max(near, key=lambda replica: ends[replica], default=NO_PREFERENCE)
