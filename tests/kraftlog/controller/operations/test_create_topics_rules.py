"""CreateTopics (CT-21) as a pure function: the records for a state, and every row of errors."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftlog.controller.operations.topics import CreateTopicPolicy, PolicyViolation, TopicToCreate, create_topics
from kraftlog.controller.rules.quota import Charge, ChargeMutations, MutationLimit, MutationQuota, no_quota
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import CreateTopicsResponse
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.words.features import METADATA_VERSION_LATEST
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.resources import ResourceType
from tests.statemachine.builders import BROKER, an_id, assigned, broker, config, creatable, topic
from tests.statemachine.states import Metadata, metadata

GOOD = creatable("good")


def shutting_down(broker_id: int) -> MetadataRecord:
    record = broker(broker_id)
    record.register_broker.in_controlled_shutdown = True
    return record


def cluster(*records: MetadataRecord, version: int = METADATA_VERSION_LATEST) -> Metadata:
    """Brokers 1 to 3 are active, 4 is fenced, 5 shuts down; the topic there_is exists."""
    brokers = [broker(1), broker(2), broker(3), broker(4, fenced=True), shutting_down(5)]
    return metadata(*brokers, topic("there_is", 1), *records, version=version)


def create(
    state: Metadata,
    *topics: admin_pb2.CreatableTopic,
    validate_only: bool = False,
    policy: CreateTopicPolicy | None = None,
    charge: ChargeMutations = no_quota,
) -> tuple[list[MetadataRecord], CreateTopicsResponse]:
    request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return create_topics(state, request, Random(1), create_topic_policy=policy, charge=charge, tiering_enabled=True)


def partitions_of(records: list[MetadataRecord]) -> list[PartitionRecord]:
    return [record.partition for record in records if record.HasField("partition")]


# --- configs and what a topic inherits --------------------------------------------------------------------------------


def test_a_topic_must_go_with_the_default_of_all_brokers() -> None:
    tiered = {"remote.storage.enable": "true"}
    longer = creatable("clicks", configs={**tiered, "local.retention.ms": "2592000000"})
    for state, asked, words in (
        (cluster(), longer, "retention.ms=604800000 (the default)"),
        (
            cluster(config("", "log.cleanup.policy", "compact", BROKER)),
            creatable("clicks", configs=tiered),
            "cleanup.policy=compact (the default)",
        ),
    ):
        records, response = create(state, asked)
        assert (records, response.topics[0].error_code) == ([], ErrorCode.INVALID_CONFIG)
        assert words in response.topics[0].error_message
    records, response = create(cluster(config("", "log.retention.ms", "-1", BROKER)), longer)
    assert response.topics[0].error_message == ""
    assert [record.WhichOneof("record") for record in records] == ["topic", "config", "config", "partition"]


def test_the_default_of_all_is_read_once_for_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster(config("", "num.partitions", "2", BROKER))
    reads = []
    configs = state.configs

    def counted(resource_type: ResourceType, name: str) -> dict[str, str]:
        reads.append((resource_type, name))
        return configs(resource_type, name)

    monkeypatch.setattr(state, "configs", counted)
    create(state, *(creatable(f"t{number}", -1, -1, configs={"retention.ms": "5"}) for number in range(5)))
    assert reads == [(ResourceType.BROKER, "")]
    create(state, creatable("plain", 1, 1))
    assert len(reads) == 1


# --- what is made -----------------------------------------------------------------------------------------------------


def test_a_topic_is_its_own_record_then_its_configs_then_its_partitions() -> None:
    state = cluster()
    configs = {"retention.ms": "1", "segment.ms": "2"}
    records, response = create(state, creatable("clicks", 3, 2, configs=configs))
    assert [record.WhichOneof("record") for record in records] == ["topic", *["config"] * 2, *["partition"] * 3]
    (created,) = response.topics
    assert (created.name, created.error_code, created.num_partitions, created.replication_factor) == ("clicks", 0, 3, 2)
    assert {record.topic.topic_id for record in records[:1]} == {created.topic_id}
    assert [partition.partition_id for partition in partitions_of(records)] == [0, 1, 2]
    state.append(records)
    assert state.topic_id("clicks") == created.topic_id


def test_ct03_the_isr_is_the_active_replicas_and_the_first_of_them_leads() -> None:
    state = cluster()
    records, _ = create(state, assigned("clicks", {0: [4, 2, 5, 1], 1: [3, 1, 2, 4]}))
    first, second = partitions_of(records)
    assert (list(first.replicas), list(first.isr), first.leader) == ([4, 2, 5, 1], [2, 1], 2)
    assert (list(second.replicas), list(second.isr), second.leader) == ([3, 1, 2, 4], [3, 1, 2], 3)
    for partition in (first, second):
        assert (partition.leader_epoch, partition.partition_epoch, partition.leader_recovery_state) == (0, 0, 0)
        assert partition.directories == [an_id(900 + replica) for replica in partition.replicas]
        assert not partition.eligible_leader_replicas and not partition.last_known_elr


def test_ct32_fenced_brokers_and_those_that_shut_down_are_used_last_and_lead_nothing() -> None:
    for number in range(1, 6):
        records, _ = create(cluster(), creatable("clicks", 20, number))
        for partition in partitions_of(records):
            assert len(set(partition.replicas)) == number
            assert set(partition.replicas[:3]) <= {1, 2, 3}
            assert partition.isr == [replica for replica in partition.replicas if replica <= 3]
            assert partition.leader == partition.replicas[0]


def test_replicas_are_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    state = metadata(*[broker(broker_id, rack=rack) for broker_id, rack in racks.items()])
    records, _ = create(state, creatable("clicks", 8, 2))
    for partition in partitions_of(records):
        assert {racks[replica] for replica in partition.replicas} == {"a", "b"}
    assert set(Counter(partition.leader for partition in partitions_of(records)).values()) == {2}


def test_leaders_are_even_over_the_topics_of_a_request() -> None:
    records, _ = create(cluster(), *[creatable(f"t{number}") for number in range(9)])
    assert Counter(partition.leader for partition in partitions_of(records)) == {1: 3, 2: 3, 3: 3}


@pytest.mark.parametrize(("metadata_version", "version"), [(7, 0), (16, 0), (17, 1), (22, 1), (23, 2), (29, 2)])
def test_partitions_are_written_in_the_version_of_the_cluster(metadata_version: int, version: int) -> None:
    """CT-04: the version that the metadata.version allows, without later fields."""
    records, _ = create(cluster(version=metadata_version), creatable("clicks", 1, 2))
    assert records[-1].version == version
    assert len(records[-1].partition.directories) == (2 if version else 0)


def test_a_broker_with_several_directories_has_not_said_yet_which_it_takes() -> None:
    several = broker(1)
    several.register_broker.log_dirs.append(an_id(990))
    records, _ = create(metadata(several, broker(2)), assigned("clicks", {0: [1, 2]}))
    assert partitions_of(records)[0].directories == [UNASSIGNED_DIRECTORY, an_id(902)]


def test_minus_one_is_the_clusters_default() -> None:
    _, response = create(cluster(), creatable("small", -1, -1))
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (1, 1)
    state = cluster(config("", "num.partitions", "5", BROKER), config("", "default.replication.factor", "3", BROKER))
    _, response = create(state, creatable("large", -1, -1))
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (5, 3)


def test_ct20_validate_only_answers_the_same_makes_nothing_and_is_charged() -> None:
    charged: list[int] = []
    topics = [creatable("good", 2, 3), creatable("bad", 0)]
    records, response = create(cluster(), *topics, validate_only=True, charge=charged.append)
    assert records == [] and charged == [2]
    assert [(found.error_code, found.num_partitions) for found in response.topics] == [
        (0, 2),
        (ErrorCode.INVALID_PARTITIONS, 0),
    ]


def test_the_state_is_left_as_it_is() -> None:
    state = cluster()
    brokers = {broker_id: found.SerializeToString() for broker_id, found in state.brokers().items()}
    create(state, creatable("clicks", 3, 5))
    assert {broker_id: found.SerializeToString() for broker_id, found in state.brokers().items()} == brokers
    assert [found.name for found in state.topics()] == ["there_is"]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (creatable(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "needs a name"),
        (creatable("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "cannot be named '.'"),
        (creatable(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "cannot be named '..'"),
        (creatable("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'no spaces' is illegal; use only"),
        (creatable("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "250 characters; at most 249"),
        (creatable("there.is"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'there.is' collides with 'there_is'"),
        (creatable("there_is"), ErrorCode.TOPIC_ALREADY_EXISTS, "'there_is' already exists"),
        (creatable("t", 0), ErrorCode.INVALID_PARTITIONS, "number of partitions is 0; it must be at least 1, or -1"),
        (creatable("t", -2), ErrorCode.INVALID_PARTITIONS, "number of partitions is -2"),
        (creatable("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor is 0"),
        (creatable("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor is -2"),
        (creatable("t", 1, 6), ErrorCode.INVALID_REPLICATION_FACTOR, "factor of 6 .* 5 are registered; lower it"),
        (assigned("t", {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "numbered from 0 without a gap"),
        (assigned("t", {0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "numbered from 0 without a gap"),
        (assigned("t", {0: [1, 9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 .* broker 9, .* not regis"),
        (assigned("t", {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 has broker 1 more than once"),
        (assigned("t", {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 has no replicas"),
        (assigned("t", {0: [1, 2], 1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 1 has 1 replicas; all"),
        (assigned("t", {0: [1] * 6}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "6 replicas, but only 5 brokers"),
        (assigned("t", {0: [4, 5]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 0 are fenced or shutting down"),
        (creatable("t", 1, -1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "must both be -1"),
        (creatable("t", -1, 1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST, "must both be -1"),
        (creatable("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "'soon' .* retention.ms"),
        (creatable("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "retention.ms has no value"),
        (creatable("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG, "'no.such' is no config of a topic"),
    ],
)
def test_each_row_of_errors_says_why_and_makes_no_record(
    bad: admin_pb2.CreatableTopic, error: ErrorCode, words: str
) -> None:
    records, response = create(cluster(), bad)
    assert records == []
    assert (response.topics[0].name, response.topics[0].error_code) == (bad.name, error)
    assert re.search(words, response.topics[0].error_message)
    _, response = create(cluster(), bad, GOOD)
    assert response.topics[1].error_code == 0, "others are created all the same"


def test_a_partition_assigned_twice_is_refused() -> None:
    twice = [admin_pb2.PartitionAssignment(partition_id=0, broker_ids=[1])] * 2
    bad = admin_pb2.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=twice)
    records, response = create(cluster(), bad)
    assert (records, response.topics[0].error_code) == ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert "partition 0 is assigned more than once" in response.topics[0].error_message


def test_a_name_given_twice_is_an_invalid_request_for_both() -> None:
    records, response = create(cluster(), creatable("twice"), GOOD, creatable("twice"))
    assert [found.error_code for found in response.topics] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert "'twice' is in the request more than once" in response.topics[0].error_message
    assert [record.topic.name for record in records if record.HasField("topic")] == ["good"]


def test_ct32_nothing_is_placed_while_no_broker_is_active() -> None:
    records, response = create(metadata(broker(1, fenced=True), shutting_down(2)), creatable("t"))
    assert (records, response.topics[0].error_code) == ([], ErrorCode.INVALID_REPLICATION_FACTOR)
    assert "all brokers are fenced or shutting down; start one" in response.topics[0].error_message


def test_ct12_what_no_batch_holds_is_refused_whole() -> None:
    for topics in ([GOOD, creatable("large", RECORDS_PER_BATCH_MAX)], [creatable("huge", 2**31 - 1)]):
        with pytest.raises(ApiError, match="10000 fit one batch: divide it") as refusal:
            create(cluster(), *topics)
        assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    records, _ = create(cluster(), creatable("fits", RECORDS_PER_BATCH_MAX - 1, 3))
    assert len(records) == RECORDS_PER_BATCH_MAX


# --- policy and quota -------------------------------------------------------------------------------------------------


def test_a_policy_sees_what_would_be_created() -> None:
    seen: list[TopicToCreate] = []
    state = cluster(config("", "num.partitions", "4", BROKER))
    placed = creatable("placed", -1, 2, configs={"retention.ms": "1"})
    create(state, placed, assigned("given", {0: [3, 1]}), creatable("bad", 0), policy=seen.append)
    assert seen == [
        TopicToCreate("placed", 4, 2, None, {"retention.ms": "1"}),
        TopicToCreate("given", 1, 2, [[3, 1]], {}),
    ]


@pytest.mark.parametrize("validate_only", [False, True])
def test_what_a_policy_refuses_is_a_policy_violation_with_its_message(validate_only: bool) -> None:
    def at_least_two(asked: TopicToCreate) -> None:
        if asked.replication_factor < 2:
            raise PolicyViolation("it needs 2 replicas")

    topics = [creatable("weak"), creatable("strong", 1, 2)]
    records, response = create(cluster(), *topics, policy=at_least_two, validate_only=validate_only)
    weak, strong = response.topics
    assert (weak.error_code, weak.error_message) == (ErrorCode.POLICY_VIOLATION, "topic 'weak': it needs 2 replicas")
    assert strong.error_code == 0
    assert [found.topic.name for found in records if found.HasField("topic")] == ([] if validate_only else ["strong"])


def test_ct20_each_topic_is_charged_for_its_partitions_and_refused_while_there_is_debt() -> None:
    bucket = MutationQuota("busy", MutationLimit(1, 1))
    topics = [creatable("bad", 0), creatable("first", 3), creatable("second", 1)]
    records, response = create(cluster(), *topics, charge=Charge(bucket, 1_000))
    assert [found.error_code for found in response.topics] == [
        ErrorCode.INVALID_PARTITIONS,
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert "again in 2000 ms" in response.topics[2].error_message
    assert [record.topic.name for record in records if record.HasField("topic")] == ["first"]
