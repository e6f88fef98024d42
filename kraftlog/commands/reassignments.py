"""What `kraftlog reassign` does: propose, execute, verify and cancel an assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.commands.clients import committed_end_offset, connected_client
from kraftlog.commands.partition_admin import outcome_row
from kraftlog.commands.reassignment_throttle import move_of, remove_throttles, set_throttle
from kraftlog.controller.rules.placement import PlacementBroker, ReplicaPlacer
from statemachine.query.descriptions import BrokerDescription, PartitionDescription
from statemachine.query.reads import DESCRIBED_TOPICS_MAX
from statemachine.words.names import quoted

ACCEPTED: Final = "accepted"
CANCELLED: Final = "cancelled"
NOT_UNDER_WAY: Final = "not in progress"

COMPLETED: Final = "completed"
IN_PROGRESS: Final = "in progress"
DIFFERENT: Final = "different"

Assignment = dict[TopicPartition, list[int]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where the replicas of partitions are, and where they could be moved."""

    current: Assignment
    proposed: Assignment
    inactive_brokers: tuple[int, ...]
    """The named brokers that are fenced or shutting down: used only if the others are too few."""


async def propose(endpoints: Sequence[Endpoint], topics: Sequence[str], broker_ids: Sequence[int]) -> Proposal:
    """An assignment of these topics to these brokers, balanced and spread over racks. Changes nothing.

    Raises ApiError if a topic does not exist, or brokers are not registered, too few, or all inactive.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        partitions = await _partitions(client, topics, offset)
        registered = (await client.list_brokers(min_applied_end_offset=offset)).brokers
    brokers = _named_brokers(registered, broker_ids)
    return Proposal(
        current={at: original_replicas(partition) for at, partition in partitions.items()},
        proposed=propose_assignment(partitions, brokers, SystemRandom()),
        inactive_brokers=tuple(broker_id for broker_id, broker in brokers.items() if not broker.is_active),
    )


def propose_assignment(
    partitions: Mapping[TopicPartition, PartitionDescription], brokers: Mapping[int, PlacementBroker], random: Random
) -> Assignment:
    """As many replicas for each partition as it has, or will have, placed like the replicas of new partitions.

    Raises ApiError(INVALID_REPLICATION_FACTOR) if the brokers are too few, or none is active.
    """
    if not any(broker.is_active for broker in brokers.values()):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"each of the brokers {_listed(brokers)} is fenced or shutting down; start one, or name another",
        )
    placer = ReplicaPlacer(brokers, random)
    proposed: Assignment = {}
    for at, partition in partitions.items():
        num_replicas = len(target_replicas(partition))
        if num_replicas > len(brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{_name(at)} has {num_replicas} replicas, and the brokers are only {_listed(brokers)}; name"
                f" {num_replicas} or more",
            )
        (proposed[at],) = placer.place(1, num_replicas)
    return proposed


async def present_assignment(endpoints: Sequence[Endpoint], wanted: Mapping[TopicPartition, object]) -> Assignment:
    """The replicas of these partitions, without those that a reassignment adds: the assignment to roll back to.

    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) if one of them does not exist.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        found = await _chosen(client, wanted, offset)
    return {at: original_replicas(partition) for at, partition in found.items()}


async def execute(
    endpoints: Sequence[Endpoint], wanted: Mapping[TopicPartition, Sequence[int]], throttle: int | None
) -> list[dict[str, Any]]:
    """Start to move partitions, at most `throttle` bytes per second through each broker; one row each.

    Raises ApiError, and changes nothing, if a broker is not registered.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        registered = (await client.list_brokers(min_applied_end_offset=offset)).brokers
        _named_brokers(registered, dict.fromkeys(broker_id for replicas in wanted.values() for broker_id in replicas))
        if throttle is not None:
            found = await _chosen(client, wanted, offset)
            moves = {at: move_of(original_replicas(found[at]), replicas) for at, replicas in wanted.items()}
            await set_throttle(client, moves, throttle, offset)
        outcomes = await client.alter_partition_reassignments(wanted)
    return [outcome_row(outcome, ACCEPTED, {}) for outcome in outcomes]


async def cancel(endpoints: Sequence[Endpoint], partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Cancel the reassignments of these partitions; one row each. Raises ApiError."""
    async with connected_client(endpoints) as client:
        outcomes = await client.alter_partition_reassignments(dict.fromkeys(partitions))
    harmless = {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: NOT_UNDER_WAY}
    return [outcome_row(outcome, CANCELLED, harmless) for outcome in outcomes]


