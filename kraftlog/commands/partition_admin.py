"""What the commands about partitions do: arguments to requests, answers to rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, id_to_text
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import NO_LEADER
from kraftlog.commands.clients import committed_end_offset, connected_client
from kraftlog.config.endpoints import parse_node_id
from statemachine.query.descriptions import ConfigValue, PartitionDescription, TopicDescription
from statemachine.query.partition_descriptions import ElectionType, PartitionOutcome, RemoteSegment
from statemachine.tables.sql_views import MIN_ISR_CONFIG
from statemachine.words.names import quoted
from statemachine.words.remote_log_states import segment_state_name
from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

Value = TypeVar("Value")

_DAMAGED: Final = id_to_text(DAMAGED_DIRECTORY)
MIN_ISR_DEFAULT: Final = 1

ELECTED: Final = "elected"
NOT_NEEDED: Final = "not needed"
FAILED: Final = "failed"


# --- arguments --------------------------------------------------------------------------------------------------------


def parse_topics(text: str) -> list[str]:
    """`a,b`: names of topics, each once. Raises ConfigurationError."""
    names = text.split(",")
    if not all(names):
        raise ConfigurationError(f"{text!r} has a topic without a name; write names with commas, as in a,b")
    return _each_once(names, "topic")


def parse_broker_ids(text: str) -> list[int]:
    """`1,2,3`: ids of brokers, each once. Raises ConfigurationError."""
    try:
        broker_ids = [int(parse_node_id(part)) for part in text.split(",")]
    except ConfigurationError:
        raise ConfigurationError(f"{text!r} are not brokers; write their ids with commas, as in 1,2,3") from None
    return _each_once(broker_ids, "broker")


def _each_once(values: list[Value], what: str) -> list[Value]:
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise ConfigurationError(f"{what} {repeated} appears more than once; name each {what} once")
    return values


# --- partitions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """The partitions to show: those that meet every given condition."""

    under_replicated: bool = False
    """A replica that is neither being added nor being removed is out of sync."""
    unavailable: bool = False
    """It has no leader."""
    under_min_isr: bool = False
    """Fewer replicas are in sync than min.insync.replicas requires, and not all."""
    leader: int | None = None
    """This broker leads it."""
    at_min_isr: bool = False
    """Exactly as many replicas are in sync as min.insync.replicas requires, or all if there are fewer."""

    def takes(self, partition: PartitionDescription, min_isr: int) -> bool:
        """Whether a partition, of a topic with this min.insync.replicas, meets the conditions."""
        expected = set(partition.replicas) - set(partition.adding_replicas) - set(partition.removing_replicas)
        min_isr = min(min_isr, len(partition.replicas))  # as brokers count (DB-22)
        return not (
            (self.under_replicated and expected <= set(partition.isr))
            or (self.unavailable and partition.leader != NO_LEADER)
            or (self.under_min_isr and len(partition.isr) >= min_isr)
            or (self.leader is not None and partition.leader != self.leader)
            or (self.at_min_isr and len(partition.isr) != min_isr)
        )


async def partition_listing(
    endpoints: Sequence[Endpoint], topic: str | None, wanted: PartitionFilter
) -> list[dict[str, Any]]:
    """One row per partition of that topic, or of all, by topic and partition.

    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) if the topic does not exist.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        described = await client.describe_topics([] if topic is None else [topic], min_applied_end_offset=offset)
        configs = await client.describe_configs(ResourceType.BROKER, CLUSTER_DEFAULT, min_applied_end_offset=offset)
    return partition_rows(described.topics, wanted, _min_isr(configs.configs, MIN_ISR_DEFAULT))


def partition_rows(
    topics: Iterable[TopicDescription], wanted: PartitionFilter, min_isr_default: int = MIN_ISR_DEFAULT
) -> list[dict[str, Any]]:
    """One row per partition that is wanted. The default is that of topics that have not set min.insync.replicas."""
    return [
        {"Topic": topic.name, **partition_row(partition)}
        for topic in topics
        for partition in topic.partitions
        if wanted.takes(partition, _min_isr(topic.configs, min_isr_default))
    ]


