"""What the admin commands do: arguments to requests, answers to rows. See `kraftlog.commands.clients` for reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.admin.client.client import NotSent
from kraftlog.commands.clients import QUERY_TIMEOUT_MS, committed_end_offset, connected_client
from kraftlog.commands.partition_admin import partition_row
from kraftlog.config.endpoints import parse_node_id
from statemachine.query.descriptions import BrokerDescription, BrokerListener, CreatedTopic, NewTopic, TopicDescription
from statemachine.words.resources import ResourceType

RESOURCE_TYPES: Final = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER}

DEFAULT_ENTITY: Final = "<default>"
"""How Kafka writes an entity without a name."""

CONFIGS_PER_QUERY: Final = 10_000
"""A node returns at most ten times as many rows at once."""


# --- arguments -----------------------------------------------------------------------------------------------------


def parse_configs(texts: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` each. Raises ConfigurationError."""
    configs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise ConfigurationError(f"{text!r} is not a config; write KEY=VALUE")
        if key in configs:
            raise ConfigurationError(f"{key} is set twice; keep one of them")
        configs[key] = value
    return configs


def parse_assignment(text: str) -> dict[int, list[int]]:
    """`1:2,2:3`: brokers 1 and 2 for partition 0, 2 and 3 for partition 1. Raises ConfigurationError."""
    try:
        partitions = [[int(parse_node_id(broker)) for broker in part.split(":")] for part in text.split(",")]
        return dict(enumerate(partitions))
    except ConfigurationError:
        raise ConfigurationError(
            f"{text!r} is not an assignment; write the brokers of each partition, as in 1:2,2:3"
        ) from None


# --- changes -------------------------------------------------------------------------------------------------------


async def create_topic(
    endpoints: Sequence[Endpoint], topic: NewTopic, *, if_not_exists: bool, validate_only: bool = False
) -> CreatedTopic | None:
    """Create a topic, or only validate it; return None if it exists and may exist. Raises ApiError."""
    async with connected_client(endpoints) as client:
        try:
            return (await client.create_topics([topic], validate_only=validate_only))[0]
        except ApiError as error:
            if if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return None
            raise


async def existing_topic(endpoints: Sequence[Endpoint], name: str) -> dict[str, Any]:
    """The id and the size of an existing topic. Raises ApiError."""
    (described,) = await topic_descriptions(endpoints, [name])
    return {key: described[key] for key in ("Topic", "TopicId", "PartitionCount", "ReplicationFactor")}


async def delete_topics(
    endpoints: Sequence[Endpoint], names: Sequence[str]
) -> AsyncGenerator[tuple[str, ApiError | None]]:
    """Delete topics one by one; report for each why it could not be deleted, or None. Raises NotSent, which names the
    topics that were not tried, when there is no leader to send to.
    """
    async with connected_client(endpoints) as client:
        for index, name in enumerate(names):
            problem = None
            try:
                await client.delete_topics([name])
            except NotSent as error:
                left = ", ".join(names[index:])
                raise NotSent(error.code, f"{error.args[0]}; not deleted: {left}") from None
            except ApiError as error:
                problem = error
            yield name, problem


async def register_broker(
    endpoints: Sequence[Endpoint], broker_id: int, listeners: Sequence[BrokerListener], rack: str | None
) -> int:
    """Register a broker; return its epoch. Raises ApiError."""
    async with connected_client(endpoints) as client:
        return await client.register_broker(broker_id, listeners, rack=rack)


async def fence_broker(endpoints: Sequence[Endpoint], broker_id: int) -> None:
    """Fence a broker until its next heartbeat. Raises ApiError."""
    async with connected_client(endpoints) as client:
        await client.fence_broker(broker_id)


async def unregister_broker(endpoints: Sequence[Endpoint], broker_id: int) -> None:
    """Unregister a broker. Raises ApiError."""
    async with connected_client(endpoints) as client:
        await client.unregister_broker(broker_id)


# --- reads ---------------------------------------------------------------------------------------------------------


