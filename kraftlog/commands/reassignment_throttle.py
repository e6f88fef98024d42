"""The throttle of a reassignment (KIP-73): which configs `execute --throttle` sets, and which changes remove them. As
in kafka-reassign-partitions, each broker that sends or copies gets a rate, and each topic a list of the throttled
replicas. Brokers enforce both (`kraftlog.replicas.replication.throttle`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kraftbase.partition import TopicPartition
from kraftlog.admin.client.client import AdminClient
from statemachine.query.cluster_descriptions import ConfigChange, ConfigChangeKind
from statemachine.words.config_definitions import (
    FOLLOWER_RATE,
    LEADER_RATE,
    THROTTLED_FOLLOWERS,
    THROTTLED_LEADERS,
    VALUE_LENGTH_MAX,
)
from statemachine.words.resources import ResourceType

ALL_REPLICAS: Final = "*"
_RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
_LISTS: Final = (THROTTLED_LEADERS, THROTTLED_FOLLOWERS)


class Move(NamedTuple):
    """The move of one partition: the brokers that had it before, and the brokers that copy it."""

    sources: Sequence[int]
    destinations: Sequence[int]


def move_of(before: Sequence[int], wanted: Iterable[int]) -> Move:
    """The move from the replicas before all reassignments to these."""
    return Move(tuple(before), tuple(broker_id for broker_id in wanted if broker_id not in before))


def throttle_changes(moves: Mapping[TopicPartition, Move], rate: int) -> list[ConfigChange]:
    """The configs that limit these moves to `rate` bytes per second for each broker; a partition that no broker copies
    is left out.
    """
    copying = {at: move for at, move in moves.items() if move.destinations}
    brokers = sorted({broker_id for move in copying.values() for of in move for broker_id in of})
    changes = [
        ConfigChange(ResourceType.BROKER, str(broker_id), name, ConfigChangeKind.SET, str(rate))
        for broker_id in brokers
        for name in _RATES
    ]
    lists: dict[tuple[str, str], list[str]] = defaultdict(list)
    for at, move in sorted(copying.items()):
        for name, broker_ids in zip(_LISTS, move, strict=True):
            lists[at.topic, name] += [f"{at.partition_id}:{broker_id}" for broker_id in broker_ids]
    return changes + [
        ConfigChange(ResourceType.TOPIC, topic, name, ConfigChangeKind.SET, _joined(replicas))
        for (topic, name), replicas in lists.items()
    ]


def _joined(replicas: Sequence[str]) -> str:
    """A list that fits into a config: `*` for all replicas of the topic, if there are too many. In-sync replicas are
    never throttled.
    """
    value = ",".join(replicas)
    return value if len(value) <= VALUE_LENGTH_MAX else ALL_REPLICAS


def removals(resource_type: ResourceType, name: str, configs: Iterable[str]) -> list[ConfigChange]:
    """The changes that remove the throttles of a broker or topic with these configs."""
    return [
        ConfigChange(resource_type, name, config, ConfigChangeKind.DELETE)
        for config in configs
        if config in _RATES or config in _LISTS
    ]


async def set_throttle(client: AdminClient, moves: Mapping[TopicPartition, Move], rate: int, end_offset: int) -> None:
    """Limit these moves and those in progress: a topic has one list for all of its moves. Raises ApiError."""
    listed = await client.list_partition_reassignments(min_applied_end_offset=end_offset)
    all_moves = {
        TopicPartition(of.topic, of.partition_id): Move(
            tuple(broker_id for broker_id in of.replicas if broker_id not in of.adding_replicas), of.adding_replicas
        )
        for of in listed.reassignments
    }
    changes = throttle_changes({**all_moves, **moves}, rate)
    if changes:
        await client.alter_configs(changes)


async def remove_throttles(client: AdminClient, topics: Iterable[str], end_offset: int) -> bool:
    """Remove the throttles of these topics and of all brokers, unless a partition is still being moved; return whether
    any was removed. Reads metadata of `end_offset` or later. Raises ApiError.
    """
    moved = await client.list_partition_reassignments(min_applied_end_offset=end_offset)
    if moved.reassignments:
        return False
    registered = (await client.list_brokers(min_applied_end_offset=end_offset)).brokers
    resources = [(ResourceType.BROKER, str(broker.broker_id)) for broker in registered]
    resources += [(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
    changes = []
    for kind, name in resources:
        described = await client.describe_configs(kind, name, min_applied_end_offset=end_offset)
        changes += removals(kind, name, (config.name for config in described.configs))
    if changes:
        await client.alter_configs(changes)
    return bool(changes)
