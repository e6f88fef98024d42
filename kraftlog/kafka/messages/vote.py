"""Vote, API key 52, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, boolean, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class TopicData(Struct):
    topic_name: str = string()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string(null=True, default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[TopicData, ...] = array(TopicData)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    error_code: int = int16()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
