"""DescribeQuorum, API key 55, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    topics: tuple[TopicData, ...] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", null=True, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: tuple[ReplicaState, ...] = array(ReplicaState)
    observers: tuple[ReplicaState, ...] = array(ReplicaState)


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


class Listener(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    node_id: int = int32()
    listeners: tuple[Listener, ...] = array(Listener)


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code: int = int16()
    error_message: str | None = string("2+", null=True, ignorable=True)
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    nodes: tuple[Node, ...] = array(Node, "2+")
