"""The reassignments in progress."""

from __future__ import annotations

from typing import Final

from kraftpb.v1.admin_pb2 import (
    OngoingReassignment,
)
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.tables.table import Key

PARTITIONS_PER_PAGE: Final = 1_000
"""How many partitions are read at a time when all are listed."""


def is_reassigning(partition: PartitionRecord) -> bool:
    """Whether a reassignment of the partition is in progress."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def list_reassignments(state: MetadataState) -> list[OngoingReassignment]:
    """The reassignments in progress, by topic name and partition id (CT-26)."""
    found: list[OngoingReassignment] = []
    after: Key | None = None
    while True:
        page = state.all_partitions(after, PARTITIONS_PER_PAGE)
        found += [
            OngoingReassignment(
                topic=state.topic_name(partition.topic_id) or "",
                partition_id=partition.partition_id,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                isr=partition.isr,
            )
            for partition in page
            if is_reassigning(partition)
        ]
        if len(page) < PARTITIONS_PER_PAGE:
            return sorted(found, key=lambda reassignment: (reassignment.topic, reassignment.partition_id))
        after = (page[-1].topic_id, page[-1].partition_id)
