"""EndQuorumEpoch, API key 54, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32()
    candidate_directory_id: Uuid = uuid()


class PartitionData(Struct):
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: tuple[int, ...] = array(int32, "0", ignorable=True)
    preferred_candidates: tuple[ReplicaInfo, ...] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = string()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = string(null=True, default=None)
    topics: tuple[TopicData, ...] = array(TopicData)
    leader_endpoints: tuple[LeaderEndpoint, ...] = array(LeaderEndpoint, "1+", ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    error_code: int = int16()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
    node_endpoints: tuple[NodeEndpoint, ...] = array(NodeEndpoint, "1+", tag=0)
