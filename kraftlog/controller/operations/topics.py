"""CreateTopics (CT-21) and DeleteTopics (CT-22): from a request and the latest state to records and an answer.

Nothing changes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kraftbase.errors import ApiError, ErrorCode, KraftlogError
from kraftbase.ids import ID_BYTES, id_to_text, is_reserved, random_id
from kraftlog.controller.operations.lookups import about
from kraftlog.controller.operations.new_partitions import NewPartitions, invalid_assignment
from kraftlog.controller.rules.quota import ChargeMutations, no_quota
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
from kraftpb.v1.metadata_pb2 import (
    ConfigRecord,
    MetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from statemachine.metadata.config_combinations import InheritedConfigs, check_topic_configs
from statemachine.metadata.state import MetadataState
from statemachine.words.config_definitions import (
    NUM_PARTITIONS,
    NUM_PARTITIONS_DEFAULT,
    REPLICATION_FACTOR,
    REPLICATION_FACTOR_DEFAULT,
    check_config,
)
from statemachine.words.config_kinds import trimmed
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths, check_topic_name, collision_key, quoted
from statemachine.words.remote_log_states import PartitionDeleteState
from statemachine.words.repeats import repeats
from statemachine.words.resources import FROM_DEFAULT, ResourceType

RECORDS_PER_TOPIC_MIN: Final = 2
"""The topic itself and its only partition."""

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

TOPICS_SHOWN: Final = 3
"""How many topics one message names at most when it is about a whole request."""


# --- CreateTopics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """The input of a policy: a topic that is otherwise valid, with the cluster's defaults filled in."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: Sequence[Sequence[int]] | None
    """The replicas of each partition if the request assigns them. None: they are placed here."""
    configs: Mapping[str, str]


class PolicyViolation(KraftlogError):
    """A policy raises this to refuse a topic; the client gets the message, with POLICY_VIOLATION."""


CreateTopicPolicy = Callable[[TopicToCreate], None]
"""Kafka's create.topic.policy.class.name: raises PolicyViolation unless the topic may be created. Changes nothing."""


def create_topics(
    state: MetadataState,
    request: CreateTopicsRequest,
    random: Random,
    *,
    create_topic_policy: CreateTopicPolicy | None = None,
    charge: ChargeMutations = no_quota,
    tiering_enabled: bool = False,
) -> tuple[list[MetadataRecord], CreateTopicsResponse]:
    """The records that create the topics that can be created, and an answer for each topic, in their order.

    `charge` is called with the number of partitions of a topic that is otherwise valid; also if `validate_only`
    (CT-20). No topic may be tiered unless `tiering_enabled` (TS-81). Raises ApiError(RECORD_LIST_TOO_LARGE) if they are
    too many for one batch (CT-12), INVALID_REQUEST if a name is far too long.
    """
    check_record_count(RECORDS_PER_TOPIC_MIN * len(request.topics))
    check_name_lengths(topic.name for topic in request.topics)
    repeated = repeats(topic.name for topic in request.topics)
    creation = _Creation(state, random, create_topic_policy, charge, tiering_enabled=tiering_enabled)
    response = CreateTopicsResponse()
    for topic in request.topics:
        try:
            if topic.name in repeated:
                raise repeated_topic(topic.name)
            response.topics.append(creation.create(topic))
        except ApiError as error:
            if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
                raise
            response.topics.add(name=topic.name, error_code=error.code, error_message=error.args[0])
    return ([] if request.validate_only else creation.records), response


