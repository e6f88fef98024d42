"""CreateTopics and DeleteTopics: from a request and the latest state to records and an answer. Nothing changes here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from kraftpb.v1.admin_pb2 import (
    CreatableTopic,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicReference,
)
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from raft.core.errors import ErrorCode, ProtocolError
from statemachine.config_definitions import check_config, check_topic_configs
from statemachine.ids import ID_BYTES, UNASSIGNED_DIRECTORY, id_to_text, is_reserved, random_id
from statemachine.limits import check_record_count
from statemachine.names import check_name_lengths, check_topic_name, collision_key, quoted
from statemachine.overlay import Overlay, PlacementBroker
from statemachine.placement import place_replicas
from statemachine.resources import CLUSTER_DEFAULT, ResourceType

FROM_DEFAULT: Final = -1
"""A partition count or replication factor that the cluster's default decides."""

RECORDS_PER_TOPIC_MIN: Final = 2
"""The topic itself and its only partition."""

NUM_PARTITIONS_DEFAULT: Final = "1"
REPLICATION_FACTOR_DEFAULT: Final = "1"


# --- CreateTopics -----------------------------------------------------------------------------------------------------


def create_topics(
    state: Overlay, request: CreateTopicsRequest, random: Random
) -> tuple[list[MetadataRecord], CreateTopicsResponse]:
    """The records that create the topics that can be created, and an answer for each topic, in their order.

    Raises ProtocolError(RECORD_LIST_TOO_LARGE) if they are too many for one batch (CT-12), INVALID_REQUEST if a name is
    far too long.
    """
    check_record_count(RECORDS_PER_TOPIC_MIN * len(request.topics))
    check_name_lengths(topic.name for topic in request.topics)
    repeated = repeats(topic.name for topic in request.topics)
    creation = _Creation(state, random)
    response = CreateTopicsResponse()
    for topic in request.topics:
        try:
            if topic.name in repeated:
                raise _repeated(topic.name)
            response.topics.append(creation.create(topic))
        except ProtocolError as error:
            if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
                raise
            response.topics.add(name=topic.name, error_code=error.code, error_message=error.args[0])
    return ([] if request.validate_only else creation.records), response


class _Creation:
    """The topics that one request has created so far."""

    def __init__(self, state: Overlay, random: Random) -> None:
        self._state = state
        self._random = random
        self._brokers: dict[int, PlacementBroker] | None = None
        self._names: dict[str, str] = {}
        """Those created by this request, by collision key."""
        self.records: list[MetadataRecord] = []

    def create(self, topic: CreatableTopic) -> CreatedTopic:
        """Validate everything, then make the records: Topic, Config*, Partition*."""
        self._check_name(topic.name)
        configs = _checked_configs(topic)
        assignment = self._assignment(topic, len(configs))
        topic_id = self._new_topic_id()
        self._names[collision_key(topic.name)] = topic.name
        self.records.append(MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic_id)))
        self.records += [
            MetadataRecord(
                config=ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            )
            for name, value in configs.items()
        ]
        self.records += [
            self._partition(topic_id, partition_id, replicas) for partition_id, replicas in enumerate(assignment)
        ]
        return CreatedTopic(
            name=topic.name,
            topic_id=topic_id,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
        )

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        if self._state.topic_id(name) is not None:
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {quoted(name)} exists already")
        other = self._names.get(collision_key(name)) or self._state.colliding_topic(name)
        if other is not None:
            raise ProtocolError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {quoted(name)} collides with {quoted(other)}: names must differ in more than '.' and '_'",
            )

    def _assignment(self, topic: CreatableTopic, num_configs: int) -> Sequence[Sequence[int]]:
        """The replicas of each partition."""
        if topic.assignments:
            check_record_count(len(self.records) + 1 + num_configs + len(topic.assignments))
            return _manual_assignment(topic, self._placement_brokers())
        replication_factor = self._count(
            topic.replication_factor,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "replication factor",
            "default.replication.factor",
            REPLICATION_FACTOR_DEFAULT,
        )
        num_partitions = self._count(
            topic.num_partitions,
            ErrorCode.INVALID_PARTITIONS,
            "number of partitions",
            "num.partitions",
            NUM_PARTITIONS_DEFAULT,
        )
        check_record_count(len(self.records) + 1 + num_configs + num_partitions)
        brokers = self._placement_brokers()
        return place_replicas(
            [broker_id for broker_id, broker in brokers.items() if broker.is_active],
            [broker_id for broker_id, broker in brokers.items() if not broker.is_active],
            num_partitions,
            replication_factor,
            self._random,
        )

    def _count(self, given: int, error: ErrorCode, what: str, config: str, default: str) -> int:
        if given == FROM_DEFAULT:
            return int(self._state.configs(ResourceType.BROKER, CLUSTER_DEFAULT).get(config, default))
        if given < 1:
            raise ProtocolError(
                error, f"the {what} is {given}; it must be at least 1, or -1 for the cluster's {config}"
            )
        return given

    def _placement_brokers(self) -> dict[int, PlacementBroker]:
        if self._brokers is None:
            self._brokers = self._state.placement_brokers()
        return self._brokers

    def _new_topic_id(self) -> bytes:
        while True:
            topic_id = random_id(self._random)
            if self._state.topic_name(topic_id) is None:
                return topic_id

    def _partition(self, topic_id: bytes, partition_id: int, replicas: Sequence[int]) -> MetadataRecord:
        """A new partition: epochs 0, the ISR the active replicas in order, the leader the first of them (CT-03)."""
        brokers = self._placement_brokers()
        isr = [broker_id for broker_id in replicas if brokers[broker_id].is_active]
        return MetadataRecord(
            partition=PartitionRecord(
                partition_id=partition_id,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                directories=[brokers[broker_id].directory or UNASSIGNED_DIRECTORY for broker_id in replicas],
            )
        )


