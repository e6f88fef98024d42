"""The tables of the cluster itself: brokers, controllers, configs, features, quotas, access control."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LogDirEpoch,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from statemachine.tables.columns import (
    endpoints_from_json,
    endpoints_to_json,
    features_from_json,
    features_to_json,
    ids_from_json,
    ids_to_json,
)
from statemachine.tables.table import Key, Row, Table


def _broker_to_row(record: RegisterBrokerRecord) -> Row:
    return (
        record.broker_id,
        record.broker_epoch,
        id_to_text(record.incarnation_id),
        record.rack if record.HasField("rack") else None,
        int(record.fenced),
        int(record.in_controlled_shutdown),
        endpoints_to_json(record.end_points),
        ids_to_json(tuple(record.log_dirs)),
        features_to_json(record.features),
        int(record.unclean_shutdown),
        ids_to_json(tuple(record.cordoned_log_dirs)),
        record.last_unfenced_epoch if record.HasField("last_unfenced_epoch") else None,
        ids_to_json(tuple(record.older_log_dirs)),
        json.dumps({id_to_text(of.id): of.broker_epoch for of in record.unfenced_log_dirs}),
        ids_to_json(tuple(record.full_log_dirs)),
    )


# Every decision about partitions reads all brokers, and they seldom change. The caller must not change the record.
@lru_cache(maxsize=1_024)
def _broker_from_row(row: Row) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=row[0],
        broker_epoch=row[1],
        incarnation_id=id_to_bytes(row[2]),
        rack=row[3],
        fenced=bool(row[4]),
        in_controlled_shutdown=bool(row[5]),
        end_points=endpoints_from_json(row[6]),
        log_dirs=ids_from_json(row[7]),
        features=features_from_json(row[8]),
        unclean_shutdown=bool(row[9]),
        cordoned_log_dirs=ids_from_json(row[10]),
        last_unfenced_epoch=row[11],
        older_log_dirs=ids_from_json(row[12]),
        unfenced_log_dirs=[
            LogDirEpoch(id=id_to_bytes(name), broker_epoch=epoch) for name, epoch in json.loads(row[13]).items()
        ],
        full_log_dirs=ids_from_json(row[14]),
    )


BROKERS: Final = Table[RegisterBrokerRecord](
    name="brokers",
    key=("broker_id",),
    columns=(
        "broker_id",
        "broker_epoch",
        "incarnation_id",
        "rack",
        "fenced",
        "in_controlled_shutdown",
        "listeners",
        "log_dirs",
        "features",
        "unclean_shutdown",
        "cordoned_log_dirs",
        "last_unfenced_epoch",
        "older_log_dirs",
        "unfenced_log_dirs",
        "full_log_dirs",
    ),
    kind="register_broker",
    undigested=("last_unfenced_epoch", "older_log_dirs", "unfenced_log_dirs", "full_log_dirs"),
    key_of=lambda record: (record.broker_id,),
    to_row=_broker_to_row,
    from_row=_broker_from_row,
)

CONTROLLERS: Final = Table[RegisterControllerRecord](
    name="controllers",
    key=("controller_id",),
    columns=("controller_id", "incarnation_id", "listeners", "features"),
    kind="register_controller",
    key_of=lambda record: (record.controller_id,),
    to_row=lambda record: (
        record.controller_id,
        id_to_text(record.incarnation_id),
        endpoints_to_json(record.end_points),
        features_to_json(record.features),
    ),
    from_row=lambda row: RegisterControllerRecord(
        controller_id=row[0],
        incarnation_id=id_to_bytes(row[1]),
        end_points=endpoints_from_json(row[2]),
        features=features_from_json(row[3]),
    ),
)

CONFIGS: Final = Table[ConfigRecord](
    name="configs",
    key=("resource_type", "resource_name", "name"),
    columns=("resource_type", "resource_name", "name", "value"),
    kind="config",
    key_of=lambda record: (record.resource_type, record.resource_name, record.name),
    to_row=lambda record: (record.resource_type, record.resource_name, record.name, record.value),
    from_row=lambda row: ConfigRecord(resource_type=row[0], resource_name=row[1], name=row[2], value=row[3]),
)

FEATURES: Final = Table[FeatureLevelRecord](
    name="features",
    key=("name",),
    columns=("name", "level"),
    kind="feature_level",
    key_of=lambda record: (record.name,),
    to_row=lambda record: (record.name, record.level),
    from_row=lambda row: FeatureLevelRecord(name=row[0], level=row[1]),
)

PRODUCER_IDS: Final = Table[ProducerIdsRecord](
    name="producer_ids",
    key=("id",),
    columns=("id", "broker_id", "broker_epoch", "next_producer_id"),
    kind="producer_ids",
    key_of=lambda record: (1,),
    to_row=lambda record: (1, record.broker_id, record.broker_epoch, record.next_producer_id),
    from_row=lambda row: ProducerIdsRecord(broker_id=row[1], broker_epoch=row[2], next_producer_id=row[3]),
)
"""One row, or none while no ids were allocated."""


def quota_entity_key(entity: Any) -> str:
    """The entity of a quota as text, the same for the same entity: a JSON object, null for a type's default."""
    names = {part.entity_type: part.entity_name if part.HasField("entity_name") else None for part in entity}
    return json.dumps(names, sort_keys=True)


def _quota_from_row(row: Row) -> ClientQuotaRecord:
    names = json.loads(row[0])
    entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in sorted(names.items())]
    return ClientQuotaRecord(entity=entity, key=row[1], value=row[2])


CLIENT_QUOTAS: Final = Table[ClientQuotaRecord](
    name="client_quotas",
    key=("entity", "key"),
    columns=("entity", "key", "value"),
    kind="client_quota",
    key_of=lambda record: (quota_entity_key(record.entity), record.key),
    to_row=lambda record: (quota_entity_key(record.entity), record.key, record.value + 0.0),
    from_row=_quota_from_row,
)

ACL_CONTENT: Final = (
    "resource_type",
    "resource_name",
    "pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)
"""The fields of an entry except its id, in the order in which they are looked up."""


def acl_content(record: AccessControlEntryRecord) -> Key:
    """Everything except the id: what makes two entries equal."""
    return tuple([getattr(record, name) for name in ACL_CONTENT])


def _acl_table(key: tuple[str, ...], key_of: Callable[[Any], Key], is_index: bool) -> Table[AccessControlEntryRecord]:
    return Table(
        name="acls",
        key=key,
        columns=("id", *ACL_CONTENT),
        kind=None if is_index else "access_control_entry",
        key_of=key_of,
        to_row=lambda record: (id_to_text(record.id), *acl_content(record)),
        from_row=lambda row: AccessControlEntryRecord(
            id=id_to_bytes(row[0]), **dict(zip(ACL_CONTENT, row[1:], strict=True))
        ),
        is_index=is_index,
    )


ACLS: Final = _acl_table(("id",), lambda record: (record.id,), is_index=False)
ACLS_BY_CONTENT: Final = _acl_table(
    (*ACL_CONTENT, "id"), lambda record: (*acl_content(record), record.id), is_index=True
)