class _Creation:
    """The topics that one request has created so far."""

    def __init__(
        self,
        state: MetadataState,
        random: Random,
        policy: CreateTopicPolicy | None,
        charge: ChargeMutations,
        *,
        tiering_enabled: bool,
    ) -> None:
        self._state = state
        self._random = random
        self._policy = policy
        self._charge = charge
        self._tiering_enabled = tiering_enabled
        self._inherited = InheritedConfigs(state)
        self._partitions = NewPartitions(state, random)
        self._names: dict[str, str] = {}
        """Topics created by this request, by collision key."""
        self.records: list[MetadataRecord] = []

    def create(self, topic: CreatableTopic) -> CreatedTopic:
        """Validate everything, then make the records: Topic, Config*, Partition*."""
        self._check_name(topic.name)
        with about(f"topic {quoted(topic.name)}"):
            configs = self._configs(topic)
            assignment = self._assignment(topic, len(configs))
            self._check_policy(topic, configs, assignment)
            self._charge(len(assignment))
        topic_id = self._new_topic_id()
        self._names[collision_key(topic.name)] = topic.name
        self.records.append(MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic_id)))
        self.records += [
            MetadataRecord(
                config=ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            )
            for name, value in configs.items()
        ]
        self.records += self._partitions.records(topic_id, 0, assignment)
        return CreatedTopic(
            name=topic.name,
            topic_id=topic_id,
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
        )

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        if self._state.topic_id(name) is not None:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {quoted(name)} already exists")
        other = self._names.get(collision_key(name)) or self._state.colliding_topic(name)
        if other is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {quoted(name)} collides with {quoted(other)}: names must differ in more than '.' and '_'",
            )

    def _configs(self, topic: CreatableTopic) -> dict[str, str]:
        """The configs in the request, checked alone and with the inherited ones."""
        configs: dict[str, str] = {}
        for entry in topic.configs:
            if entry.name in configs:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"config {quoted(entry.name)} is given more than once")
            check_config(ResourceType.TOPIC, entry.name, entry.value if entry.HasField("value") else None)
            configs[entry.name] = trimmed(entry.value)
        if configs:  # else, as in Kafka, there is nothing to check
            check_topic_configs(configs, {}, self._inherited.of_topics, tiering_enabled=self._tiering_enabled)
        return configs

    def _assignment(self, topic: CreatableTopic, num_configs: int) -> Sequence[Sequence[int]]:
        """The replicas of each partition."""
        if topic.assignments:
            check_record_count(len(self.records) + 1 + num_configs + len(topic.assignments))
            return _manual_assignment(topic, self._partitions)
        replication_factor = self._count(
            topic.replication_factor,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "replication factor",
            REPLICATION_FACTOR,
            REPLICATION_FACTOR_DEFAULT,
        )
        num_partitions = self._count(
            topic.num_partitions,
            ErrorCode.INVALID_PARTITIONS,
            "number of partitions",
            NUM_PARTITIONS,
            NUM_PARTITIONS_DEFAULT,
        )
        check_record_count(len(self.records) + 1 + num_configs + num_partitions)
        return self._partitions.place(num_partitions, replication_factor)

    def _count(self, given: int, error: ErrorCode, what: str, config: str, default: str) -> int:
        if given == FROM_DEFAULT:
            return int(self._inherited.of_cluster.get(config, default))
        if given < 1:
            raise ApiError(error, f"the {what} is {given}; it must be at least 1, or -1 for the cluster's {config}")
        return given

    def _check_policy(
        self, topic: CreatableTopic, configs: Mapping[str, str], assignment: Sequence[Sequence[int]]
    ) -> None:
        if self._policy is None:
            return
        given = assignment if topic.assignments else None
        try:
            self._policy(TopicToCreate(topic.name, len(assignment), len(assignment[0]), given, configs))
        except PolicyViolation as violation:
            raise ApiError(ErrorCode.POLICY_VIOLATION, str(violation)) from None

    def _new_topic_id(self) -> bytes:
        while True:
            topic_id = random_id(self._random)
            if self._state.topic_name(topic_id) is None:
                return topic_id


