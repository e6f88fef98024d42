"""DescribeReplicas, API key 10000: kraftlog's own, which no Kafka has (docs/rules/apis.md).

A leader reports how far each replica of its partitions is, and why one is not in sync. If `topics` is null, the request
is for every partition that the broker leads. -1 is an offset or a time that the leader does not know.
"""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, array, boolean, int16, int32, int64, string


class DescribeReplicasTopic(Struct):
    name: str = string()
    partition_indexes: tuple[int, ...] = array(int32)


class DescribeReplicasRequest(Message, key=10000, versions="0", flexible="0+"):
    topics: tuple[DescribeReplicasTopic, ...] | None = array(DescribeReplicasTopic, null=True)


class DescribedReplica(Struct):
    broker_id: int = int32()
    log_start_offset: int = int64(default=-1)
    log_end_offset: int = int64(default=-1)
    lag_ms: int = int64(default=-1)
    is_in_sync: bool = boolean()
    is_pending: bool = boolean()
    reasons: tuple[str, ...] = array(string)


class DescribedPartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    high_watermark: int = int64(default=-1)
    log_end_offset: int = int64(default=-1)
    replicas: tuple[DescribedReplica, ...] = array(DescribedReplica)


class DescribedTopic(Struct):
    name: str = string()
    partitions: tuple[DescribedPartition, ...] = array(DescribedPartition)


class DescribeReplicasResponse(Message, key=10000, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    topics: tuple[DescribedTopic, ...] = array(DescribedTopic)
