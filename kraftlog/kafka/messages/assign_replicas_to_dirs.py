"""AssignReplicasToDirs, API key 73, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class DirectoryData(Struct):
    id: Uuid = uuid()
    topics: tuple[TopicData, ...] = array(TopicData)


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: tuple[DirectoryData, ...] = array(DirectoryData)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


class ResponseDirectoryData(Struct):
    id: Uuid = uuid()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: tuple[ResponseDirectoryData, ...] = array(ResponseDirectoryData)
