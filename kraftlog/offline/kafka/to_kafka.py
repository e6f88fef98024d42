"""Our metadata records as Kafka's, in the versions that a Kafka of the metadata.version writes. Opaque records hold
Kafka's bytes, and become the original record again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.kafka import metadata_records as kafka
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_values import decode_metadata_record
from kraftpb.v1 import metadata_pb2 as ours
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.words.config_definitions import is_own_config
from statemachine.words.record_versions import in_version


def to_kafka(record: MetadataRecord, metadata_version: int) -> tuple[Message, int] | None:
    """The Kafka record, and its version; None for a kind or a config that Kafka lacks. `record` is changed."""
    kind = record.WhichOneof("record") or ""
    found = getattr(record, kind)
    if isinstance(found, ours.OpaqueRecord):
        return decode_metadata_record(found.value)
    convert = TO_KAFKA.get(kind)
    if convert is None or (kind == "config" and is_own_config(found.resource_type, found.name)):
        return None
    in_version(record, metadata_version)
    return convert(found), record.version


def _register_broker(record: ours.RegisterBrokerRecord) -> kafka.RegisterBrokerRecord:
    return kafka.RegisterBrokerRecord(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        end_points=tuple(
            kafka.BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
            for at in record.end_points
        ),
        features=tuple(
            kafka.BrokerFeature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
            for one in record.features
        ),
        rack=record.rack if record.HasField("rack") else None,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        cordoned_log_dirs=tuple(record.cordoned_log_dirs) or None,
    )


def _register_controller(record: ours.RegisterControllerRecord) -> kafka.RegisterControllerRecord:
    return kafka.RegisterControllerRecord(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        end_points=tuple(
            kafka.ControllerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
            for at in record.end_points
        ),
        features=tuple(
            kafka.ControllerFeature(
                name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level
            )
            for one in record.features
        ),
    )


def _partition(record: ours.PartitionRecord) -> kafka.PartitionRecord:
    return kafka.PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=tuple(record.directories),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas) or None,
        last_known_elr=tuple(record.last_known_elr) or None,
    )


def _client_quota(record: ours.ClientQuotaRecord) -> kafka.ClientQuotaRecord:
    entity = tuple(
        kafka.EntityData(
            entity_type=part.entity_type, entity_name=part.entity_name if part.HasField("entity_name") else None
        )
        for part in record.entity
    )
    return kafka.ClientQuotaRecord(entity=entity, key=record.key, value=record.value)


def _like(message: type[Message]) -> Callable[[Any], Message]:
    """Of a kind whose fields have the same names and types in both."""
    names = [field.name for field in message.FIELDS]
    return lambda record: message(**{name: getattr(record, name) for name in names})


TO_KAFKA: Final[dict[str, Callable[[Any], Message]]] = {
    "feature_level": lambda record: kafka.FeatureLevelRecord(name=record.name, feature_level=record.level),
    "register_controller": _register_controller,
    "register_broker": _register_broker,
    "topic": _like(kafka.TopicRecord),
    "partition": _partition,
    "config": _like(kafka.ConfigRecord),
    "client_quota": _client_quota,
    "producer_ids": _like(kafka.ProducerIdsRecord),
    "access_control_entry": _like(kafka.AccessControlEntryRecord),
}
"""The kinds that are in snapshots."""
