"""What the controller answered to brokers and the administrator is in the log."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.sim.quorum.invariants.acknowledged_metadata import AcknowledgedMetadata
from kraftlog.sim.quorum.observation.call import CREATED_BY, Call
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation, OperationResult
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord, RemoveTopicRecord, UnregisterBrokerRecord
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import (
    KEY,
    TOPIC_ID,
    MetadataCluster,
    change,
    partition,
    register,
    topic,
)

CREATE = Operation(
    create_topics=admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.CreatableTopic(name="clicks", configs=[admin_pb2.ConfigEntry(name=CREATED_BY, value="7")])]
    )
)
CREATED = admin_pb2.CreateTopicsResponse(topics=[admin_pb2.CreatedTopic(name="clicks", topic_id=TOPIC_ID)])
MARK = MetadataRecord(config=ConfigRecord(resource_type=2, resource_name="clicks", name=CREATED_BY, value="7"))
DELETE = Operation(delete_topics=admin_pb2.DeleteTopicsRequest())
DELETED = admin_pb2.DeleteTopicsResponse(topics=[admin_pb2.DeletedTopic(topic_id=TOPIC_ID)])
UNREGISTER = Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=1))


def call(operation: Operation, result: OperationResult, committed_before: int = 0) -> Call:
    return Call(301, operation, 0, committed_before, result)


def is_in_order(cluster: MetadataCluster, *calls: Call) -> None:
    cluster.calls = list(calls)
    AcknowledgedMetadata(cluster).at_end()


def is_found(cluster: MetadataCluster, *calls: Call) -> None:
    cluster.calls = list(calls)
    invariant = AcknowledgedMetadata(cluster)
    with violates(invariant):
        invariant.at_end()


def test_what_was_acknowledged_is_there() -> None:
    cluster = MetadataCluster()
    cluster.records(topic(), MARK)
    cluster.records(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=TOPIC_ID)))
    cluster.records(
        register(1, 3), MetadataRecord(unregister_broker=UnregisterBrokerRecord(broker_id=1, broker_epoch=3))
    )
    registration = admin_pb2.RegisterBrokerRequest(broker_id=1, incarnation_id=b"i" * 16)
    registered = admin_pb2.RegisterBrokerResponse(broker_epoch=3)
    is_in_order(
        cluster,
        call(CREATE, OperationResult(create_topics=CREATED, end_offset=2)),
        call(DELETE, OperationResult(delete_topics=DELETED, end_offset=3), 2),
        call(Operation(register_broker=registration), OperationResult(register_broker=registered, end_offset=5)),
        call(UNREGISTER, OperationResult(end_offset=5), 3),
        call(DELETE, OperationResult(error_code=ErrorCode.REQUEST_TIMED_OUT, end_offset=9)),
    )


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (CREATE, OperationResult(create_topics=CREATED, end_offset=1)),
        (DELETE, OperationResult(delete_topics=DELETED, end_offset=1)),
        (UNREGISTER, OperationResult(end_offset=1)),
        (
            Operation(register_broker=admin_pb2.RegisterBrokerRequest(broker_id=1, incarnation_id=b"j" * 16)),
            OperationResult(register_broker=admin_pb2.RegisterBrokerResponse(broker_epoch=0), end_offset=1),
        ),
    ],
)
def test_what_was_acknowledged_and_is_not_there_is_found(operation: Operation, result: OperationResult) -> None:
    cluster = MetadataCluster()
    cluster.records(register(1, 0))
    is_found(cluster, call(operation, result))


def test_what_was_there_before_is_no_answer() -> None:
    cluster = MetadataCluster()
    cluster.records(topic(), MARK)
    is_found(cluster, call(CREATE, OperationResult(create_topics=CREATED, end_offset=2), committed_before=1))


def test_a_refused_topic_that_is_created_is_found() -> None:
    cluster = MetadataCluster()
    cluster.records(topic(), MARK)
    is_found(cluster, call(CREATE, OperationResult(error_code=ErrorCode.NOT_CONTROLLER, end_offset=-1)))
    refused = admin_pb2.CreatedTopic(name="clicks", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    answer = admin_pb2.CreateTopicsResponse(topics=[refused])
    is_found(cluster, call(CREATE, OperationResult(create_topics=answer, end_offset=2)))
    unknown = OperationResult(error_code=ErrorCode.REQUEST_TIMED_OUT, end_offset=2)
    is_in_order(cluster, call(CREATE, unknown))


def test_an_operation_that_took_effect_twice_is_found() -> None:
    cluster = MetadataCluster()
    cluster.records(topic(), MARK)
    cluster.records(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=TOPIC_ID)))
    cluster.records(topic("clicks", b"u" * 16), MARK)
    is_found(cluster)


def test_a_new_isr_is_what_the_partition_had_at_that_epoch() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = AcknowledgedMetadata(cluster)
    for record in (partition(), change(isr=[1, 2]), change(isr=[1])):
        invariant.after_step(cluster.records(record))
    told = admin_pb2.AlterPartitionResult(
        topic_id=KEY[0], partition_id=0, leader=1, leader_epoch=0, isr=[1, 2], partition_epoch=1
    )
    alter = Operation(alter_partition=admin_pb2.AlterPartitionRequest())
    result = OperationResult(alter_partition=admin_pb2.AlterPartitionResponse(partitions=[told]))
    cluster.calls = [call(alter, result)]
    invariant.at_end()
    result.alter_partition.partitions[0].partition_epoch = 2
    with violates(invariant):
        invariant.at_end()


def test_where_a_quorum_may_be_lost_nothing_is_promised() -> None:
    cluster = MetadataCluster()
    cluster.records(register(1, 0))
    cluster.faults_may_lose_quorum = True
    is_in_order(cluster, call(UNREGISTER, OperationResult(end_offset=1)))
