"""Conversions between kraftpb messages and descriptions, both ways."""

from __future__ import annotations

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, SupportedFeature
from statemachine.query.descriptions import (
    Alteration,
    BrokerDescription,
    BrokerListener,
    ConfigValue,
    CreatedTopic,
    FeatureLevels,
    NewTopic,
    PartitionDescription,
    QueryAnswer,
    TopicDescription,
    TopicListing,
)


def broker_to_record(broker: BrokerDescription) -> RegisterBrokerRecord:
    """The registration of a broker as a record."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=id_to_bytes(broker.incarnation_id),
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
            for at in broker.listeners
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=map(id_to_bytes, broker.log_dirs),
        features=[
            SupportedFeature(name=found.name, min_level=found.min_level, max_level=found.max_level)
            for found in broker.features
        ],
        older_log_dirs=map(id_to_bytes, broker.older_log_dirs),
    )


def broker_from_record(record: RegisterBrokerRecord) -> BrokerDescription:
    """A registration as a description."""
    return BrokerDescription(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=id_to_text(record.incarnation_id),
        listeners=tuple(BrokerListener(at.name, at.host, at.port, at.security_protocol) for at in record.end_points),
        rack=record.rack if record.HasField("rack") else None,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(map(id_to_text, record.log_dirs)),
        features=tuple(FeatureLevels(found.name, found.min_level, found.max_level) for found in record.features),
        older_log_dirs=tuple(map(id_to_text, record.older_log_dirs)),
    )


def topic_listing_to_proto(topic: TopicListing) -> admin_pb2.TopicListing:
    """A topic in one line."""
    return admin_pb2.TopicListing(
        name=topic.name,
        topic_id=id_to_bytes(topic.topic_id),
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
    )


def topic_listing_from_proto(topic: admin_pb2.TopicListing) -> TopicListing:
    """A topic in one line."""
    return TopicListing(topic.name, id_to_text(topic.topic_id), topic.num_partitions, topic.replication_factor)


def topic_to_proto(topic: TopicDescription) -> admin_pb2.TopicDescription:
    """A topic in full."""
    topic_id = id_to_bytes(topic.topic_id)
    return admin_pb2.TopicDescription(
        name=topic.name,
        topic_id=topic_id,
        partitions=[_partition_to_record(topic_id, partition) for partition in topic.partitions],
        configs=map(config_to_proto, topic.configs),
    )


def topic_from_proto(topic: admin_pb2.TopicDescription) -> TopicDescription:
    """A topic in full."""
    return TopicDescription(
        name=topic.name,
        topic_id=id_to_text(topic.topic_id),
        partitions=tuple(map(_partition_from_record, topic.partitions)),
        configs=tuple(map(config_from_proto, topic.configs)),
    )


def new_topic_to_proto(topic: NewTopic) -> admin_pb2.CreatableTopic:
    """A topic to create."""
    return admin_pb2.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            admin_pb2.PartitionAssignment(partition_id=partition_id, broker_ids=broker_ids)
            for partition_id, broker_ids in topic.assignments.items()
        ],
        configs=[admin_pb2.ConfigEntry(name=name, value=value) for name, value in topic.configs.items()],
    )


def created_topic_from_proto(topic: admin_pb2.CreatedTopic) -> CreatedTopic:
    """A topic that was created."""
    return CreatedTopic(topic.name, id_to_text(topic.topic_id), topic.num_partitions, topic.replication_factor)


def alteration_to_proto(alteration: Alteration) -> admin_pb2.ConfigAlteration:
    """A config to set or to remove."""
    kind = admin_pb2.ConfigAlteration.DELETE if alteration.value is None else admin_pb2.ConfigAlteration.SET
    return admin_pb2.ConfigAlteration(
        resource_type=alteration.resource_type,
        resource_name=alteration.resource_name,
        name=alteration.name,
        kind=kind,
        value=alteration.value or "",
    )


def config_to_proto(config: ConfigValue) -> admin_pb2.ConfigEntry:
    """A config and its value."""
    return admin_pb2.ConfigEntry(name=config.name, value=config.value)


def config_from_proto(config: admin_pb2.ConfigEntry | admin_pb2.DescribedConfig) -> ConfigValue:
    """A config and its value."""
    return ConfigValue(config.name, config.value)


def query_answer_from_proto(answer: admin_pb2.QueryResponse) -> QueryAnswer:
    """The rows, with SQLite's values: numbers, texts, bytes, None."""
    rows = tuple(tuple(map(_query_value, row.values)) for row in answer.rows)
    return QueryAnswer(answer.applied_end_offset, tuple(answer.columns), rows)


def _query_value(value: admin_pb2.QueryValue) -> int | float | str | bytes | None:
    match value.WhichOneof("value"):
        case "integer":
            return value.integer
        case "real":
            return value.real
        case "text":
            return value.text
        case "blob":
            return value.blob
    return None


def _partition_to_record(topic_id: bytes, partition: PartitionDescription) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition.partition_id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=map(id_to_bytes, partition.directories),
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
    )


def _partition_from_record(record: PartitionRecord) -> PartitionDescription:
    return PartitionDescription(
        partition_id=record.partition_id,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader_recovery_state=record.leader_recovery_state,
        directories=tuple(map(id_to_text, record.directories)),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas),
        last_known_elr=tuple(record.last_known_elr),
    )