async def verify(endpoints: Sequence[Endpoint], wanted: Mapping[TopicPartition, Sequence[int]]) -> list[dict[str, Any]]:
    """The progress of the reassignment of the partitions to these replicas; one row each.

    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) if one of them does not exist.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        found = await _chosen(client, wanted, offset)
    return [verified_row(at, replicas, found[at]) for at, replicas in wanted.items()]


async def take_throttles_back(endpoints: Sequence[Endpoint], partitions: Iterable[TopicPartition]) -> bool:
    """Remove the throttles of all brokers and these topics, unless a partition is still being moved; return whether any
    was removed. Raises ApiError.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        return await remove_throttles(client, (at.topic for at in partitions), offset)


def verified_row(at: TopicPartition, wanted: Sequence[int], partition: PartitionDescription) -> dict[str, Any]:
    """Whether a partition has these replicas, in that order, or is being moved to them."""
    is_moving = bool(partition.adding_replicas or partition.removing_replicas)
    status = IN_PROGRESS if is_moving else COMPLETED
    return {
        "Topic": at.topic,
        "Partition": at.partition_id,
        "Status": status if target_replicas(partition) == list(wanted) else DIFFERENT,
        "Wanted": list(wanted),
        "Replicas": list(partition.replicas),
        "Isr": list(partition.isr),
        "Adding": list(partition.adding_replicas),
        "Removing": list(partition.removing_replicas),
    }


async def reassignment_listing(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """One row per partition that is being reassigned."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        listed = await client.list_partition_reassignments(min_applied_end_offset=offset)
    return [
        {
            "Topic": ongoing.topic,
            "Partition": ongoing.partition_id,
            "Replicas": list(ongoing.replicas),
            "Isr": list(ongoing.isr),
            "Adding": list(ongoing.adding_replicas),
            "Removing": list(ongoing.removing_replicas),
        }
        for ongoing in listed.reassignments
    ]


def original_replicas(partition: PartitionDescription) -> list[int]:
    """A partition's replicas before the present reassignment, if any; cancelling it restores these."""
    return [broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas]


def target_replicas(partition: PartitionDescription) -> list[int]:
    """A partition's replicas after the present reassignment, if any, completes."""
    return [broker_id for broker_id in partition.replicas if broker_id not in partition.removing_replicas]


# --- the cluster ------------------------------------------------------------------------------------------------------


async def _partitions(
    client: AdminClient, topics: Iterable[str], offset: Offset
) -> dict[TopicPartition, PartitionDescription]:
    """All partitions of these topics, as of `offset` or later. Raises ApiError for a topic that does not exist."""
    names = list(dict.fromkeys(topics))
    found: dict[TopicPartition, PartitionDescription] = {}
    for start in range(0, len(names), DESCRIBED_TOPICS_MAX):
        some = names[start : start + DESCRIBED_TOPICS_MAX]
        for topic in (await client.describe_topics(some, min_applied_end_offset=offset)).topics:
            for partition in topic.partitions:
                found[TopicPartition(topic.name, partition.partition_id)] = partition
    return found


async def _chosen(
    client: AdminClient, wanted: Iterable[TopicPartition], offset: Offset
) -> dict[TopicPartition, PartitionDescription]:
    """These partitions. Raises ApiError for a partition that does not exist."""
    wanted = list(wanted)
    found = await _partitions(client, (at.topic for at in wanted), offset)
    missing = next((at for at in wanted if at not in found), None)
    if missing is not None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {quoted(missing.topic)} has no partition {missing.partition_id}; leave it out of the file",
        )
    return {at: found[at] for at in wanted}


def _named_brokers(registered: Iterable[BrokerDescription], broker_ids: Iterable[int]) -> dict[int, PlacementBroker]:
    """These brokers. Raises ApiError(BROKER_ID_NOT_REGISTERED) for a broker that is not registered."""
    known = {
        broker.broker_id: PlacementBroker(not (broker.fenced or broker.in_controlled_shutdown), rack=broker.rack)
        for broker in registered
    }
    for broker_id in broker_ids:
        if broker_id not in known:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"broker {broker_id} is not registered; these are: {_listed(known) or 'none'}",
            )
    return {broker_id: known[broker_id] for broker_id in broker_ids}


def _name(at: TopicPartition) -> str:
    return f"partition {at.partition_id} of topic {quoted(at.topic)}"


def _listed(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, broker_ids))
