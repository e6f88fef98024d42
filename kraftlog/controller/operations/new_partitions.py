"""New partitions, of a topic that is created or that grows: where their replicas are placed, and their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftlog.controller.rules.placement import PlacementBroker, ReplicaPlacer, placement_brokers
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.record_versions import in_version

PARTITIONS_PER_TOPIC_MAX: Final = RECORDS_PER_BATCH_MAX - 1
"""A topic is created, and with its remote data deleted, by one batch: a record for it, and one for each partition."""


class NewPartitions:
    """Makes the partitions that one request asks for. Brokers are read once."""

    def __init__(self, state: MetadataState, random: Random) -> None:
        self._state = state
        self._random = random

    @cached_property
    def _brokers(self) -> dict[int, PlacementBroker]:
        return placement_brokers(self._state)

    @cached_property
    def _placer(self) -> ReplicaPlacer:
        # One for all topics of the request, so that leaders are spread evenly over many small ones, too.
        return ReplicaPlacer(self._brokers, self._random)

    @cached_property
    def _metadata_version(self) -> int:
        return self._state.metadata_version

    def place(self, num_partitions: int, replication_factor: int) -> list[list[int]]:
        """The replicas of this many partitions. Raises ApiError(INVALID_REPLICATION_FACTOR) (CT-32)."""
        return self._placer.place(num_partitions, replication_factor)

    def check_replicas(self, partition_id: int, replicas: Sequence[int]) -> None:
        """Raise ApiError(INVALID_REPLICA_ASSIGNMENT) unless a request may assign a partition to `replicas`."""
        if not replicas:
            raise invalid_assignment(f"partition {partition_id} has no replicas; give at least one broker")
        if len(replicas) > len(self._brokers):
            raise invalid_assignment(
                f"partition {partition_id} has {len(replicas)} replicas, but only {len(self._brokers)} brokers are"
                " registered"
            )
        for broker_id, occurrences in Counter(replicas).items():
            if occurrences > 1:
                raise invalid_assignment(f"partition {partition_id} has broker {broker_id} more than once")
            if broker_id not in self._brokers:
                raise invalid_assignment(
                    f"partition {partition_id} is assigned to broker {broker_id}, which is not registered"
                )
        if not any(self._brokers[broker_id].is_active for broker_id in replicas):
            raise invalid_assignment(
                f"all brokers of partition {partition_id} are fenced or shutting down; add one that is not"
            )

    def records(
        self, topic_id: bytes, first_partition_id: int, assignment: Sequence[Sequence[int]]
    ) -> list[MetadataRecord]:
        """The records of partitions with these replicas; each has an active broker among them (CT-03)."""
        return [
            in_version(self._record(topic_id, partition_id, replicas), self._metadata_version)
            for partition_id, replicas in enumerate(assignment, first_partition_id)
        ]

    def _record(self, topic_id: bytes, partition_id: int, replicas: Sequence[int]) -> MetadataRecord:
        """A new partition: epochs 0, the ISR the active replicas in order, the leader the first of them (CT-03)."""
        isr = [broker_id for broker_id in replicas if self._brokers[broker_id].is_active]
        return MetadataRecord(
            partition=PartitionRecord(
                partition_id=partition_id,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                directories=[self._brokers[broker_id].directory or UNASSIGNED_DIRECTORY for broker_id in replicas],
            )
        )


def invalid_assignment(reason: str) -> ApiError:
    """The refusal of an assignment that a request gives."""
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
