"""What the codec promises, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.kafka.codec import decode, decode_from, encode, encode_pieces
from kraftlog.kafka.errors import MalformedBytes, UnwritableValue
from kraftlog.kafka.headers import RequestHeader
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest
from kraftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kraftlog.kafka.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kraftlog.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kraftlog.kafka.metadata_records import BeginTransactionRecord, PartitionChangeRecord, PartitionRecord, TopicRecord

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("value", "version", "expected"),
    [
        (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, "02 61 02 31 00"),
        (ApiVersionsRequest(), 0, ""),
        (MetadataRequest(topics=None), 1, "ff ff ff ff"),
        (MetadataRequest(topics=()), 1, "00 00 00 00"),
        (MetadataRequest(topics=None, allow_auto_topic_creation=True), 9, "00 01 00 00 00"),
        (MetadataRequest(topics=(), allow_auto_topic_creation=False), 9, "01 00 00 00 00"),
        (MetadataRequest(topics=(MetadataRequestTopic(name="ab"),)), 0, "00 00 00 01 00 02 61 62"),
        (RequestHeader(request_api_key=3, request_api_version=9, correlation_id=7, client_id="c"), 2,
         "00 03 00 09 00 00 00 07 00 01 63 00"),
        (RequestHeader(request_api_key=3, request_api_version=9, correlation_id=7, client_id=None), 1,
         "00 03 00 09 00 00 00 07 ff ff"),
        (TopicRecord(name="t", topic_id=TOPIC_ID), 0, "02 74" + TOPIC_ID.hex() + "00"),
        (BeginTransactionRecord(), 0, "00"),
        (BeginTransactionRecord(name=""), 0, "01 00 01 01"),
        (PartitionChangeRecord(topic_id=TOPIC_ID, isr=(3,), leader=-1), 0,
         "ff ff ff ff" + TOPIC_ID.hex() + "02 00 05 02 00 00 00 03 01 04 ff ff ff ff"),
        (PartitionChangeRecord(topic_id=TOPIC_ID, isr=()), 0, "ff ff ff ff" + TOPIC_ID.hex() + "01 00 01 01"),
        (DescribeTopicPartitionsRequest(cursor=None), 0, "01 00 00 07 d0 ff 00"),
        (DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=5)), 0,
         "01 00 00 07 d0 01 02 74 00 00 00 05 00 00"),
    ],
)  # fmt: skip
def test_these_bytes_are_the_value_and_no_others(value: Any, version: int, expected: str) -> None:
    """FM-21 in flexible versions."""
    data = bytes.fromhex(expected)
    assert encode(value, version) == data
    assert decode(type(value), version, data) == value


def test_unknown_tags_are_kept_and_written_among_the_known_ones_in_order() -> None:
    """FM-21."""
    value = PartitionChangeRecord(topic_id=TOPIC_ID, leader=4, unknown_tags=((0, b"a"), (99, b"z")))
    data = encode(value, 0)
    assert data.endswith(bytes.fromhex("03 00 01 61 01 04 00 00 00 04 63 01 7a"))
    assert encode(PartitionChangeRecord(topic_id=TOPIC_ID, unknown_tags=((9, b"a"),)), 0).endswith(b"\1\x09\1a")
    read = decode(PartitionChangeRecord, 0, bytes.fromhex("00 00 00 00") + TOPIC_ID + b"\2\x0b\1x\x0c\0")
    assert read.unknown_tags == ((11, b"x"), (12, b""))


def test_tagged_fields_are_in_the_order_of_their_tags() -> None:
    """Which is not the order of the table: directories, tag 8, stand before tags 6 and 7."""
    value = PartitionChangeRecord(directories=(), eligible_leader_replicas=(), last_known_elr=())
    data = encode(value, 2)
    assert data.endswith(bytes.fromhex("03 06 01 01 07 01 01 08 01 01"))
    assert decode(PartitionChangeRecord, 2, data) == value


def test_a_string_is_not_longer_than_kafka_has_them() -> None:
    data = encode(TopicRecord(name="n" * 32_767), 0)
    with pytest.raises(MalformedBytes, match=r"^TopicRecord.name: has 32768 bytes, and must have at most 32767"):
        decode(TopicRecord, 0, b"\x81\x80\x02n" + data[3:])


def test_records_are_a_view_of_the_bytes() -> None:
    records = bytes(1000)
    partition = PartitionProduceData(index=3, records=records)
    data = encode(ProduceRequest(topic_data=(TopicProduceData(name="t", partition_data=(partition,)),)), 9)
    read = decode(ProduceRequest, 9, data).topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is data
    assert read == records


def test_pieces_hold_records_as_they_are() -> None:
    records = bytes(1000)
    topic = FetchableTopicResponse(topic="t", partitions=(PartitionData(partition_index=1, records=records),))
    pieces = encode_pieces(FetchResponse(responses=(topic,)), 12)
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [records]
    assert b"".join(pieces) == encode(FetchResponse(responses=(topic,)), 12)


def test_a_value_starts_where_the_header_ends() -> None:
    value, end = decode_from(TopicRecord, 0, b"header" + encode(TopicRecord(name="t"), 0) + b"rest", 6)
    assert (value, end) == (TopicRecord(name="t"), 6 + 19)


def test_structs_of_defaults_are_not_shared() -> None:
    data = encode(FetchRequest(), 17)
    one, other = decode(FetchRequest, 17, data), decode(FetchRequest, 17, data)
    assert one.replica_state == other.replica_state == ReplicaState()
    assert one.replica_state is not other.replica_state
    assert FetchRequest().replica_state is not FetchRequest().replica_state


def _fetch(*partitions: FetchPartition) -> FetchRequest:
    return FetchRequest(topics=(FetchTopic(topic_id=TOPIC_ID), FetchTopic(topic_id=TOPIC_ID, partitions=partitions)))


@pytest.mark.parametrize(
    ("value", "version", "path", "reason"),
    [
        (_fetch(FetchPartition(), FetchPartition(fetch_offset=2**63)), 13,
         r".topics\[1\].partitions\[1\].fetch_offset", "int too large|format requires"),  # until Python 3.12, and since
        (FetchRequest(max_wait_ms=2**31), 13, ".max_wait_ms", "format requires"),
        (FetchRequest(max_wait_ms="1"), 13, ".max_wait_ms", "required argument is not an integer"),
        (FetchRequest(topics=None), 13, ".topics", "must not be null in version 13"),
        (FetchRequest(topics=(None,)), 13, r".topics\[0\].topic_id", "NoneType"),
        (FetchRequest(rack_id=7), 13, ".rack_id", "encode"),
        (FetchRequest(rack_id="\ud800"), 13, ".rack_id", "surrogates"),
        (FetchRequest(rack_id="x" * 32_768), 13, ".rack_id", "has 32768 bytes, and must have at most 32767"),
        (FetchRequest(topics=(FetchTopic(topic_id=b"short"),)), 13,
         r".topics\[0\].topic_id", "a uuid has 16 bytes, not 5"),
        (PartitionRecord(directories=(TOPIC_ID, b"")), 1, ".directories", "a uuid has 16 bytes, not 0"),
        (PartitionRecord(replicas=(1, 2**31)), 1, ".replicas", "format requires"),
        (PartitionRecord(directories=(TOPIC_ID,)), 0, ".directories",
         "version 0 lacks this field, and it is set"),
        (FetchRequest(replica_state=ReplicaState(replica_id=3)), 14, ".replica_state", "version 14 lacks"),
        (FetchRequest(unknown_tags=((50, b""),)), 11, ".unknown_tags", "this version has no tagged fields"),
        (FetchRequest(), 3, "", "has no version 3; it has 4-18"),
        (FetchRequest(), 19, "", "has no version 19; it has 4-18"),
    ],
)  # fmt: skip
def test_a_value_that_a_version_cannot_have_is_refused_by_its_field(
    value: Any, version: int, path: str, reason: str
) -> None:
    with pytest.raises(UnwritableValue, match=f"^{type(value).__name__}{path}: .*{reason}"):
        encode(value, version)


def test_an_ignorable_field_that_a_version_lacks_is_left_out() -> None:
    topic = FetchTopic(topic="t", topic_id=TOPIC_ID)
    value = FetchRequest(cluster_id="c", topics=(topic,), session_id=7)
    assert encode(value, 4) == encode(FetchRequest(topics=(FetchTopic(topic="t"),)), 4)


@pytest.mark.parametrize(
    ("data", "name"),
    [("61 ff 62", "a\ufffdb"), ("e2 82 41", "\ufffdA"), ("c3 a9", "\u00e9")],
)
def test_db116_names_in_requests_are_read_as_java_reads_them(data: str, name: str) -> None:
    given = bytes.fromhex(data)
    request = decode(MetadataRequest, 1, bytes.fromhex("00 00 00 01 00") + bytes([len(given)]) + given)
    assert [topic.name for topic in request.topics or ()] == [name]
    header = decode(RequestHeader, 1, bytes.fromhex("00 03 00 01 00 00 00 07 00") + bytes([len(given)]) + given)
    assert header.client_id == name


@pytest.mark.parametrize(
    ("message", "version", "data", "path", "reason"),
    [
        (MetadataRequest, 1, "ff ff ff fe", ".topics", "has the length -2"),
        (MetadataRequest, 0, "ff ff ff ff", ".topics", "must not be null"),
        (MetadataRequest, 1, "00 00 00 02 00 00", ".topics", "2 elements do not fit in the 2 bytes that are left"),
        (PartitionRecord, 2, "00 00 00 01" + TOPIC_ID.hex() + "01 01 01 01 00 00 00 07 00 00 00 08 00 00 00",
         ".partition_epoch", "the 35 bytes end here"),
        (MetadataRequest, 1, "00 00 00 02 00 01 61 00", r".topics\[1\].name", "the 8 bytes end here"),
        (MetadataRequest, 1, "00 00 00 01 00 02 61", r".topics\[0\].name", "2 bytes do not fit in the 1 that are"),
        (MetadataResponse, 0, "00 00 00 01 00 00 00 01 00 01 ff 00 00 00 05", r".brokers\[0\].host",
         "'utf-8' codec can't decode byte"),
        (MetadataRequest, 1, "00 00 00 01 ff ff", r".topics\[0\].name", "must not be null"),
        (MetadataRequest, 9, "ff ff ff ff 1f", ".topics", "a varint has more than 32 bits"),
        (MetadataRequest, 9, "80 80 80 80 80 00", ".topics", "a varint has more than 5 bytes"),
        (MetadataRequest, 9, "ff ff ff ff 0f", ".topics", "4294967294 elements do not fit in the 0 bytes"),
        (BeginTransactionRecord, 0, "01 00 03 01 00", r".unknown_tags\[0\]", "3 bytes do not fit in the 2"),
        (BeginTransactionRecord, 0, "01 00 02 01 00", ".name", "its size is wrong by -1 bytes"),
        (BeginTransactionRecord, 0, "01 00 00 01", ".name", "its size is wrong by 1 bytes"),
        (BeginTransactionRecord, 0, "03 00 01 01", ".unknown_tags", "3 tags do not fit in the 3 bytes"),
        (BeginTransactionRecord, 0, "02 07 00 08", r".unknown_tags", "2 tags do not fit in the 3 bytes"),
        (BeginTransactionRecord, 0, "02 07 00 88 00", r".unknown_tags\[1\]", "the 5 bytes end here"),
        (DescribeTopicPartitionsRequest, 0, "01 00 00 07 d0 07 00", ".cursor",
         "its first byte is 7, not 255"),
        (ApiVersionsRequest, 3, "01 01 00 00", "", "1 extra bytes after version 3"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_value_are_refused_by_the_field(
    message: Any, version: int, data: str, path: str, reason: str
) -> None:
    with pytest.raises(MalformedBytes, match=f"^{message.__name__}{path}: .*{reason}"):
        decode(message, version, bytes.fromhex(data))


@pytest.mark.parametrize("count", [15, 16, 17, 126, 127, 128, 16_382, 16_383, 16_384])
def test_lengths_around_the_bounds_of_a_varint_and_of_what_is_packed_at_once(count: int) -> None:
    value = PartitionRecord(replicas=tuple(range(count)), directories=(TOPIC_ID,) * count)
    assert decode(PartitionRecord, 2, encode(value, 2)) == value
    name = TopicRecord(name="n" * count)
    assert decode(TopicRecord, 0, encode(name, 0)) == name
    group = SyncGroupRequest(assignments=(SyncGroupRequestAssignment(member_id="m", assignment=b"a" * count),))
    for version in (0, 5):
        assert decode(SyncGroupRequest, version, encode(group, version)) == group


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        TopicRecord(topic="t")
    with pytest.raises(AttributeError):
        TopicRecord().topic = "t"


def test_values_are_equal_by_their_fields_and_their_unknown_tags() -> None:
    assert CreatableTopic(name="a") == CreatableTopic(name="a") != CreatableTopic(name="b")
    assert TopicRecord() != TopicRecord(unknown_tags=((9, b""),))
    assert CreateTopicsRequest() != FetchRequest()
    assert repr(TopicRecord(name="t", topic_id=b"", unknown_tags=((9, b""),))) == (
        "TopicRecord(name='t', topic_id=b'', unknown_tags=((9, b''),))"
    )