def partition_row(partition: PartitionDescription) -> dict[str, Any]:
    """A partition as a row, without its topic."""
    return {
        "Partition": partition.partition_id,
        "Leader": partition.leader,
        "LeaderEpoch": partition.leader_epoch,
        "Replicas": list(partition.replicas),
        "Isr": list(partition.isr),
        "Elr": list(partition.eligible_leader_replicas),
        "LastKnownElr": list(partition.last_known_elr),
        "Damaged": [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if directory == _DAMAGED
        ],
        "Adding": list(partition.adding_replicas),
        "Removing": list(partition.removing_replicas),
    }


def _min_isr(configs: Iterable[ConfigValue], default: int) -> int:
    return next((int(config.value) for config in configs if config.name == MIN_ISR_CONFIG), default)


async def add_partitions(endpoints: Sequence[Endpoint], topic: str, count: int) -> None:
    """Raise the topic's number of partitions to `count`. Raises ApiError."""
    async with connected_client(endpoints) as client:
        await client.create_partitions(topic, count)


# --- elections --------------------------------------------------------------------------------------------------------


async def elect(
    endpoints: Sequence[Endpoint], election_type: ElectionType, partitions: Sequence[TopicPartition] | None
) -> list[dict[str, Any]]:
    """Hold elections; one row for each of `partitions`, or (None) for each partition that needed one.

    Raises ApiError if none was held.
    """
    async with connected_client(endpoints) as client:
        outcomes = await client.elect_leaders(election_type, partitions)
    return [outcome_row(outcome, ELECTED, {ErrorCode.ELECTION_NOT_NEEDED: NOT_NEEDED}) for outcome in outcomes]


def outcome_row(outcome: PartitionOutcome, done: str, harmless: dict[ErrorCode, str]) -> dict[str, Any]:
    """A row with the result: `done`, the word for a harmless error, or "failed" with Kafka's error name. A successful
    result may also have a reason.
    """
    is_done = outcome.code is ErrorCode.NONE
    is_failed = not is_done and outcome.code not in harmless
    return {
        "Topic": outcome.topic,
        "Partition": outcome.partition_id,
        "Result": done if is_done else harmless.get(outcome.code, FAILED),
        "Error": outcome.code.name if is_failed else None,
        "Reason": outcome.message or None,
    }


# --- remote segments --------------------------------------------------------------------------------------------------


async def remote_segments(
    endpoints: Sequence[Endpoint], topic: str, partition_id: int, leader_epoch: int | None
) -> dict[str, Any]:
    """The segments in remote storage of a partition, or of one of its leader epochs.

    Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) if the partition does not exist.
    """
    offset = await committed_end_offset(endpoints)
    async with connected_client(endpoints) as client:
        (described,) = (await client.describe_topics([topic], min_applied_end_offset=offset)).topics
        if all(partition.partition_id != partition_id for partition in described.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {quoted(topic)} has no partition {partition_id}; it has {len(described.partitions)}, from 0 on",
            )
        listed = await client.list_remote_log_segments(
            described.topic_id, partition_id, leader_epoch=leader_epoch, min_applied_end_offset=offset
        )
    return {
        "Topic": topic,
        "TopicId": described.topic_id,
        "Partition": partition_id,
        "SizeBytes": listed.size_bytes,
        "Segments": list(map(segment_row, listed.segments)),
    }


def segment_row(segment: RemoteSegment) -> dict[str, Any]:
    """A remote segment as a row."""
    return {
        "SegmentId": segment.segment_id,
        "StartOffset": segment.start_offset,
        "EndOffset": segment.end_offset,
        "LeaderEpochs": {str(entry.leader_epoch): entry.start_offset for entry in segment.leader_epochs},
        "State": segment_state_name(segment.state),
        "SizeBytes": segment.size_bytes,
        "BrokerId": segment.broker_id,
        "MaxTimestamp": segment.max_timestamp_ms,
        "EventTimestamp": segment.event_timestamp_ms,
        "CustomMetadata": None if segment.custom_metadata is None else segment.custom_metadata.hex(),
        "TxnIndexEmpty": segment.txn_index_empty,
    }
