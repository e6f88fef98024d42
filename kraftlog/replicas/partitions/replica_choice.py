"""Which replica a consumer is to read from: one in its own rack, if there is one that has what it asks for (KIP-392).

The leader chooses, since it alone knows how far its followers are. Those in the ISR count whose log has the offset. The
leader itself is chosen if it is in the rack, or if nobody is; else the follower that has most.
"""

from __future__ import annotations

from typing import Final, Protocol

from kraftbase.errors import ApiError
from kraftlog.replicas.partitions.partition import Partition

NO_PREFERENCE: Final = -1
"""The leader answers itself."""


class Racks(Protocol):
    """What the metadata says of brokers."""

    def rack(self, broker_id: int) -> str:
        """Where a broker is; empty if that is not known."""
        ...

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a broker is fenced."""
        ...


class RackAwareChoice:
    """Kafka's RackAwareReplicaSelector, at one broker."""

    def __init__(self, broker_id: int, cluster: Racks) -> None:
        self._broker_id = broker_id
        self._cluster = cluster

    def preferred(self, partition: Partition, offset: int, leader_epoch: int, rack: str) -> int:
        """The replica to read from, or NO_PREFERENCE: also if this broker does not lead in that epoch, as it says."""
        if not rack or rack == self._cluster.rack(self._broker_id):
            return NO_PREFERENCE
        try:
            partition.leader_log(leader_epoch)
        except ApiError:
            return NO_PREFERENCE
        ends = partition.followers_with(offset)
        near = [one for one in ends if self._cluster.rack(one) == rack and not self._cluster.is_fenced(one)]
        return max(near, key=lambda replica: ends[replica], default=NO_PREFERENCE)
