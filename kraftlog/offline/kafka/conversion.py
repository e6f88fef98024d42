"""Kafka's metadata records as ours.

They correspond one to one: the field of a kind in `MetadataRecord` is Kafka's number plus 1. Credentials, delegation
tokens and remains of ZooKeeper stay opaque: our record has Kafka's bytes. Levels of features that kraftlog does not
have, such as group.version, are not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kraftlog.kafka import metadata_records as kafka
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_values import encode_metadata_record
from kraftpb.v1 import metadata_pb2 as ours
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.words.features import SUPPORTED

KNOWN_FEATURES: Final = frozenset(feature.name for feature in SUPPORTED)


def from_kafka(record: Message, version: int) -> MetadataRecord | None:
    """The kraftlog record; None for the level of a feature that kraftlog does not have."""
    if record.IS_CLOSED:
        return _closed(record, version)
    found = _FROM_KAFKA.get(type(record))
    if found is None or (isinstance(record, kafka.FeatureLevelRecord) and record.name not in KNOWN_FEATURES):
        return None
    kind, convert = found
    arguments: dict[str, Any] = {kind: convert(record), "version": version}
    return MetadataRecord(**arguments)


def _closed(record: Message, version: int) -> MetadataRecord:
    kind, key_of = _CLOSED[type(record)]
    value = b"" if kind.startswith("remove_") else encode_metadata_record(record, version)
    arguments: dict[str, Any] = {kind: ours.OpaqueRecord(key=key_of(record), value=value)}
    return MetadataRecord(**arguments)


_CLOSED: Final[dict[type[Message], tuple[str, Callable[[Any], str]]]] = {
    kafka.UserScramCredentialRecord: ("user_scram_credential", lambda record: f"{record.mechanism} {record.name}"),
    kafka.RemoveUserScramCredentialRecord: (
        "remove_user_scram_credential",
        lambda record: f"{record.mechanism} {record.name}",
    ),
    kafka.DelegationTokenRecord: ("delegation_token", lambda record: record.token_id),
    kafka.RemoveDelegationTokenRecord: ("remove_delegation_token", lambda record: record.token_id),
    kafka.ZkMigrationStateRecord: ("zk_migration_state", lambda record: ""),
}


def _endpoints(points: Iterable[kafka.BrokerEndpoint | kafka.ControllerEndpoint]) -> list[ours.BrokerEndpoint]:
    return [
        ours.BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
        for at in points
    ]


def _features(given: Iterable[kafka.BrokerFeature | kafka.ControllerFeature]) -> list[ours.SupportedFeature]:
    """By name: their order in Kafka is that of a hash table, another one in the log than in a snapshot."""
    return [
        ours.SupportedFeature(name=one.name, min_level=one.min_supported_version, max_level=one.max_supported_version)
        for one in sorted(given, key=lambda one: one.name)
    ]


def _register_broker(record: kafka.RegisterBrokerRecord) -> ours.RegisterBrokerRecord:
    return ours.RegisterBrokerRecord(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        end_points=_endpoints(record.end_points),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=record.log_dirs,
        features=_features(record.features),
        cordoned_log_dirs=record.cordoned_log_dirs or (),
    )


def _broker_registration_change(
    record: kafka.BrokerRegistrationChangeRecord,
) -> ours.BrokerRegistrationChangeRecord:
    # 0 is "no change", 1 "fence" and "shut down", -1 "unfence". No directories are "no change" too: a broker has one.
    cordoned = record.cordoned_log_dirs
    return ours.BrokerRegistrationChangeRecord(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        fenced=None if record.fenced == 0 else record.fenced > 0,
        in_controlled_shutdown=None if record.in_controlled_shutdown == 0 else record.in_controlled_shutdown > 0,
        log_dirs=ours.DirectoryIds(ids=record.log_dirs) if record.log_dirs else None,
        cordoned_log_dirs=None if cordoned is None else ours.DirectoryIds(ids=cordoned),
    )


def _register_controller(record: kafka.RegisterControllerRecord) -> ours.RegisterControllerRecord:
    return ours.RegisterControllerRecord(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        end_points=_endpoints(record.end_points),
        features=_features(record.features),
    )


def _partition(record: kafka.PartitionRecord) -> ours.PartitionRecord:
    return ours.PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories,
        eligible_leader_replicas=record.eligible_leader_replicas,
        last_known_elr=record.last_known_elr,
    )


NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1


def _ids(listed: tuple[int, ...] | None) -> ours.BrokerIds | None:
    return None if listed is None else ours.BrokerIds(ids=listed)


def _partition_change(record: kafka.PartitionChangeRecord) -> ours.PartitionChangeRecord:
    recovery = record.leader_recovery_state
    return ours.PartitionChangeRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        isr=_ids(record.isr),
        leader=None if record.leader == NO_LEADER_CHANGE else record.leader,
        replicas=_ids(record.replicas),
        removing_replicas=_ids(record.removing_replicas),
        adding_replicas=_ids(record.adding_replicas),
        leader_recovery_state=None if recovery == NO_RECOVERY_CHANGE else recovery,
        directories=None if record.directories is None else ours.DirectoryIds(ids=record.directories),
        eligible_leader_replicas=_ids(record.eligible_leader_replicas),
        last_known_elr=_ids(record.last_known_elr),
    )


def _client_quota(record: kafka.ClientQuotaRecord) -> ours.ClientQuotaRecord:
    entity = [ours.QuotaEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in record.entity]
    return ours.ClientQuotaRecord(entity=entity, key=record.key, value=record.value, remove=record.remove)


def _like(message: Any) -> Callable[[Message], Any]:
    """Of a kind whose fields have the same names and types in both."""
    names = [field.name for field in message.DESCRIPTOR.fields]
    return lambda record: message(**{name: getattr(record, name) for name in names})


_FROM_KAFKA: Final[dict[type[Message], tuple[str, Callable[[Any], Any]]]] = {
    kafka.RegisterBrokerRecord: ("register_broker", _register_broker),
    kafka.UnregisterBrokerRecord: ("unregister_broker", _like(ours.UnregisterBrokerRecord)),
    kafka.TopicRecord: ("topic", _like(ours.TopicRecord)),
    kafka.PartitionRecord: ("partition", _partition),
    kafka.ConfigRecord: ("config", _like(ours.ConfigRecord)),
    kafka.PartitionChangeRecord: ("partition_change", _partition_change),
    kafka.FenceBrokerRecord: ("fence_broker", _like(ours.FenceBrokerRecord)),
    kafka.UnfenceBrokerRecord: ("unfence_broker", _like(ours.UnfenceBrokerRecord)),
    kafka.RemoveTopicRecord: ("remove_topic", _like(ours.RemoveTopicRecord)),
    kafka.FeatureLevelRecord: (
        "feature_level",
        lambda record: ours.FeatureLevelRecord(name=record.name, level=record.feature_level),
    ),
    kafka.ClientQuotaRecord: ("client_quota", _client_quota),
    kafka.ProducerIdsRecord: ("producer_ids", _like(ours.ProducerIdsRecord)),
    kafka.BrokerRegistrationChangeRecord: ("broker_registration_change", _broker_registration_change),
    kafka.AccessControlEntryRecord: ("access_control_entry", _like(ours.AccessControlEntryRecord)),
    kafka.RemoveAccessControlEntryRecord: (
        "remove_access_control_entry",
        _like(ours.RemoveAccessControlEntryRecord),
    ),
    kafka.NoOpRecord: ("no_op", _like(ours.NoOpRecord)),
    kafka.BeginTransactionRecord: (
        "begin_transaction",
        lambda record: ours.BeginTransactionRecord(name=record.name or ""),
    ),
    kafka.EndTransactionRecord: ("end_transaction", _like(ours.EndTransactionRecord)),
    kafka.AbortTransactionRecord: (
        "abort_transaction",
        lambda record: ours.AbortTransactionRecord(reason=record.reason or ""),
    ),
    kafka.RegisterControllerRecord: ("register_controller", _register_controller),
    kafka.ClearElrRecord: ("clear_elr", _like(ours.ClearElrRecord)),
}