async def topic_listing(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """One row per topic, by name."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        listed = await client.list_topics(min_applied_end_offset=offset)
    return [
        {
            "Topic": topic.name,
            "TopicId": topic.topic_id,
            "Partitions": topic.num_partitions,
            "ReplicationFactor": topic.replication_factor,
        }
        for topic in listed.topics
    ]


async def topic_descriptions(endpoints: Sequence[Endpoint], names: Sequence[str]) -> list[dict[str, Any]]:
    """Everything about these topics, or about all; raises ApiError for one that does not exist."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_topics(names, min_applied_end_offset=offset)
    return [_topic(topic) for topic in described.topics]


async def broker_listing(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """One row per broker, by id."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        listed = await client.list_brokers(min_applied_end_offset=offset)
    return [_broker(broker) for broker in listed.brokers]


async def broker_description(endpoints: Sequence[Endpoint], broker_id: int) -> dict[str, Any]:
    """One broker's registration. Raises ApiError if it is not registered."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        listed = await client.list_brokers(min_applied_end_offset=offset)
    found = next((broker for broker in listed.brokers if broker.broker_id == broker_id), None)
    if found is None:
        known = ", ".join(str(broker.broker_id) for broker in listed.brokers) or "none"
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered; these are: {known}")
    return {
        **_broker(found),
        "IncarnationId": found.incarnation_id,
        "LogDirs": list(found.log_dirs),
        "Features": [
            {"Feature": feature.name, "MinLevel": feature.min_level, "MaxLevel": feature.max_level}
            for feature in found.features
        ],
    }


async def query(endpoints: Sequence[Endpoint], sql: str) -> tuple[Sequence[str], Sequence[tuple[Any, ...]]]:
    """The columns and rows that one SQL statement returns. Raises ApiError."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints, QUERY_TIMEOUT_MS) as client:
        answer = await client.query(sql, min_applied_end_offset=offset)
    return answer.columns, answer.rows


async def config_listing(endpoints: Sequence[Endpoint], entity_type: str, entity_name: str) -> list[dict[str, str]]:
    """One row per config that is set, by name."""
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_configs(
            RESOURCE_TYPES[entity_type], entity_name, min_applied_end_offset=offset
        )
    return [{"Name": config.name, "Value": config.value} for config in described.configs]


async def all_config_listing(endpoints: Sequence[Endpoint], entity_type: str) -> list[dict[str, str]]:
    """One row per config that is set of any topic, or of any broker and the default of all, by entity and name."""
    offset = await committed_end_offset(endpoints)
    rows: list[dict[str, str]] = []
    async with connected_client(endpoints) as client:
        while True:
            answer = await client.query(_config_page(RESOURCE_TYPES[entity_type], rows), min_applied_end_offset=offset)
            rows += [dict(zip(("Entity", "Name", "Value"), map(str, row), strict=True)) for row in answer.rows]
            if len(answer.rows) < CONFIGS_PER_QUERY:
                return [{**row, "Entity": row["Entity"] or DEFAULT_ENTITY} for row in rows]


def _config_page(resource_type: int, rows: Sequence[Mapping[str, str]]) -> str:
    """The query for the rows after `rows`."""
    after = ""
    if rows:
        entity, name = (rows[-1][column].replace("'", "''") for column in ("Entity", "Name"))
        after = f" AND (resource_name, name) > ('{entity}', '{name}')"
    return (
        f"SELECT resource_name, name, value FROM configs WHERE resource_type = {int(resource_type)}{after}"  # noqa: S608
        f" ORDER BY resource_name, name LIMIT {CONFIGS_PER_QUERY}"
    )


def _topic(topic: TopicDescription) -> dict[str, Any]:
    return {
        "Topic": topic.name,
        "TopicId": topic.topic_id,
        "PartitionCount": len(topic.partitions),
        "ReplicationFactor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "Configs": {config.name: config.value for config in topic.configs},
        "Partitions": [partition_row(partition) for partition in topic.partitions],
    }


def _broker(broker: BrokerDescription) -> dict[str, Any]:
    return {
        "BrokerId": broker.broker_id,
        "BrokerEpoch": broker.broker_epoch,
        "Endpoints": [f"{at.name}://{Endpoint(at.host, at.port)}" for at in broker.listeners],
        "Rack": broker.rack,
        "Fenced": broker.fenced,
        "InControlledShutdown": broker.in_controlled_shutdown,
        "OlderLogDirs": list(broker.older_log_dirs),
    }
