"""DescribeLogDirs, API key 35, as in Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kraftlog.kafka.notation import Message, Struct, array, boolean, int16, int32, int64, string

FULL: Final = (10_000, b"\x01")
"""A tagged field of our own in a result (KIP-482): the directory has no room. Other clients ignore it."""
FIRST_VERSION_WITH_TAGS: Final = 2


class DescribableLogDirTopic(Struct):
    topic: str = string()
    partitions: tuple[int, ...] = array(int32)


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
    topics: tuple[DescribableLogDirTopic, ...] | None = array(DescribableLogDirTopic, null=True)


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult)
