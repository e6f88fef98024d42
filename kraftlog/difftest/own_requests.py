"""Steps as kraftlog's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.difftest import steps
from kraftlog.difftest.kafka_requests import (
    FEATURES,
    TIMEOUT_MS,
    UNKNOWN_CLUSTER_ID,
    Known,
    broker_epoch,
    epochs_of,
    isr_of,
    member_epoch,
    sender_of,
    topic_id,
)
from kraftlog.difftest.records import COMPARED_FEATURES, directory_id, incarnation_id
from kraftpb.v1 import admin_pb2, metadata_pb2
from kraftpb.v1.admin_pb2 import Operation

ANY: Final = 1
"""Kafka's number for any type, operation or permission. In kraftlog's filters the field is not set instead."""


def operation_of(step: steps.Step, known: Known) -> Operation:
    """Return the operation for a step."""
    operation: Operation = _OPERATIONS[type(step)](step, known)
    operation.timeout_ms = TIMEOUT_MS
    return operation


# --- operations -------------------------------------------------------------------------------------------------------


def _register(step: steps.RegisterBroker, known: Known) -> Operation:
    epoch = known.names.broker_epochs.get(step.broker_id)
    request = admin_pb2.RegisterBrokerRequest(
        broker_id=step.broker_id,
        cluster_id=UNKNOWN_CLUSTER_ID if step.is_stranger else known.cluster_id,
        incarnation_id=incarnation_id(step.broker_id, step.incarnation),
        listeners=[metadata_pb2.BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9000 + step.broker_id)],
        rack=step.rack,
        log_dirs=[directory_id(step.broker_id, number) for number in step.log_dirs],
        features=[
            metadata_pb2.SupportedFeature(name=name, min_level=low, max_level=high)
            for name, low, high in FEATURES
            if name in COMPARED_FEATURES
        ],
        previous_broker_epoch=epoch if step.is_clean else None,
    )
    return Operation(register_broker=request)


def _heartbeat(step: steps.Heartbeat, known: Known) -> Operation:
    request = admin_pb2.BrokerHeartbeatRequest(
        broker_id=step.broker_id,
        broker_epoch=broker_epoch(known.names, step.broker_id, step.epoch_change),
        current_metadata_offset=known.end_offset if step.is_caught_up else 1,
        want_fence=step.want_fence,
        want_shut_down=step.want_shut_down,
        offline_log_dirs=[directory_id(step.broker_id, number) for number in step.offline_log_dirs],
    )
    return Operation(broker_heartbeat=request)


def _unregister(step: steps.UnregisterBroker, _: Known) -> Operation:
    return Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=step.broker_id))


def _create_topics(step: steps.CreateTopics, _: Known) -> Operation:
    topics = [
        admin_pb2.CreatableTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[
                admin_pb2.PartitionAssignment(partition_id=number, broker_ids=broker_ids)
                for number, broker_ids in enumerate(topic.assignments, topic.first_partition)
            ],
            configs=[admin_pb2.ConfigEntry(name=name, value=value) for name, value in topic.configs],
        )
        for topic in step.topics
    ]
    return Operation(create_topics=admin_pb2.CreateTopicsRequest(topics=topics, validate_only=step.validate_only))


def _place_topic(step: steps.PlaceTopic, known: Known) -> Operation:
    topic = steps.NewTopic(step.name, (), step.num_partitions, step.replication_factor)
    return _create_topics(steps.CreateTopics((topic,)), known)


def _delete_topics(step: steps.DeleteTopics, _: Known) -> Operation:
    topics = [admin_pb2.TopicReference(name=name) for name in step.names]
    return Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=topics))


def _create_partitions(step: steps.CreatePartitions, _: Known) -> Operation:
    topic = admin_pb2.PartitionsOfTopic(
        name=step.topic,
        count=step.count,
        assignments=[metadata_pb2.BrokerIds(ids=broker_ids) for broker_ids in step.assignments],
    )
    return Operation(
        create_partitions=admin_pb2.CreatePartitionsRequest(topics=[topic], validate_only=step.validate_only)
    )


def _alter_configs(step: steps.AlterConfigs, _: Known) -> Operation:
    alterations = [
        admin_pb2.ConfigAlteration(
            resource_type=step.resource_type,
            resource_name=step.resource_name,
            name=name,
            kind=operation,  # type: ignore[arg-type]  # the numbers are Kafka's
            value="" if operation == steps.DELETE else value,
        )
        for name, operation, value in step.changes
    ]
    return Operation(
        alter_configs=admin_pb2.AlterConfigsRequest(alterations=alterations, validate_only=step.validate_only)
    )


def _reassign(step: steps.Reassign, _: Known) -> Operation:
    partitions = [
        admin_pb2.PartitionReassignment(
            topic=topic,
            partition_id=partition,
            replicas=None if replicas is None else metadata_pb2.BrokerIds(ids=replicas),
        )
        for topic, partition, replicas in step.partitions
    ]
    return Operation(alter_partition_reassignments=admin_pb2.AlterPartitionReassignmentsRequest(partitions=partitions))


def _elect(step: steps.ElectLeaders, _: Known) -> Operation:
    references = None
    if step.partitions is not None:
        references = admin_pb2.PartitionReferences(
            partitions=[
                admin_pb2.PartitionReference(topic=topic, partition_id=partition)
                for topic, partition in step.partitions
            ]
        )
    return Operation(
        elect_leaders=admin_pb2.ElectLeadersRequest(
            election_type=step.election_type,  # type: ignore[arg-type]  # the numbers are Kafka's
            partitions=references,
        )
    )


def _alter_partition(step: steps.AlterPartition, known: Known) -> Operation:
    sender = sender_of(step, known.image)
    leader_epoch, partition_epoch = epochs_of(step, known.image)
    altered = admin_pb2.AlteredPartition(
        topic_id=topic_id(known.names, step.topic),
        partition_id=step.partition,
        leader_epoch=leader_epoch,
        new_isr=[
            admin_pb2.IsrMember(broker_id=member, broker_epoch=member_epoch(step, known.names, member))
            for member in isr_of(step, known.image)
        ],
        leader_recovery_state=step.recovery_state,
        partition_epoch=partition_epoch,
    )
    return Operation(
        alter_partition=admin_pb2.AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=broker_epoch(known.names, sender, step.broker_epoch_change),
            partitions=[altered],
        )
    )


def _assign(step: steps.AssignDirectories, known: Known) -> Operation:
    assignments = [
        admin_pb2.DirectoryAssignment(
            topic_id=topic_id(known.names, topic),
            partition_id=partition,
            directory_id=directory_id(step.broker_id, step.log_dir),
        )
        for topic, partition in step.partitions
    ]
    return Operation(
        assign_replicas_to_dirs=admin_pb2.AssignReplicasToDirsRequest(
            broker_id=step.broker_id,
            broker_epoch=broker_epoch(known.names, step.broker_id, step.epoch_change),
            assignments=assignments,
        )
    )


def _allocate(step: steps.AllocateProducerIds, known: Known) -> Operation:
    epoch = broker_epoch(known.names, step.broker_id, step.epoch_change)
    return Operation(
        allocate_producer_ids=admin_pb2.AllocateProducerIdsRequest(broker_id=step.broker_id, broker_epoch=epoch)
    )


def _update_feature(step: steps.UpdateFeature, _: Known) -> Operation:
    update = admin_pb2.FeatureUpdate(
        name=step.name,
        level=step.level,
        upgrade_type=step.upgrade_type,  # type: ignore[arg-type]  # the numbers are Kafka's
    )
    return Operation(
        update_features=admin_pb2.UpdateFeaturesRequest(updates=[update], validate_only=step.validate_only)
    )


def _alter_quotas(step: steps.AlterQuotas, _: Known) -> Operation:
    entity = [metadata_pb2.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in step.entity]
    alterations = [admin_pb2.ClientQuotaAlteration(entity=entity, key=key, value=value) for key, value in step.changes]
    return Operation(
        alter_client_quotas=admin_pb2.AlterClientQuotasRequest(
            alterations=alterations, validate_only=step.validate_only
        )
    )


def _create_acls(step: steps.CreateAcls, _: Known) -> Operation:
    entries = [
        metadata_pb2.AccessControlEntryRecord(
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        for entry in step.entries
    ]
    return Operation(create_acls=admin_pb2.CreateAclsRequest(entries=entries))


def _delete_acls(step: steps.DeleteAcls, _: Known) -> Operation:
    filters = [
        admin_pb2.AclFilter(
            resource_type=None if one.resource_type == ANY else one.resource_type,
            resource_name=one.resource_name,
            pattern_type=one.pattern_type,
            principal=one.principal,
            host=one.host,
            operation=None if one.operation == ANY else one.operation,
            permission_type=None if one.permission_type == ANY else one.permission_type,
        )
        for one in step.filters
    ]
    return Operation(delete_acls=admin_pb2.DeleteAclsRequest(filters=filters))


_OPERATIONS: Final[dict[type[Any], Callable[[Any, Known], Operation]]] = {
    steps.RegisterBroker: _register,
    steps.Heartbeat: _heartbeat,
    steps.UnregisterBroker: _unregister,
    steps.CreateTopics: _create_topics,
    steps.PlaceTopic: _place_topic,
    steps.DeleteTopics: _delete_topics,
    steps.CreatePartitions: _create_partitions,
    steps.AlterConfigs: _alter_configs,
    steps.Reassign: _reassign,
    steps.ElectLeaders: _elect,
    steps.AlterPartition: _alter_partition,
    steps.AssignDirectories: _assign,
    steps.AllocateProducerIds: _allocate,
    steps.UpdateFeature: _update_feature,
    steps.AlterQuotas: _alter_quotas,
    steps.CreateAcls: _create_acls,
    steps.DeleteAcls: _delete_acls,
}
