"""CreatePartitions (CT-23): the records for a state, and every row of errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.create_partitions import create_partitions
from kraftlog.controller.operations.new_partitions import PARTITIONS_PER_TOPIC_MAX
from kraftlog.controller.rules.quota import Charge, ChargeMutations, MutationLimit, MutationQuota, no_quota
from kraftpb.v1.admin_pb2 import CreatePartitionsRequest, CreatePartitionsResponse, PartitionsOfTopic
from kraftpb.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionRecord
from statemachine.words.features import METADATA_VERSION_LATEST
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.names import NAME_LENGTH_TAKEN_MAX
from tests.statemachine.builders import an_id, broker, topic
from tests.statemachine.builders import partition as present
from tests.statemachine.states import Metadata, metadata


def cluster(*records: MetadataRecord, version: int = METADATA_VERSION_LATEST) -> Metadata:
    """Brokers 1 to 3 are active, 4 is fenced; clicks has two partitions, views one, of two replicas each."""
    brokers = [broker(1), broker(2), broker(3), broker(4, fenced=True)]
    topics = [topic("clicks", 1), present(1, 0), present(1, 1), topic("views", 2), present(2, 0)]
    return metadata(*brokers, *topics, *records, version=version)


def growing(name: str, count: int, *assignments: Sequence[int]) -> PartitionsOfTopic:
    return PartitionsOfTopic(name=name, count=count, assignments=[BrokerIds(ids=ids) for ids in assignments])


def grow(
    state: Metadata, *topics: PartitionsOfTopic, validate_only: bool = False, charge: ChargeMutations = no_quota
) -> tuple[list[MetadataRecord], CreatePartitionsResponse]:
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return create_partitions(state, request, Random(1), charge=charge)


def made(records: list[MetadataRecord]) -> list[PartitionRecord]:
    assert all(record.HasField("partition") for record in records)
    return [record.partition for record in records]


# --- what is made -----------------------------------------------------------------------------------------------------


def test_the_new_partitions_go_on_where_the_present_ones_end() -> None:
    state = cluster()
    records, response = grow(state, growing("clicks", 5), growing("views", 2))
    assert [(found.name, found.error_code, found.error_message) for found in response.topics] == [
        ("clicks", 0, ""),
        ("views", 0, ""),
    ]
    assert [(found.topic_id, found.partition_id) for found in made(records)] == [
        *[(an_id(1), partition_id) for partition_id in (2, 3, 4)],
        (an_id(2), 1),
    ]
    state.append(records)
    assert [found.partition_id for found in state.partitions(an_id(1))] == [0, 1, 2, 3, 4]


def test_placed_partitions_have_the_replication_factor_of_the_topic_and_active_leaders() -> None:
    wide = [topic("wide", 3), present(3, 0, [1, 2, 3, 4])]
    records, _ = grow(cluster(*wide), growing("clicks", 12), growing("wide", 7))
    for found in made(records):
        assert len(set(found.replicas)) == (2 if found.topic_id == an_id(1) else 4)
        assert found.isr == [replica for replica in found.replicas if replica != 4]
        assert found.leader == found.replicas[0] != 4
    leaders = [found.leader for found in made(records)]
    assert {leaders.count(broker_id) for broker_id in (1, 2, 3)} <= {5, 6}


def test_ct03_assigned_partitions_are_as_given_led_by_the_first_active_replica() -> None:
    records, _ = grow(cluster(), growing("clicks", 4, [4, 3], [2, 1]))
    first, second = made(records)
    assert (first.partition_id, list(first.replicas), list(first.isr), first.leader) == (2, [4, 3], [3], 3)
    assert (second.partition_id, list(second.replicas), list(second.isr), second.leader) == (3, [2, 1], [2, 1], 2)
    assert first.directories == [an_id(904), an_id(903)]
    assert (first.leader_epoch, first.partition_epoch, first.leader_recovery_state) == (0, 0, 0)


@pytest.mark.parametrize(("metadata_version", "version"), [(16, 0), (17, 1), (23, 2)])
def test_partitions_are_written_in_the_version_of_the_cluster(metadata_version: int, version: int) -> None:
    records, _ = grow(cluster(version=metadata_version), growing("clicks", 3))
    assert records[0].version == version
    assert len(records[0].partition.directories) == (2 if version else 0)


def test_ct20_validate_only_answers_the_same_makes_nothing_and_is_charged() -> None:
    charged: list[int] = []
    topics = [growing("clicks", 3), growing("views", 1)]
    records, response = grow(cluster(), *topics, validate_only=True, charge=charged.append)
    assert records == [] and charged == [1]
    assert [found.error_code for found in response.topics] == [0, ErrorCode.INVALID_PARTITIONS]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (growing("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'missing'"),
        (growing("", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic ''"),
        (growing("clicks", 2), ErrorCode.INVALID_PARTITIONS, "'clicks' has 2 partitions, and 2 is not an increase"),
        (growing("clicks", 1), ErrorCode.INVALID_PARTITIONS, "and 1 is not an increase; give the total number"),
        (growing("clicks", -1), ErrorCode.INVALID_PARTITIONS, "and -1 is not an increase"),
        (growing("clicks", 10_000), ErrorCode.INVALID_PARTITIONS, "cannot have 10000 partitions; at most 9999"),
        (growing("clicks", 2**31 - 1), ErrorCode.INVALID_PARTITIONS, "at most 9999"),
        (growing("clicks", 4, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 partitions are added, and 1 are ass"),
        (
            growing("clicks", 3, [1, 2], [1, 2]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "1 partitions are added, and 2 are ass",
        ),
        (growing("clicks", 3, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has 1 replicas, .* factor of 2"),
        (growing("clicks", 3, [1, 2, 3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has 3 replicas"),
        (growing("clicks", 4, [1, 2], [1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 3 .* broker 9, which"),
        (growing("clicks", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has broker 1 more than once"),
        (growing("clicks", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 has no replicas"),
        (growing("clicks", 3, [1] * 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "9 replicas, but only 4 brokers"),
        (growing("fenced", 2, [4]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "all brokers of partition 1 are fenced"),
        (growing("lost", 2), ErrorCode.INVALID_REPLICATION_FACTOR, "factor of 5 .* 4 are registered"),
    ],
)
def test_each_row_of_errors_says_why_and_makes_no_record(bad: PartitionsOfTopic, error: ErrorCode, words: str) -> None:
    others = [topic("fenced", 4), present(4, 0, [4]), topic("lost", 5), present(5, 0, [1, 2, 3, 4, 5])]
    records, response = grow(cluster(*others), bad)
    assert records == []
    assert (response.topics[0].name, response.topics[0].error_code) == (bad.name, error)
    assert re.search(words, response.topics[0].error_message)
    records, response = grow(cluster(*others), bad, growing("views", 2))
    assert response.topics[1].error_code == 0, "others grow all the same"
    assert [found.topic_id for found in made(records)] == [an_id(2)]


def test_a_topic_given_twice_is_an_invalid_request_for_both() -> None:
    records, response = grow(cluster(), growing("clicks", 3), growing("views", 2), growing("clicks", 4))
    assert [found.error_code for found in response.topics] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert "'clicks' is in the request more than once" in response.topics[0].error_message
    assert [found.topic_id for found in made(records)] == [an_id(2)]


def test_a_topic_that_is_being_reassigned_grows_with_the_replication_factor_that_it_will_have() -> None:
    moving = present(3, 0, [1, 2, 3])
    moving.partition.adding_replicas.extend([1])
    moving.partition.removing_replicas.extend([2, 3])
    records, response = grow(cluster(topic("moving", 3), moving), growing("moving", 3))
    assert [found.error_code for found in response.topics] == [0]
    assert [len(found.replicas) for found in made(records)] == [1, 1]


def test_ct32_nothing_is_placed_while_no_broker_is_active() -> None:
    state = metadata(broker(1, fenced=True), broker(2, fenced=True), topic("clicks", 1), present(1, 0))
    records, response = grow(state, growing("clicks", 2))
    assert (records, response.topics[0].error_code) == ([], ErrorCode.INVALID_REPLICATION_FACTOR)
    assert "fenced or shutting down" in response.topics[0].error_message


def test_ct12_what_no_batch_holds_is_refused_whole() -> None:
    with pytest.raises(ApiError, match="divide it") as refusal:
        grow(cluster(), growing("clicks", PARTITIONS_PER_TOPIC_MAX), growing("views", 10))
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    with pytest.raises(ApiError, match="divide it"):
        grow(cluster(), *[growing("missing", 1)] * (RECORDS_PER_BATCH_MAX + 1))
    records, _ = grow(cluster(), growing("clicks", PARTITIONS_PER_TOPIC_MAX))
    assert len(records) == PARTITIONS_PER_TOPIC_MAX - 2


def test_a_name_that_is_far_too_long_is_refused_whole() -> None:
    with pytest.raises(ApiError, match="1001 characters") as refusal:
        grow(cluster(), growing("x" * (NAME_LENGTH_TAKEN_MAX + 1), 2))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_ct20_each_topic_is_charged_for_what_it_gets_and_refused_while_there_is_debt() -> None:
    bucket = MutationQuota("busy", MutationLimit(1, 1))
    topics = [growing("missing", 100), growing("clicks", 5), growing("views", 2)]
    records, response = grow(cluster(), *topics, charge=Charge(bucket, 1_000))
    assert [found.error_code for found in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert "again in 2000 ms" in response.topics[2].error_message
    assert [found.topic_id for found in made(records)] == [an_id(1)] * 3


def test_the_state_is_left_as_it_is() -> None:
    state = cluster()
    before = [found.SerializeToString() for found in state.all_partitions()]
    grow(state, growing("clicks", 9))
    assert [found.SerializeToString() for found in state.all_partitions()] == before
