"""AlterPartition, API key 56, as in Kafka 4.3."""

from __future__ import annotations

from kraftlog.kafka.notation import Message, Struct, Uuid, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class PartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: tuple[int, ...] = array(int32, "2")
    new_isr_with_epochs: tuple[BrokerState, ...] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: tuple[PartitionData, ...] = array(PartitionData)


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="2+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: tuple[TopicData, ...] = array(TopicData)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: tuple[int, ...] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData)


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData)
