"""Kafka's metadata records in the form that is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.difftest.records import (
    Names,
    Record,
    config_resource,
    directory_name,
    features,
    incarnation_name,
    partition_resource,
    quota_resource,
)
from kraftlog.kafka import metadata_records as kafka
from kraftlog.kafka.notation import Message

NO_CHANGE_OF_LEADER: Final = -2
NO_CHANGE_OF_RECOVERY: Final = -1
_FLAGS: Final = {1: True, -1: False}
"""The values of BrokerRegistrationChangeRecord for fenced and not fenced; 0 is no change."""


def from_kafka(record: Message, names: Names) -> Record | None:
    """Return the record, or None for one that does not change the metadata. `names` learns the ids that it creates."""
    convert = _CONVERSIONS.get(type(record))
    if convert is None:
        return None if type(record) in _IGNORED else Record(type(record).__name__, "other", {})
    return convert(record, names)


def _register_broker(record: kafka.RegisterBrokerRecord, names: Names) -> Record:
    names.learn_registration(record.broker_id, record.broker_epoch)
    return Record(
        "RegisterBroker",
        f"broker {record.broker_id}",
        {
            "incarnation": incarnation_name(record.incarnation_id),
            "epoch": names.registration(record.broker_id, record.broker_epoch),
            "end_points": tuple((at.name, at.host, at.port, at.security_protocol) for at in record.end_points),
            "features": features(
                [(of.name, of.min_supported_version, of.max_supported_version) for of in record.features]
            ),
            "rack": record.rack,
            "fenced": record.fenced,
            "in_controlled_shutdown": record.in_controlled_shutdown,
            "log_dirs": tuple(map(directory_name, record.log_dirs)),
        },
    )


def _unregister_broker(record: kafka.UnregisterBrokerRecord, names: Names) -> Record:
    epoch = names.registration(record.broker_id, record.broker_epoch)
    return Record("UnregisterBroker", f"broker {record.broker_id}", {"epoch": epoch})


def _change_broker(record: kafka.BrokerRegistrationChangeRecord, names: Names) -> Record:
    values: dict[str, Any] = {"epoch": names.registration(record.broker_id, record.broker_epoch)}
    if record.fenced in _FLAGS:
        values["fenced"] = _FLAGS[record.fenced]
    if record.in_controlled_shutdown in _FLAGS:
        values["in_controlled_shutdown"] = _FLAGS[record.in_controlled_shutdown]
    if record.log_dirs:
        values["log_dirs"] = tuple(map(directory_name, record.log_dirs))
    return Record("BrokerRegistrationChange", f"broker {record.broker_id}", values)


def _topic(record: kafka.TopicRecord, names: Names) -> Record:
    names.learn_topic(record.name, record.topic_id)
    return Record("Topic", f"topic {record.name}", {"name": record.name})


def _remove_topic(record: kafka.RemoveTopicRecord, names: Names) -> Record:
    name = names.topic(record.topic_id)
    return Record("RemoveTopic", f"topic {name}", {"name": name})


def _partition(record: kafka.PartitionRecord, names: Names) -> Record:
    topic = names.topic(record.topic_id)
    return Record(
        "Partition",
        partition_resource(topic, record.partition_id),
        {
            "replicas": record.replicas,
            "isr": record.isr,
            "removing": record.removing_replicas,
            "adding": record.adding_replicas,
            "leader": record.leader,
            "recovery_state": record.leader_recovery_state,
            "leader_epoch": record.leader_epoch,
            "partition_epoch": record.partition_epoch,
            "directories": tuple(map(directory_name, record.directories)),
            "elr": record.eligible_leader_replicas or (),
            "last_known_elr": record.last_known_elr or (),
        },
    )


def _change_partition(record: kafka.PartitionChangeRecord, names: Names) -> Record:
    values: dict[str, Any] = {
        "replicas": record.replicas,
        "isr": record.isr,
        "removing": record.removing_replicas,
        "adding": record.adding_replicas,
        "leader": None if record.leader == NO_CHANGE_OF_LEADER else record.leader,
        "recovery_state": (
            None if record.leader_recovery_state == NO_CHANGE_OF_RECOVERY else record.leader_recovery_state
        ),
        "directories": None if record.directories is None else tuple(map(directory_name, record.directories)),
        "elr": record.eligible_leader_replicas,
        "last_known_elr": record.last_known_elr,
    }
    return Record(
        "PartitionChange",
        partition_resource(names.topic(record.topic_id), record.partition_id),
        {name: value for name, value in values.items() if value is not None},
    )


def _config(record: kafka.ConfigRecord, _: Names) -> Record:
    resource = config_resource(record.resource_type, record.resource_name)
    return Record("Config", resource, {"name": record.name, "value": record.value})


def _clear_elr(record: kafka.ClearElrRecord, _: Names) -> Record:
    return Record("ClearElr", f"topic {record.topic_name}", {"topic": record.topic_name})


def _feature(record: kafka.FeatureLevelRecord, _: Names) -> Record:
    return Record("FeatureLevel", f"feature {record.name}", {"level": record.feature_level})


def _quota(record: kafka.ClientQuotaRecord, _: Names) -> Record:
    entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
    value = None if record.remove else record.value
    resource = f"{quota_resource(entity)} {record.key}"
    return Record("ClientQuota", resource, {"entity": entity, "key": record.key, "value": value})


def _producer_ids(record: kafka.ProducerIdsRecord, names: Names) -> Record:
    return Record(
        "ProducerIds",
        "producer ids",
        {
            "broker": record.broker_id,
            "epoch": names.registration(record.broker_id, record.broker_epoch),
            "next": names.producer_id(record.next_producer_id),
        },
    )


def _entry(record: kafka.AccessControlEntryRecord, names: Names) -> Record:
    content = str(
        (
            record.resource_type, record.resource_name, record.pattern_type, record.principal, record.host,
            record.operation, record.permission_type,
        )
    )  # fmt: skip
    names.learn_entry(record.id, content)
    return Record("AccessControlEntry", f"entry {content}", {})


def _remove_entry(record: kafka.RemoveAccessControlEntryRecord, names: Names) -> Record:
    return Record("RemoveAccessControlEntry", f"entry {names.entry(record.id)}", {})


_IGNORED: Final = frozenset(
    {
        kafka.NoOpRecord,
        kafka.BeginTransactionRecord,
        kafka.EndTransactionRecord,
        kafka.AbortTransactionRecord,
        kafka.RegisterControllerRecord,
    }
)

_CONVERSIONS: Final[dict[type[Message], Callable[[Any, Names], Record]]] = {
    kafka.RegisterBrokerRecord: _register_broker,
    kafka.UnregisterBrokerRecord: _unregister_broker,
    kafka.BrokerRegistrationChangeRecord: _change_broker,
    kafka.TopicRecord: _topic,
    kafka.RemoveTopicRecord: _remove_topic,
    kafka.PartitionRecord: _partition,
    kafka.PartitionChangeRecord: _change_partition,
    kafka.ConfigRecord: _config,
    kafka.ClearElrRecord: _clear_elr,
    kafka.FeatureLevelRecord: _feature,
    kafka.ClientQuotaRecord: _quota,
    kafka.ProducerIdsRecord: _producer_ids,
    kafka.AccessControlEntryRecord: _entry,
    kafka.RemoveAccessControlEntryRecord: _remove_entry,
}
