"""Steps as Kafka's requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kraftlog.difftest import steps
from kraftlog.difftest.image import NO_BROKER, Image
from kraftlog.difftest.records import Names, directory_id, incarnation_id
from kraftlog.difftest.system import UNKNOWN_TOPIC_ID
from kraftlog.kafka.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
    update_features,
)
from kraftlog.kafka.notation import Message
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST, METADATA_VERSION_MIN

TIMEOUT_MS: Final = 30_000
UNKNOWN_CLUSTER_ID: Final = "AnotherClusterAnother0"
UNKNOWN_EPOCH: Final = 1_000_000_000

VERSIONS: Final = {
    19: 7, 20: 6, 30: 3, 31: 3, 37: 3, 43: 2, 44: 1, 45: 1, 49: 1, 56: 3, 57: 2, 62: 4, 63: 1, 64: 0, 67: 0, 73: 0,
}  # fmt: skip
"""The version of each API's requests, by key."""

FEATURES: Final = (
    (METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LATEST), ("eligible.leader.replicas.version", 0, 1),
    ("group.version", 0, 1), ("transaction.version", 0, 2), ("share.version", 0, 2), ("streams.version", 0, 1),
    ("kraft.version", 0, 1),
)  # fmt: skip
"""The features that a broker of a run supports; kraftlog knows the first two of them."""


@dataclass(frozen=True, slots=True)
class Known:
    """The state that a request depends on, apart from its step."""

    image: Image
    names: Names
    cluster_id: str
    end_offset: int
    """The offset after the last record that was read."""


def request_of(step: steps.Step, known: Known) -> Message:
    """The request for a step."""
    request: Message = _REQUESTS[type(step)](step, known)
    return request


def broker_epoch(names: Names, broker_id: int, change: int) -> int:
    """Return the broker's epoch plus a step's change; -1 plus the change for a broker that never registered."""
    return names.broker_epochs.get(broker_id, -1) + (UNKNOWN_EPOCH if change > 0 else change)


def topic_id(names: Names, topic: str) -> bytes:
    """Return the id of a topic, or an id that no topic has."""
    return names.topic_ids.get(topic, UNKNOWN_TOPIC_ID)


def sender_of(step: steps.AlterPartition, image: Image) -> int:
    """The broker that proposes an ISR."""
    if step.sender is not None:
        return step.sender
    partition = image.partitions.get((step.topic, step.partition))
    return 1 if partition is None or partition.leader == NO_BROKER else partition.leader


def epochs_of(step: steps.AlterPartition, image: Image) -> tuple[int, int]:
    """The leader epoch and the partition epoch that a proposal names."""
    partition = image.partitions.get((step.topic, step.partition))
    leader_epoch, partition_epoch = (0, 0) if partition is None else (partition.leader_epoch, partition.partition_epoch)
    return leader_epoch + step.leader_epoch_change, partition_epoch + step.partition_epoch_change


def isr_of(step: steps.AlterPartition, image: Image) -> tuple[int, ...]:
    """The ISR that is proposed."""
    partition = image.partitions.get((step.topic, step.partition))
    if partition is None or step.meaning == steps.EXACTLY:
        return step.isr
    if step.meaning == steps.ALL:
        return partition.replicas
    if step.meaning == steps.ALONE:
        return (partition.leader,)
    kept = tuple(one for one in partition.isr if one not in step.isr or one == partition.leader)
    return kept + tuple(one for one in step.isr if one not in partition.isr)


def member_epoch(step: steps.AlterPartition, names: Names, broker_id: int) -> int:
    """Return the broker epoch that a proposal names for a member; -1 for none."""
    change = step.member_epoch_change
    return -1 if change is None else broker_epoch(names, broker_id, change)


# --- requests ---------------------------------------------------------------------------------------------------------


def _register(step: steps.RegisterBroker, known: Known) -> Message:
    return broker_registration.BrokerRegistrationRequest(
        broker_id=step.broker_id,
        cluster_id=UNKNOWN_CLUSTER_ID if step.is_stranger else known.cluster_id,
        incarnation_id=incarnation_id(step.broker_id, step.incarnation),
        listeners=(broker_registration.Listener(name="PLAINTEXT", host="localhost", port=9000 + step.broker_id),),
        features=tuple(
            broker_registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in FEATURES
        ),
        rack=step.rack,
        log_dirs=tuple(directory_id(step.broker_id, number) for number in step.log_dirs),
        previous_broker_epoch=known.names.broker_epochs.get(step.broker_id, -1) if step.is_clean else -1,
    )


def _heartbeat(step: steps.Heartbeat, known: Known) -> Message:
    return broker_heartbeat.BrokerHeartbeatRequest(
        broker_id=step.broker_id,
        broker_epoch=broker_epoch(known.names, step.broker_id, step.epoch_change),
        current_metadata_offset=known.end_offset - 1 if step.is_caught_up else 0,
        want_fence=step.want_fence,
        want_shut_down=step.want_shut_down,
        offline_log_dirs=tuple(directory_id(step.broker_id, number) for number in step.offline_log_dirs),
    )


def _unregister(step: steps.UnregisterBroker, _: Known) -> Message:
    return unregister_broker.UnregisterBrokerRequest(broker_id=step.broker_id)


def _create_topics(step: steps.CreateTopics, _: Known) -> Message:
    topics = tuple(
        create_topics.CreatableTopic(
            name=topic.name,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=tuple(
                create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=broker_ids)
                for number, broker_ids in enumerate(topic.assignments, topic.first_partition)
            ),
            configs=tuple(create_topics.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs),
        )
        for topic in step.topics
    )
    return create_topics.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=step.validate_only)


