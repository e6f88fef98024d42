"""How partitions change when a broker leaves or returns (CT-31), one page of partitions at a time.

From the latest metadata to PartitionChange records. Nothing changes here. The record of the broker itself
(BrokerRegistrationChange, UnregisterBroker) is made elsewhere. For a broker that leaves it may come before or after:
the broker counts as gone, whatever the metadata state. For one that returns it must come before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.rules.partition_change import Target
from kraftlog.controller.rules.partition_context import PartitionChanges, is_in_older_directory
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState


def partitions_without(
    state: MetadataState,
    broker_id: int,
    partitions: Iterable[PartitionRecord],
    *,
    may_have_lost_data: bool = False,
    older_log_dirs: Collection[bytes] = (),
) -> list[MetadataRecord]:
    """Take a broker out of the ISR and the leadership of those of `partitions` that have it there (CT-31).

    It is for a broker that is fenced or begins a controlled shutdown. After an unclean shutdown, or when a broker is
    unregistered, it `may_have_lost_data`: then it is no longer eligible to lead, either (CT-56). Partitions that do not
    have the broker there are skipped, so a page may be repeated. Without eligible leader replicas the last member of an
    ISR stays in it, and does not lead (CT-52).

    A replica in one of `older_log_dirs` has certainly lost data: it does not stay in an ISR as the last member, and is
    not the last known leader either (CT-38).
    """
    changes = PartitionChanges(state, departing=(broker_id,))
    records = []
    for partition in partitions:
        is_older = is_in_older_directory(partition, broker_id, older_log_dirs)
        has_lost = may_have_lost_data or is_older
        counts = (
            broker_id in partition.isr
            or partition.leader == broker_id
            or (has_lost and broker_id in partition.eligible_leader_replicas)
            or (is_older and broker_id in partition.last_known_elr)
        )
        if counts:
            target = Target(
                isr=[member for member in partition.isr if member != broker_id],
                lost_data=(broker_id,) if has_lost else (),
                begins_anew=(broker_id,) if is_older else (),
                election=changes.election(partition.topic_id),
            )
            record = changes.change(partition, target)
            if record is not None:
                records.append(record)
    return records


def leaders_where_none(state: MetadataState, partitions: Iterable[PartitionRecord]) -> list[MetadataRecord]:
    """Elect leaders for those of `partitions` that have none and can have one now: a broker is unfenced (CT-31)."""
    changes = PartitionChanges(state)
    records = []
    for partition in partitions:
        if partition.leader == NO_LEADER:
            record = changes.change(partition, Target(election=changes.election(partition.topic_id)))
            if record is not None and record.partition_change.HasField("leader"):
                records.append(record)
    return records