def _manual_assignment(topic: CreatableTopic, partitions: NewPartitions) -> Sequence[Sequence[int]]:
    """The assignment that the request gives, checked. Counts together with it are an INVALID_REQUEST, as in Kafka."""
    if topic.num_partitions != FROM_DEFAULT or topic.replication_factor != FROM_DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"with a manual assignment the number of partitions, {topic.num_partitions}, and the replication factor,"
            f" {topic.replication_factor}, must both be -1",
        )
    by_partition: dict[int, Sequence[int]] = {}
    for assignment in topic.assignments:
        partition_id, replicas = assignment.partition_id, assignment.broker_ids
        if partition_id in by_partition:
            raise invalid_assignment(f"partition {partition_id} is assigned more than once")
        partitions.check_replicas(partition_id, replicas)
        if by_partition and len(replicas) != len(next(iter(by_partition.values()))):
            raise invalid_assignment(
                f"partition {partition_id} has {len(replicas)} replicas; all partitions must have as many as the first"
            )
        by_partition[partition_id] = list(replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        missing = next(number for number in range(len(by_partition)) if number not in by_partition)
        raise invalid_assignment(
            f"partition {missing} is not assigned, and partition {max(by_partition)} is; the partitions must be"
            " numbered from 0 without a gap"
        )
    return [by_partition[partition_id] for partition_id in range(len(by_partition))]


# --- DeleteTopics -----------------------------------------------------------------------------------------------------


def delete_topics(
    state: MetadataState,
    request: DeleteTopicsRequest,
    *,
    now_ms: int,
    deletion_enabled: bool = True,
    charge: ChargeMutations = no_quota,
) -> tuple[list[MetadataRecord], DeleteTopicsResponse]:
    """The records that remove the topics that exist, and an answer for each reference, in their order.

    If a topic has remote data, all of its partitions are marked for the deletion of this data (TS-71), at `now_ms`,
    milliseconds since 1970. `charge` is called with how many partitions a topic has (CT-20). Raises
    ApiError(TOPIC_DELETION_DISABLED) unless `deletion_enabled` (delete.topic.enable), RECORD_LIST_TOO_LARGE if they are
    too many for one batch (CT-12), INVALID_REQUEST if a name is far too long.
    """
    if not deletion_enabled:
        asked = [_shown(reference) for reference in request.topics[:TOPICS_SHOWN]]
        more = [f"{len(request.topics) - TOPICS_SHOWN} more"] if len(request.topics) > TOPICS_SHOWN else []
        raise ApiError(
            ErrorCode.TOPIC_DELETION_DISABLED,
            f"topics cannot be deleted here ({', '.join(asked + more)}); set delete.topic.enable=true to allow it",
        )
    check_record_count(len(request.topics))
    check_name_lengths(topic.name for topic in request.topics)
    found = [_find(state, reference) for reference in request.topics]
    repeated = repeats(topic.topic_id for topic in found if not topic.error_code)
    asked_again = repeats((reference.name, reference.topic_id) for reference in request.topics)
    records: list[MetadataRecord] = []
    for reference, topic in zip(request.topics, found, strict=True):
        if topic.error_code:
            if topic.error_code in _UNKNOWN and (reference.name, reference.topic_id) in asked_again:
                topic.error_code = ErrorCode.INVALID_REQUEST
                topic.error_message = f"{_shown(reference)} is in the request more than once"
            continue
        try:
            if topic.topic_id in repeated:
                raise repeated_topic(topic.name)
            records += _deletion(state, topic, now_ms, charge)
        except ApiError as error:
            topic.error_code, topic.error_message = error.code, error.args[0]
        check_record_count(len(records))
    return records, DeleteTopicsResponse(topics=found)


def _deletion(state: MetadataState, topic: DeletedTopic, now_ms: int, charge: ChargeMutations) -> list[MetadataRecord]:
    """The records that delete a topic. They fit one batch: see PARTITIONS_PER_TOPIC_MAX."""
    removal = MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic.topic_id))
    may_have_remote_data = _may_have_remote_data(state, topic)
    if not may_have_remote_data and charge is no_quota:
        return [removal]  # without reading its partitions, which may be many
    with about(f"topic {quoted(topic.name)}"):
        charge(0)  # before its partitions are read
        partition_ids = [partition.partition_id for partition in state.partitions(topic.topic_id)]
        charge(len(partition_ids))
    if not may_have_remote_data:
        return [removal]
    # The marks come first, while the partitions that they name still exist. All are in one batch: a mark
    # without the removal would delete the data of a topic in use, a removal without marks would leave it forever.
    return [
        *[
            MetadataRecord(
                remote_partition_delete_metadata=RemotePartitionDeleteMetadataRecord(
                    topic_id=topic.topic_id,
                    partition_id=partition_id,
                    broker_id=-1,  # no broker requested the mark
                    event_timestamp_ms=now_ms,
                    state=PartitionDeleteState.DELETE_PARTITION_MARKED,
                )
            )
            for partition_id in partition_ids
            # A deletion in progress must not be reset to its beginning.
            if state.remote_partition_delete(topic.topic_id, partition_id) is None
        ],
        removal,
    ]


def _may_have_remote_data(state: MetadataState, topic: DeletedTopic) -> bool:
    """Whether the topic is tiered, or was and has segments left."""
    if state.topic_config(topic.name, "remote.storage.enable", "false").lower() == "true":
        return True
    return state.has_remote_segments(topic.topic_id)


def _find(state: MetadataState, reference: TopicReference) -> DeletedTopic:
    """The referenced topic, or the error that states why there is none."""
    name, topic_id = reference.name, reference.topic_id
    answer = DeletedTopic(name=name, topic_id=topic_id)
    if bool(name) == bool(topic_id):
        given = f"{_shown(reference)} has an id as well as its name" if name else "a topic has neither name nor id"
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = f"{given}; give a topic's name or its id, not both"
    elif name:
        found = state.topic_id(name)
        if found is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = f"there is no topic {quoted(name)}"
        else:
            answer.topic_id = found
    elif len(topic_id) != ID_BYTES or is_reserved(topic_id):
        answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, f"{topic_id[:32].hex()} is not a topic id"
    else:
        found_name = state.topic_name(topic_id)
        if found_name is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            answer.error_message = f"there is no topic with the id {id_to_text(topic_id)}"
        else:
            answer.name = found_name
    return answer


def _shown(reference: TopicReference) -> str:
    """A topic as messages name it, as the request names it."""
    return f"topic {quoted(reference.name)}" if reference.name else f"topic {reference.topic_id[:32].hex()}"


def repeated_topic(name: str) -> ApiError:
    """The refusal of a topic that a request names more than once."""
    return ApiError(ErrorCode.INVALID_REQUEST, f"topic {quoted(name)} is in the request more than once")