def _place_topic(step: steps.PlaceTopic, known: Known) -> Message:
    topic = steps.NewTopic(step.name, (), step.num_partitions, step.replication_factor)
    return _create_topics(steps.CreateTopics((topic,)), known)


def _delete_topics(step: steps.DeleteTopics, _: Known) -> Message:
    topics = tuple(delete_topics.DeleteTopicState(name=name) for name in step.names)
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def _create_partitions(step: steps.CreatePartitions, _: Known) -> Message:
    assignments = tuple(
        create_partitions.CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in step.assignments
    )
    topic = create_partitions.CreatePartitionsTopic(name=step.topic, count=step.count, assignments=assignments or None)
    return create_partitions.CreatePartitionsRequest(
        topics=(topic,), timeout_ms=TIMEOUT_MS, validate_only=step.validate_only
    )


def _alter_configs(step: steps.AlterConfigs, _: Known) -> Message:
    configs = tuple(
        incremental_alter_configs.AlterableConfig(
            name=name, config_operation=operation, value=None if operation == steps.DELETE else value
        )
        for name, operation, value in step.changes
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=step.resource_type, resource_name=step.resource_name, configs=configs
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=step.validate_only
    )


def _reassign(step: steps.Reassign, _: Known) -> Message:
    topics = tuple(
        alter_partition_reassignments.ReassignableTopic(
            name=name,
            partitions=tuple(
                alter_partition_reassignments.ReassignablePartition(partition_index=partition, replicas=replicas)
                for _, partition, replicas in found
            ),
        )
        for name, found in groupby(step.partitions, key=lambda one: one[0])
    )
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def _elect(step: steps.ElectLeaders, _: Known) -> Message:
    found = None
    if step.partitions is not None:
        found = tuple(
            elect_leaders.TopicPartitions(topic=topic, partitions=tuple(partition for _, partition in those))
            for topic, those in groupby(step.partitions, key=lambda one: one[0])
        )
    return elect_leaders.ElectLeadersRequest(
        election_type=step.election_type, topic_partitions=found, timeout_ms=TIMEOUT_MS
    )


def _alter_partition(step: steps.AlterPartition, known: Known) -> Message:
    sender = sender_of(step, known.image)
    leader_epoch, partition_epoch = epochs_of(step, known.image)
    partition = alter_partition.PartitionData(
        partition_index=step.partition,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=tuple(
            alter_partition.BrokerState(broker_id=member, broker_epoch=member_epoch(step, known.names, member))
            for member in isr_of(step, known.image)
        ),
        leader_recovery_state=step.recovery_state,
        partition_epoch=partition_epoch,
    )
    topic = alter_partition.TopicData(topic_id=topic_id(known.names, step.topic), partitions=(partition,))
    return alter_partition.AlterPartitionRequest(
        broker_id=sender, broker_epoch=broker_epoch(known.names, sender, step.broker_epoch_change), topics=(topic,)
    )


def _assign(step: steps.AssignDirectories, known: Known) -> Message:
    topics = tuple(
        assign_replicas_to_dirs.TopicData(
            topic_id=topic_id(known.names, topic),
            partitions=tuple(
                assign_replicas_to_dirs.PartitionData(partition_index=partition) for _, partition in those
            ),
        )
        for topic, those in groupby(step.partitions, key=lambda one: one[0])
    )
    directory = assign_replicas_to_dirs.DirectoryData(id=directory_id(step.broker_id, step.log_dir), topics=topics)
    return assign_replicas_to_dirs.AssignReplicasToDirsRequest(
        broker_id=step.broker_id,
        broker_epoch=broker_epoch(known.names, step.broker_id, step.epoch_change),
        directories=(directory,),
    )


def _allocate(step: steps.AllocateProducerIds, known: Known) -> Message:
    return allocate_producer_ids.AllocateProducerIdsRequest(
        broker_id=step.broker_id, broker_epoch=broker_epoch(known.names, step.broker_id, step.epoch_change)
    )


def _update_feature(step: steps.UpdateFeature, _: Known) -> Message:
    update = update_features.FeatureUpdateKey(
        feature=step.name, max_version_level=step.level, upgrade_type=step.upgrade_type
    )
    return update_features.UpdateFeaturesRequest(
        feature_updates=(update,), timeout_ms=TIMEOUT_MS, validate_only=step.validate_only
    )


def _alter_quotas(step: steps.AlterQuotas, _: Known) -> Message:
    entity = tuple(alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in step.entity)
    changes = tuple(
        alter_client_quotas.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in step.changes
    )
    entry = alter_client_quotas.EntryData(entity=entity, ops=changes)
    return alter_client_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=step.validate_only)


def _create_acls(step: steps.CreateAcls, _: Known) -> Message:
    creations = tuple(
        create_acls.AclCreation(
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            resource_pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
        for entry in step.entries
    )
    return create_acls.CreateAclsRequest(creations=creations)


def _delete_acls(step: steps.DeleteAcls, _: Known) -> Message:
    filters = tuple(
        delete_acls.DeleteAclsFilter(
            resource_type_filter=one.resource_type,
            resource_name_filter=one.resource_name,
            pattern_type_filter=one.pattern_type,
            principal_filter=one.principal,
            host_filter=one.host,
            operation=one.operation,
            permission_type=one.permission_type,
        )
        for one in step.filters
    )
    return delete_acls.DeleteAclsRequest(filters=filters)


_REQUESTS: Final[dict[type[Any], Callable[[Any, Known], Message]]] = {
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