def _checked_configs(topic: CreatableTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for entry in topic.configs:
        if entry.name in configs:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"config {quoted(entry.name)} is given more than once")
        check_config(ResourceType.TOPIC, entry.name, entry.value if entry.HasField("value") else None)
        configs[entry.name] = entry.value
    check_topic_configs(configs)
    return configs


def _manual_assignment(topic: CreatableTopic, brokers: Mapping[int, PlacementBroker]) -> Sequence[Sequence[int]]:
    """The assignment that the request gives, checked. Counts beside it are an INVALID_REQUEST, as in Kafka."""
    if topic.num_partitions != FROM_DEFAULT or topic.replication_factor != FROM_DEFAULT:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            "with a manual assignment the number of partitions and the replication factor must both be -1",
        )
    by_partition: dict[int, Sequence[int]] = {}
    for assignment in topic.assignments:
        partition_id, replicas = assignment.partition_id, assignment.broker_ids
        if partition_id in by_partition:
            raise _invalid_assignment(f"partition {partition_id} is assigned more than once")
        _check_replicas(partition_id, replicas, brokers)
        if by_partition and len(replicas) != len(next(iter(by_partition.values()))):
            raise _invalid_assignment(
                f"partition {partition_id} has {len(replicas)} replicas; all partitions must have as many as the first"
            )
        by_partition[partition_id] = list(replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise _invalid_assignment("the partitions must be numbered from 0 without a gap")
    return [by_partition[partition_id] for partition_id in range(len(by_partition))]


def _check_replicas(partition_id: int, replicas: Sequence[int], brokers: Mapping[int, PlacementBroker]) -> None:
    if not replicas:
        raise _invalid_assignment(f"partition {partition_id} has no replicas")
    if len(replicas) > len(brokers):
        raise _invalid_assignment(
            f"partition {partition_id} has {len(replicas)} replicas, but only {len(brokers)} brokers are registered"
        )
    for broker_id in repeats(replicas):
        raise _invalid_assignment(f"partition {partition_id} has broker {broker_id} more than once")
    for broker_id in replicas:
        if broker_id not in brokers:
            raise _invalid_assignment(
                f"partition {partition_id} is assigned to broker {broker_id}, which is not registered"
            )
    if not any(brokers[broker_id].is_active for broker_id in replicas):
        raise _invalid_assignment(f"all brokers of partition {partition_id} are fenced or shutting down")


def _invalid_assignment(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


def delete_topics(state: Overlay, request: DeleteTopicsRequest) -> tuple[list[MetadataRecord], DeleteTopicsResponse]:
    """The records that remove the topics that are there, and an answer for each reference, in their order.

    Raises ProtocolError(RECORD_LIST_TOO_LARGE) if they are too many for one batch (CT-12), INVALID_REQUEST if a name is
    far too long.
    """
    check_record_count(len(request.topics))
    check_name_lengths(topic.name for topic in request.topics)
    found = [_find(state, reference) for reference in request.topics]
    repeated = repeats(topic.topic_id for topic in found if not topic.error_code)
    records = []
    for topic in found:
        if topic.error_code:
            continue
        if topic.topic_id in repeated:
            error = _repeated(topic.name)
            topic.error_code, topic.error_message = error.code, error.args[0]
        else:
            records.append(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic.topic_id)))
    return records, DeleteTopicsResponse(topics=found)


def _find(state: Overlay, reference: TopicReference) -> DeletedTopic:
    """The topic that is meant, or the error that says why none is."""
    name, topic_id = reference.name, reference.topic_id
    answer = DeletedTopic(name=name, topic_id=topic_id)
    if bool(name) == bool(topic_id):
        answer.error_code, answer.error_message = (
            ErrorCode.INVALID_REQUEST,
            "give a topic's name or its id, not both",
        )
    elif name:
        found = state.topic_id(name)
        if found is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = f"there is no topic {quoted(name)}"
        else:
            answer.topic_id = found
    elif len(topic_id) != ID_BYTES or is_reserved(topic_id):
        answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, f"{topic_id[:32].hex()} is no topic's id"
    else:
        found_name = state.topic_name(topic_id)
        if found_name is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            answer.error_message = f"there is no topic with the id {id_to_text(topic_id)}"
        else:
            answer.name = found_name
    return answer


def _repeated(name: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, f"topic {quoted(name)} is in the request more than once")


T = TypeVar("T")


def repeats(values: Iterable[T]) -> set[T]:
    """The values that occur more than once."""
    return {value for value, occurrences in Counter(values).items() if occurrences > 1}
