"""kraftlog's metadata records in the form that is compared. They are first converted to Kafka's records, so that the
same functions convert the records of both systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraftlog.difftest.kafka_records import NO_CHANGE_OF_LEADER, NO_CHANGE_OF_RECOVERY, from_kafka
from kraftlog.difftest.records import Names, Record
from kraftlog.kafka import metadata_records as kafka
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.to_kafka import TO_KAFKA
from kraftpb.v1 import metadata_pb2
from kraftpb.v1.metadata_pb2 import MetadataRecord


def from_own(record: MetadataRecord, names: Names) -> Record | None:
    """Return the record, or None for one that does not change the metadata. `names` learns the ids that it creates."""
    kind = record.WhichOneof("record")
    if kind in _IGNORED:
        return None
    convert = _CONVERSIONS.get(kind or "")
    if convert is None:
        return Record(str(kind), "other", {})
    return from_kafka(convert(getattr(record, kind or "")), names)


def _unregister_broker(record: metadata_pb2.UnregisterBrokerRecord) -> Message:
    return kafka.UnregisterBrokerRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch)


def _change_broker(record: metadata_pb2.BrokerRegistrationChangeRecord) -> Message:
    return kafka.BrokerRegistrationChangeRecord(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        fenced=(1 if record.fenced else -1) if record.HasField("fenced") else 0,
        in_controlled_shutdown=(
            (1 if record.in_controlled_shutdown else -1) if record.HasField("in_controlled_shutdown") else 0
        ),
        log_dirs=tuple(record.log_dirs.ids),
    )


def _remove_topic(record: metadata_pb2.RemoveTopicRecord) -> Message:
    return kafka.RemoveTopicRecord(topic_id=record.topic_id)


def _change_partition(record: metadata_pb2.PartitionChangeRecord) -> Message:
    def ids(name: str) -> tuple[Any, ...] | None:
        return tuple(getattr(record, name).ids) if record.HasField(name) else None  # type: ignore[arg-type]

    return kafka.PartitionChangeRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        isr=ids("isr"),
        leader=record.leader if record.HasField("leader") else NO_CHANGE_OF_LEADER,
        replicas=ids("replicas"),
        removing_replicas=ids("removing_replicas"),
        adding_replicas=ids("adding_replicas"),
        leader_recovery_state=(
            record.leader_recovery_state if record.HasField("leader_recovery_state") else NO_CHANGE_OF_RECOVERY
        ),
        directories=ids("directories"),
        eligible_leader_replicas=ids("eligible_leader_replicas"),
        last_known_elr=ids("last_known_elr"),
    )


def _config(record: metadata_pb2.ConfigRecord) -> Message:
    return kafka.ConfigRecord(
        resource_type=record.resource_type,
        resource_name=record.resource_name,
        name=record.name,
        value=record.value if record.HasField("value") else None,
    )


def _quota(record: metadata_pb2.ClientQuotaRecord) -> Message:
    entity = tuple(
        kafka.EntityData(
            entity_type=part.entity_type, entity_name=part.entity_name if part.HasField("entity_name") else None
        )
        for part in record.entity
    )
    return kafka.ClientQuotaRecord(entity=entity, key=record.key, value=record.value, remove=record.remove)


def _remove_entry(record: metadata_pb2.RemoveAccessControlEntryRecord) -> Message:
    return kafka.RemoveAccessControlEntryRecord(id=record.id)


_IGNORED: Final = frozenset(
    {"no_op", "begin_transaction", "end_transaction", "abort_transaction", "register_controller"}
)

_CONVERSIONS: Final[dict[str, Callable[[Any], Message]]] = {
    **TO_KAFKA,
    "unregister_broker": _unregister_broker,
    "broker_registration_change": _change_broker,
    "remove_topic": _remove_topic,
    "partition_change": _change_partition,
    "config": _config,
    "client_quota": _quota,
    "remove_access_control_entry": _remove_entry,
}
"""Records that a snapshot can hold are converted as by `kraftlog kafka export`; records that remove or change something
are converted here."""
