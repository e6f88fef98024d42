"""The largest and the most repetitive requests that a broker accepts, to test whether it continues to serve others.

Each function returns a request of the version that `VERSIONS` has for its API: the newest that names topics.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Mapping
from typing import Final

from kraftlog.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kraftlog.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import HEADER_BYTES, Compression, crc32c_of, encode_batch
from kraftlog.kafka.records import Record

VERSIONS: Final[Mapping[type[Message], int]] = {
    ProduceRequest: 12,
    FetchRequest: 12,
    ListOffsetsRequest: 7,
    MetadataRequest: 9,
    DescribeConfigsRequest: 4,
}

TOPIC: Final = 2
"""The type of a resource."""

PRODUCE_TIMEOUT_MS: Final = 30_000
SMALL_VALUE: Final = b"0123456789"
SMALL_RECORD_BYTES_MAX: Final = 21
"""Of a record with such a value, below 2^20 records in the batch."""

_SAME_RECORD: Final = bytes((12, 0, 0, 0, 1, 0, 0))
"""Six bytes behind the length: attributes, both deltas, no key, an empty value, no headers."""
_LENGTH_AT, _LENGTH_END, _CRC_AT, _CRC_END = 8, 12, 17, 21
_ATTRIBUTES_AT, _COUNT_AT = 21, 57


def produce(topic: str, index: int, records: bytes, *, acks: int = 1, times: int = 1) -> ProduceRequest:
    """The same batch for the same partition again and again."""
    part = PartitionProduceData(index=index, records=records)
    data = TopicProduceData(name=topic, partition_data=(part,) * times)
    return ProduceRequest(acks=acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=(data,))


def list_offsets(topic: str, partitions: int, timestamp_ms: int) -> ListOffsetsRequest:
    """The offsets of a timestamp, or of a special one, in the first partitions of a topic."""
    parts = tuple(ListOffsetsPartition(partition_index=index, timestamp=timestamp_ms) for index in range(partitions))
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=parts),))


def describe_configs(topic: str, times: int) -> DescribeConfigsRequest:
    """All configs of one topic, which is named again and again."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    return DescribeConfigsRequest(resources=(resource,) * times)


def fetch(topic: str, partitions: int) -> FetchRequest:
    """A fetch from the beginning of this many partitions, most of which the topic does not have."""
    parts = tuple(
        FetchPartition(partition=index, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1)
        for index in range(partitions)
    )
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=(FetchTopic(topic=topic, partitions=parts),))


def metadata(topics: int) -> MetadataRequest:
    """A request for this many topics that do not exist, and are not created."""
    names = tuple(MetadataRequestTopic(name=f"unknown-{index}") for index in range(topics))
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def metadata_of_all() -> MetadataRequest:
    """Of all topics."""
    return MetadataRequest(topics=None, allow_auto_topic_creation=False)


def records_in(size_bytes: int) -> int:
    """The number of records of a full batch."""
    return (size_bytes - HEADER_BYTES) // SMALL_RECORD_BYTES_MAX


def full_batch(size_bytes: int, first_timestamp_ms: int) -> bytes:
    """A batch of at most this many bytes with small records, each a millisecond after the previous one."""
    records = [Record(index, first_timestamp_ms + index, None, SMALL_VALUE) for index in range(records_in(size_bytes))]
    return encode_batch(records, base_offset=0, partition_leader_epoch=-1)


def small_batch() -> bytes:
    """A batch of one small record, of now."""
    record = Record(0, round(time.time() * 1_000), None, SMALL_VALUE)
    return encode_batch([record], base_offset=0, partition_leader_epoch=-1)


def repeated_record(count: int) -> bytes:
    """A gzip batch with the same record again and again, a thousandth of its records' size.

    No producer sends it: all of its records have the offset of the first one.
    """
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)  # 31: with gzip's header
    body, left = b"", count
    while left:
        some = min(left, 1 << 16)
        body += compressor.compress(_SAME_RECORD * some)
        left -= some
    batch = bytearray(small_batch()[:HEADER_BYTES] + body + compressor.flush())
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - _LENGTH_END)
    struct.pack_into(">hi", batch, _ATTRIBUTES_AT, Compression.GZIP, count - 1)
    struct.pack_into(">i", batch, _COUNT_AT, count)
    struct.pack_into(">I", batch, _CRC_AT, crc32c_of(batch[_CRC_END:]))
    return bytes(batch)
