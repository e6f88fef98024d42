"""FetchSnapshot, API key 59, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import (
    Buffer,
    Message,
    Struct,
    Uuid,
    array,
    int16,
    int32,
    int64,
    record_bytes,
    string,
    struct,
    uint16,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class PartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: tuple[PartitionSnapshot, ...] = array(PartitionSnapshot)


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string(null=True, default=None, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2**31 - 1)
    topics: tuple[TopicSnapshot, ...] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class ResponsePartitionSnapshot(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Buffer = record_bytes()


class ResponseTopicSnapshot(Struct):
    name: str = string()
    partitions: tuple[ResponsePartitionSnapshot, ...] = array(ResponsePartitionSnapshot)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: tuple[ResponseTopicSnapshot, ...] = array(ResponseTopicSnapshot)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
