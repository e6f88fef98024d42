"""Answers that fit no message: refused as soon as that is known, with a hint at what to request instead."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftpb.v1 import admin_pb2
from statemachine.query import metadata_queries, reads
from statemachine.query.answer_sizes import ANSWER_BYTES_MAX, fitting
from statemachine.query.conversions import topic_to_proto
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import CLUSTER_ID, TOPIC, an_id, batch, partition, topic
from tests.statemachine.sample_cluster import SAMPLE
from tests.statemachine.states import database_of


@pytest.fixture
def connection() -> sqlite3.Connection:
    return database_of(*SAMPLE)


def named(*names: str) -> admin_pb2.DescribeTopicsRequest:
    return admin_pb2.DescribeTopicsRequest(topics=[admin_pb2.TopicReference(name=name) for name in names])


def limit(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr("statemachine.query.answer_sizes.ANSWER_BYTES_MAX", size_bytes)


def listed(connection: sqlite3.Connection) -> admin_pb2.ListRemoteLogSegmentsResponse:
    return reads.list_remote_log_segments(connection, admin_pb2.ListRemoteLogSegmentsRequest(topic_id=an_id(1)))


@pytest.mark.parametrize(
    ("read", "instead"),
    [
        (lambda found: reads.list_topics(found, admin_pb2.ListTopicsRequest()), "in SQL, for names above"),
        (lambda found: reads.describe_topics(found, named()), "name topics, fewer at a time, or ask in SQL"),
        (lambda found: reads.describe_topics(found, named("orders")), "name topics, fewer at a time"),
        (lambda found: reads.list_brokers(found, admin_pb2.ListBrokersRequest()), "in SQL, for some brokers"),
        (
            lambda found: reads.describe_resource_configs(
                found, admin_pb2.DescribeConfigsRequest(resource_type=TOPIC, resource_name="orders")
            ),
            "in SQL, for single configs",
        ),
        (
            lambda found: reads.describe_client_quotas(found, admin_pb2.DescribeClientQuotasRequest()),
            "in SQL, for some entities",
        ),
        (lambda found: reads.describe_acls(found, admin_pb2.DescribeAclsRequest()), "a filter that fewer entries"),
        (
            lambda found: reads.list_partition_reassignments(found, admin_pb2.ListPartitionReassignmentsRequest()),
            "in SQL, for those of some topics",
        ),
        (listed, "name a leader epoch, or ask in SQL"),
    ],
)
def test_what_fits_no_message_says_what_to_ask_for_instead(
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[sqlite3.Connection], object],
    instead: str,
) -> None:
    read(connection)
    limit(monkeypatch, 5)
    with pytest.raises(ApiError, match=f"bytes or more, at most 5 fit one message: .*{instead}") as refused:
        read(connection)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_an_answer_that_just_fits_is_given(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reads.describe_topics(connection, named())
    limit(monkeypatch, whole.ByteSize() + 3 * len(whole.topics))  # a header is counted as 5 bytes, and has 2 or more
    assert reads.describe_topics(connection, named()) == whole
    limit(monkeypatch, whole.ByteSize() - 1)
    with pytest.raises(ApiError):
        reads.describe_topics(connection, named())


def test_nothing_is_read_behind_what_fits(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    describe = metadata_queries.describe_topic

    def noted(connection: sqlite3.Connection, *, name: str) -> object:
        described.append(name)
        return describe(connection, name=name)

    monkeypatch.setattr(metadata_queries, "describe_topic", noted)
    limit(monkeypatch, topic_to_proto(describe(connection, name="logs")).ByteSize() + 5)  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        reads.describe_topics(connection, named("logs", "orders", "missing"))
    assert described == ["logs", "orders"]


def test_what_too_many_partitions_come_to_is_known_before_any_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [topic("large", 1), *(partition(1, number, (1, 2, 3)) for number in range(500))]
    connection = database_of(*records)
    least, whole = (
        metadata_queries.partitions_bytes_min(connection),
        reads.describe_topics(connection, named()).ByteSize(),
    )
    assert 0.7 * whole < least < whole
    limit(monkeypatch, least - 1)
    monkeypatch.setattr(metadata_queries, "describe_all_topics", lambda connection: pytest.fail("they are read"))
    with pytest.raises(ApiError, match=f"has {least} bytes or more"):
        reads.describe_topics(connection, named())


def test_without_partitions_a_description_has_no_least_size() -> None:
    assert metadata_queries.partitions_bytes_min(database_of(topic("empty", 1))) == 0


def test_parts_are_closed_wherever_they_end() -> None:
    closed: list[str] = []

    def parts(name: str, size: int) -> Iterator[admin_pb2.TopicListing]:
        try:
            yield admin_pb2.TopicListing(name="x" * size)
            yield admin_pb2.TopicListing()
        finally:
            closed.append(name)

    assert len(list(fitting(parts("whole", 1), "nothing"))) == 2  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        list(fitting(parts("too large", ANSWER_BYTES_MAX), "nothing"))  # type: ignore[arg-type]
    assert closed == ["whole", "too large"]


async def test_who_reads_after_a_refusal_sees_the_newest_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)
    store.apply([batch(0, [topic("a", 1), topic("b", 2), topic("c", 3)])])
    with monkeypatch.context() as small:
        limit(small, 5)
        with pytest.raises(ApiError) as refused:
            await store.query(lambda connection: reads.describe_topics(connection, named()))
    store.apply([batch(Offset(3), [topic("d", 4)])])
    found = await store.query(lambda connection: reads.describe_topics(connection, named()))
    assert [described.name for described in found.topics] == ["a", "b", "c", "d"]
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE  # a caller that keeps the error keeps no old state
    store.close()
