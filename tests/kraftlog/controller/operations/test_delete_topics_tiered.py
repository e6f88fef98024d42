"""DeleteTopics as a pure function: the rules of CT-22, and what happens to remote data (TS-71)."""

from __future__ import annotations

from random import Random

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations import topics
from kraftlog.controller.operations.create_partitions import create_partitions
from kraftlog.controller.operations.new_partitions import PARTITIONS_PER_TOPIC_MAX
from kraftlog.controller.operations.topics import create_topics, delete_topics
from kraftlog.controller.rules.quota import Charge, ChargeMutations, MutationLimit, MutationQuota, no_quota
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import DeleteTopicsResponse
from kraftpb.v1.metadata_pb2 import (
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from statemachine.metadata.state import MetadataState
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from statemachine.words.remote_log_states import PartitionDeleteState
from tests.statemachine.builders import an_id, broker, config, creatable, partition, topic
from tests.statemachine.states import Metadata, metadata

NOW = 1_700_000_000_000
TIERED = config("clicks", "remote.storage.enable", "true")


def segment(number: int, partition_id: int) -> MetadataRecord:
    """The copy of a segment of a partition has begun."""
    return MetadataRecord(
        remote_log_segment_metadata=RemoteLogSegmentMetadataRecord(
            topic_id=an_id(number),
            partition_id=partition_id,
            segment_id=an_id(7_000 + partition_id),
            end_offset=9,
            segment_leader_epochs=[SegmentLeaderEpoch()],
        )
    )


def mark(partition_id: int, state: PartitionDeleteState, broker_id: int = -1) -> MetadataRecord:
    return MetadataRecord(
        remote_partition_delete_metadata=RemotePartitionDeleteMetadataRecord(
            topic_id=an_id(1), partition_id=partition_id, broker_id=broker_id, event_timestamp_ms=NOW, state=state
        )
    )


def clicks(*records: MetadataRecord) -> Metadata:
    """The topic clicks with partitions 0 to 2, and the topic views with one."""
    return metadata(
        topic("clicks", 1), *[partition(1, index) for index in range(3)], topic("views", 2), partition(2), *records
    )


def delete(
    state: Metadata,
    *references: str | bytes | admin_pb2.TopicReference,
    deletion_enabled: bool = True,
    charge: ChargeMutations = no_quota,
) -> tuple[list[MetadataRecord], DeleteTopicsResponse]:
    request = admin_pb2.DeleteTopicsRequest()
    for given in references:
        match given:
            case str():
                request.topics.add(name=given)
            case bytes():
                request.topics.add(topic_id=given)
            case _:
                request.topics.append(given)
    return delete_topics(state, request, now_ms=NOW, deletion_enabled=deletion_enabled, charge=charge)


def kinds(records: list[MetadataRecord]) -> list[str | None]:
    return [record.WhichOneof("record") for record in records]


# --- CT-22 ----------------------------------------------------------------------------------------------------------


def test_a_topic_without_remote_data_is_one_record_by_name_or_id() -> None:
    state = clicks(config("clicks", "retention.ms", "1"))
    records, response = delete(state, "clicks", an_id(2))
    assert [record.remove_topic.topic_id for record in records] == [an_id(1), an_id(2)]
    assert [(found.name, found.topic_id, found.error_code) for found in response.topics] == [
        ("clicks", an_id(1), 0),
        ("views", an_id(2), 0),
    ]
    state.append(records)
    assert list(state.topics()) == []


@pytest.mark.parametrize(
    ("reference", "error", "words"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic 'missing'"),
        (an_id(77), ErrorCode.UNKNOWN_TOPIC_ID, "no topic with the id AAAAAA"),
        (admin_pb2.TopicReference(), ErrorCode.INVALID_REQUEST, "name or its id, not both"),
        (admin_pb2.TopicReference(name="clicks", topic_id=an_id(1)), ErrorCode.INVALID_REQUEST, "not both"),
        (b"short", ErrorCode.INVALID_REQUEST, "73686f7274 is not a topic id"),
        (bytes(16), ErrorCode.INVALID_REQUEST, "is not a topic id"),
    ],
)
def test_each_row_of_errors_says_why_and_makes_no_record(
    reference: str | bytes | admin_pb2.TopicReference, error: ErrorCode, words: str
) -> None:
    records, response = delete(clicks(TIERED), reference)
    assert records == []
    assert response.topics[0].error_code == error
    assert words in response.topics[0].error_message
    records, _ = delete(clicks(), reference, "views")
    assert kinds(records) == ["remove_topic"], "others are deleted all the same"


def test_a_topic_given_twice_is_an_invalid_request_for_both() -> None:
    records, response = delete(clicks(TIERED), "clicks", an_id(1))
    assert records == []
    assert [found.error_code for found in response.topics] == [ErrorCode.INVALID_REQUEST] * 2
    assert "'clicks' is in the request more than once" in response.topics[0].error_message


def test_where_deletion_is_disabled_the_request_is_refused_whole() -> None:
    with pytest.raises(ApiError, match=r"set delete.topic.enable=true") as refusal:
        delete(clicks(), "clicks", deletion_enabled=False)
    assert refusal.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_ct20_each_topic_is_charged_for_its_partitions_and_refused_while_there_is_debt() -> None:
    bucket = MutationQuota("busy", MutationLimit(1, 1))
    records, response = delete(clicks(), "missing", "clicks", "views", charge=Charge(bucket, 1_000))
    assert [found.error_code for found in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert "again in 2000 ms" in response.topics[2].error_message
    assert [record.remove_topic.topic_id for record in records] == [an_id(1)]


def test_ct20_the_partitions_of_what_is_refused_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be many, and a client in debt can ask again and again."""
    bucket = MutationQuota("busy", MutationLimit(1, 1))
    bucket.charge(1_000, 5)
    state = clicks()
    monkeypatch.setattr(MetadataState, "partitions", None)
    records, response = delete(state, "clicks", charge=Charge(bucket, 1_000))
    assert (records, response.topics[0].error_code) == ([], ErrorCode.THROTTLING_QUOTA_EXCEEDED)


# --- remote data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "remote",
    [
        TIERED,
        config("clicks", "remote.storage.enable", "TRUE"),
        segment(1, 2),
    ],
    ids=["enabled", "enabled-in-capitals", "has-a-segment"],
)
def test_ts71_all_partitions_of_a_topic_with_remote_data_are_marked_before_it_goes(remote: MetadataRecord) -> None:
    state = clicks(remote)
    records, response = delete(state, "clicks")
    assert response.topics[0].error_code == 0
    marks = [mark(index, PartitionDeleteState.DELETE_PARTITION_MARKED) for index in range(3)]
    assert records[:-1] == marks
    assert records[-1].remove_topic.topic_id == an_id(1)
    state.append(records)
    assert state.topic_id("clicks") is None
    for index in range(3):
        assert state.remote_partition_delete(an_id(1), index) == marks[index].remote_partition_delete_metadata


def test_what_was_marked_is_committed_and_its_segments_are_there_until_they_are_deleted() -> None:
    state = clicks(TIERED, segment(1, 0))
    records, _ = delete(state, "clicks")
    state.commit(*records)
    assert len(state.remote_segments(an_id(1), 0)) == 1
    assert [state.remote_partition_delete(an_id(1), index) is not None for index in range(4)] == [True] * 3 + [False]


@pytest.mark.parametrize("remote", [config("clicks", "remote.storage.enable", "false"), segment(2, 0)])
def test_a_topic_that_has_none_is_not_marked(remote: MetadataRecord) -> None:
    records, _ = delete(clicks(remote), "clicks")
    assert kinds(records) == ["remove_topic"]


@pytest.mark.parametrize(
    "states",
    [
        [PartitionDeleteState.DELETE_PARTITION_MARKED],
        [PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED],
    ],
)
def test_a_deletion_that_goes_on_is_not_begun_again(states: list[PartitionDeleteState]) -> None:
    state = clicks(TIERED, *[mark(1, found, broker_id=8) for found in states])
    records, _ = delete(state, "clicks")
    marked = [record.remote_partition_delete_metadata.partition_id for record in records[:-1]]
    assert marked == [0, 2]
    state.append(records)
    kept = state.remote_partition_delete(an_id(1), 1)
    assert kept is not None and (kept.state, kept.broker_id) == (states[-1], 8)


def test_a_topic_of_the_same_name_has_nothing_to_do_with_the_deletion() -> None:
    state = clicks(TIERED, broker(1))
    state.append(delete(state, "clicks")[0])
    records, response = create_topics(state, admin_pb2.CreateTopicsRequest(topics=[creatable("clicks")]), Random(1))
    state.append(records)
    assert response.topics[0].topic_id != an_id(1)
    assert state.remote_partition_delete(response.topics[0].topic_id, 0) is None
    assert state.remote_partition_delete(an_id(1), 0) is not None


# --- the limit of a batch ---------------------------------------------------------------------------------------------


def test_ct12_marks_count_against_the_records_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(topics, "check_record_count", seen.append)
    delete(clicks(TIERED), "clicks", "views")
    assert seen == [2, 4, 5]


def test_ct12_more_topics_than_a_batch_holds_are_refused_whole() -> None:
    with pytest.raises(ApiError, match="divide it") as refusal:
        delete(clicks(), *["missing"] * (RECORDS_PER_BATCH_MAX + 1))
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_largest_tiered_topic_that_there_can_be_is_deleted_by_one_batch() -> None:
    state = metadata(broker(1))
    tiered = creatable("clicks", 1, configs={"remote.storage.enable": "true"})
    state.append(
        create_topics(state, admin_pb2.CreateTopicsRequest(topics=[tiered]), Random(1), tiering_enabled=True)[0]
    )
    grow = admin_pb2.CreatePartitionsRequest()
    grow.topics.add(name="clicks", count=PARTITIONS_PER_TOPIC_MAX)
    state.append(create_partitions(state, grow, Random(1))[0])
    records, _ = delete(state, "clicks")
    assert len(records) == RECORDS_PER_BATCH_MAX
    state.append(records)
    assert state.topic_id("clicks") is None
