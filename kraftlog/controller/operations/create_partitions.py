"""CreatePartitions (CT-23): from a request and the latest state to records and an answer. Nothing changes here."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.lookups import about
from kraftlog.controller.operations.new_partitions import PARTITIONS_PER_TOPIC_MAX, NewPartitions, invalid_assignment
from kraftlog.controller.operations.topics import repeated_topic
from kraftlog.controller.rules.quota import ChargeMutations, no_quota
from kraftpb.v1.admin_pb2 import CreatePartitionsRequest, CreatePartitionsResponse, PartitionsOfTopic
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths, quoted
from statemachine.words.repeats import repeats


def create_partitions(
    state: MetadataState, request: CreatePartitionsRequest, random: Random, *, charge: ChargeMutations = no_quota
) -> tuple[list[MetadataRecord], CreatePartitionsResponse]:
    """The records that add partitions to the topics that can grow, and an answer for each topic, in their order.

    `charge` is called with the number of partitions of a topic that is otherwise valid; also if `validate_only`
    (CT-20). Raises ApiError(RECORD_LIST_TOO_LARGE) if they are too many for one batch (CT-12), INVALID_REQUEST if a
    name is far too long.
    """
    check_record_count(len(request.topics))
    check_name_lengths(topic.name for topic in request.topics)
    repeated = repeats(topic.name for topic in request.topics)
    partitions = NewPartitions(state, random)
    records: list[MetadataRecord] = []
    response = CreatePartitionsResponse()
    for topic in request.topics:
        try:
            if topic.name in repeated:
                raise repeated_topic(topic.name)
            topic_id, present = _growing_topic(state, topic.name)
            added = _count_added(topic, len(present))
            check_record_count(len(records) + added)
            with about(f"topic {quoted(topic.name)}"):
                assignment = _assignment(topic, present, added, partitions)
                charge(added)
            records += partitions.records(topic_id, len(present), assignment)
            response.topics.add(name=topic.name)
        except ApiError as error:
            if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
                raise
            response.topics.add(name=topic.name, error_code=error.code, error_message=error.args[0])
    return ([] if request.validate_only else records), response


def _growing_topic(state: MetadataState, name: str) -> tuple[bytes, list[PartitionRecord]]:
    """The id of the topic and its present partitions."""
    topic_id = state.topic_id(name)
    if topic_id is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(name)}")
    return topic_id, state.partitions(topic_id)


def _count_added(topic: PartitionsOfTopic, present: int) -> int:
    """How many partitions to add."""
    if topic.count <= present:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {quoted(topic.name)} has {present} partitions, and {topic.count} is not an increase; give the"
            " total number of partitions, the present ones included",
        )
    if topic.count > PARTITIONS_PER_TOPIC_MAX:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {quoted(topic.name)} cannot have {topic.count} partitions; at most {PARTITIONS_PER_TOPIC_MAX}"
            " can be deleted by one batch; use more topics",
        )
    return topic.count - present


def _assignment(
    topic: PartitionsOfTopic, present: Sequence[PartitionRecord], added: int, partitions: NewPartitions
) -> Sequence[Sequence[int]]:
    """The replicas of the partitions that are added: as the request gives them, or placed here."""
    # As in Kafka, the first partition's counts as the topic's; here the one after a reassignment.
    replication_factor = len(present[0].replicas) - len(present[0].removing_replicas)
    if not topic.assignments:
        return partitions.place(added, replication_factor)
    if len(topic.assignments) != added:
        raise invalid_assignment(
            f"{added} partitions are added, and {len(topic.assignments)} are assigned; assign each of them, or none"
            " to have them placed"
        )
    assignment = [list(given.ids) for given in topic.assignments]
    for partition_id, replicas in enumerate(assignment, len(present)):
        partitions.check_replicas(partition_id, replicas)
        if len(replicas) != replication_factor:
            raise invalid_assignment(
                f"partition {partition_id} has {len(replicas)} replicas, but the topic has a replication factor of"
                f" {replication_factor}"
            )
    return assignment
