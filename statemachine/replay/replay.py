"""How each kind of record changes the metadata (CT-01 to CT-03).

A record that cannot be true (a partition of a topic that does not exist, an unknown kind or version) is a ReplayError:
a replica that skipped it would no longer be a replica (CT-02, CT-18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from kraftbase.errors import InvariantViolation
from kraftbase.ids import ID_BYTES
from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    BrokerIds,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from statemachine.replay import replay_tiering
from statemachine.replay.view import InvalidRecord, View
from statemachine.tables.cluster_tables import (
    ACLS,
    ACLS_BY_CONTENT,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    FEATURES,
    PRODUCER_IDS,
    quota_entity_key,
)
from statemachine.tables.opaque_tables import DELEGATION_TOKENS, SCRAM_CREDENTIALS, ZK_MIGRATION_STATES
from statemachine.tables.remote_log_tables import REMOTE_EPOCH_ENDS
from statemachine.tables.topic_tables import (
    PARTITIONS,
    PARTITIONS_BY_LEADER,
    PARTITIONS_WITH_ELR,
    TOPICS,
    TOPICS_BY_COLLISION,
    TOPICS_BY_NAME,
    WITH_ELR,
)
from statemachine.words.features import SUPPORTED, FeatureRange
from statemachine.words.names import quoted
from statemachine.words.record_versions import VERSIONS_MAX
from statemachine.words.resources import ResourceType
from statemachine.words.unfenced_log_dirs import used_unfenced


class ReplayError(InvariantViolation):
    """A committed record cannot be applied. Ends the process: this replica would differ from the others (CT-18)."""


def replay(view: View, records: Iterable[MetadataRecord], base_offset: int) -> None:
    """Apply `records`, the first of which is at `base_offset`, to `view`. After a ReplayError, `view` is spent."""
    for offset, record in enumerate(records, base_offset):
        kind: str = record.WhichOneof("record") or ""
        apply = _REPLAY.get(kind)
        if apply is None:
            _refuse(offset, "is of a kind that this version does not know; upgrade this node")
        if record.version > VERSIONS_MAX[kind]:
            _refuse(
                offset,
                f"is a {kind} of version {record.version}, and this program knows versions up to"
                f" {VERSIONS_MAX[kind]}; upgrade this node",
            )
        try:
            apply(view, getattr(record, kind))
        except InvalidRecord as reason:
            _refuse(offset, str(reason))


def _refuse(offset: int, reason: str) -> NoReturn:
    raise ReplayError(f"the committed record at offset {offset} {reason}")


R = TypeVar("R")


# --- topics -----------------------------------------------------------------------------------------------------------


def _topic(view: View, record: TopicRecord) -> None:
    if len(record.topic_id) != ID_BYTES or not record.name:
        raise InvalidRecord(
            f"creates topic {quoted(record.name)} with the id {record.topic_id.hex()!r}, which cannot be"
        )
    if view.get(TOPICS, (record.topic_id,)) is not None or view.get(TOPICS_BY_NAME, (record.name,)) is not None:
        raise InvalidRecord(
            f"creates topic {quoted(record.name)} with the id {record.topic_id.hex()}, one of which exists"
        )
    for table in (TOPICS, TOPICS_BY_NAME, TOPICS_BY_COLLISION):
        view.put(table, record)


def _remove_topic(view: View, record: RemoveTopicRecord) -> None:
    topic = _existing(view.get(TOPICS, (record.topic_id,)), f"removes topic {record.topic_id.hex()}")
    for table in (TOPICS, TOPICS_BY_NAME, TOPICS_BY_COLLISION):
        view.remove(table, table.key_of(topic))
    view.remove_all(PARTITIONS, (record.topic_id,))
    view.remove_all(CONFIGS, (ResourceType.TOPIC.value, topic.name))
    view.remove_all(REMOTE_EPOCH_ENDS, (record.topic_id,))  # its segments stay until they are deleted


# --- partitions -------------------------------------------------------------------------------------------------------


def _partition(view: View, record: PartitionRecord) -> None:
    if len(record.topic_id) != ID_BYTES or view.get(TOPICS, (record.topic_id,)) is None:
        raise InvalidRecord(f"is a partition of topic {record.topic_id.hex()}, which does not exist")
    _put_partition(view, view.get(PARTITIONS, (record.topic_id, record.partition_id)), record)


def _put_partition(view: View, before: PartitionRecord | None, after: PartitionRecord) -> None:
    view.put(PARTITIONS, after)
    if before is not None and before.leader != after.leader:
        view.remove(PARTITIONS_BY_LEADER, PARTITIONS_BY_LEADER.key_of(before))
    view.put(PARTITIONS_BY_LEADER, after)
    if after.eligible_leader_replicas or after.last_known_elr:
        view.put(PARTITIONS_WITH_ELR, after)
    elif before is not None and (before.eligible_leader_replicas or before.last_known_elr):
        view.remove(PARTITIONS_WITH_ELR, PARTITIONS_WITH_ELR.key_of(before))


def _partition_change(view: View, record: PartitionChangeRecord) -> None:
    before = view.get(PARTITIONS, (record.topic_id, record.partition_id)) if len(record.topic_id) == ID_BYTES else None
    what = f"changes partition {record.partition_id} of topic {record.topic_id.hex()}"
    _put_partition(view, before, changed_partition(_existing(before, what), record))


def changed_partition(before: PartitionRecord, change: PartitionChangeRecord) -> PartitionRecord:
    """A partition after `change` (CT-01)."""
    after = PartitionRecord()
    after.CopyFrom(before)
    after.partition_epoch += 1
    for field, value in change.ListFields():  # only those that are set, and few are
        name = field.name
        if name in _CHANGED_LISTS:
            getattr(after, name)[:] = value.ids
        elif name == "leader":
            after.leader = value
            after.leader_epoch += 1
        elif name == "leader_recovery_state":
            after.leader_recovery_state = value
    return after


_CHANGED_LISTS: Final = frozenset(
    {
        "replicas",
        "isr",
        "removing_replicas",
        "adding_replicas",
        "eligible_leader_replicas",
        "last_known_elr",
        "directories",
    }
)


def _clear_elr(view: View, record: ClearElrRecord) -> None:
    if record.topic_name:
        topic = view.get(TOPICS_BY_NAME, (record.topic_name,))
        what = f"clears the eligible leader replicas of topic {quoted(record.topic_name)}"
        partitions = [partition for _, partition in view.find(PARTITIONS, (_existing(topic, what).topic_id,))]
    else:
        partitions = list(_all_with_elr(view))
    for before in partitions:
        if WITH_ELR.holds(before):
            _put_partition(view, before, changed_partition(before, _NO_ELR))


def _all_with_elr(view: View) -> Iterator[PartitionRecord]:
    after = None
    while True:
        page = view.scan(PARTITIONS, WITH_ELR, after, _CLEARED_AT_ONCE)
        yield from (partition for _, partition in page.found)
        after = page.end
        if after is None:
            return


_NO_ELR: Final = PartitionChangeRecord(eligible_leader_replicas=BrokerIds(), last_known_elr=BrokerIds())
_CLEARED_AT_ONCE: Final = 1_000


# --- brokers ----------------------------------------------------------------------------------------------------------


def _registered(view: View, broker_id: int, broker_epoch: int, what: str) -> RegisterBrokerRecord:
    broker = _existing(view.get(BROKERS, (broker_id,)), f"{what} broker {broker_id}")
    if broker.broker_epoch != broker_epoch:
        raise InvalidRecord(f"{what} broker {broker_id} of epoch {broker_epoch}, which has epoch {broker.broker_epoch}")
    return broker


def _unregister_broker(view: View, record: UnregisterBrokerRecord) -> None:
    _registered(view, record.broker_id, record.broker_epoch, "unregisters")
    view.remove(BROKERS, (record.broker_id,))


def _broker_registration_change(view: View, record: BrokerRegistrationChangeRecord) -> None:
    broker = RegisterBrokerRecord()
    broker.CopyFrom(_registered(view, record.broker_id, record.broker_epoch, "changes"))
    if record.HasField("fenced"):
        broker.fenced = record.fenced
        broker.unclean_shutdown &= record.fenced  # by then it has left every ISR and ELR
        if not record.fenced and broker.HasField("last_unfenced_epoch"):
            broker.last_unfenced_epoch = broker.broker_epoch
    if record.HasField("in_controlled_shutdown"):
        broker.in_controlled_shutdown = record.in_controlled_shutdown
    if record.HasField("log_dirs"):
        # A directory that has failed was in use until now: an older copy of it lacks what was acknowledged in this
        # registration.
        if broker.HasField("last_unfenced_epoch") and broker.last_unfenced_epoch == broker.broker_epoch:
            remembered = used_unfenced(broker, set(broker.log_dirs).difference(record.log_dirs.ids))
            del broker.unfenced_log_dirs[:]
            broker.unfenced_log_dirs.extend(remembered)
        del broker.log_dirs[:]
        broker.log_dirs.extend(record.log_dirs.ids)
    if record.HasField("cordoned_log_dirs"):
        del broker.cordoned_log_dirs[:]
        broker.cordoned_log_dirs.extend(record.cordoned_log_dirs.ids)
    if record.HasField("full_log_dirs"):
        del broker.full_log_dirs[:]
        broker.full_log_dirs.extend(record.full_log_dirs.ids)
    view.put(BROKERS, broker)


def _fence_broker(view: View, record: FenceBrokerRecord) -> None:
    _set_fenced(view, record.id, record.epoch, fenced=True)


def _unfence_broker(view: View, record: UnfenceBrokerRecord) -> None:
    _set_fenced(view, record.id, record.epoch, fenced=False)


def _set_fenced(view: View, broker_id: int, broker_epoch: int, *, fenced: bool) -> None:
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=fenced)
    _broker_registration_change(view, change)


# --- configs, features, quotas, access control ------------------------------------------------------------------------


def _config(view: View, record: ConfigRecord) -> None:
    if record.HasField("value"):
        view.put(CONFIGS, record)
    else:
        _remove_if_there(view, CONFIGS, CONFIGS.key_of(record))


def _feature_level(view: View, record: FeatureLevelRecord) -> None:
    supported = next((of for of in SUPPORTED if of.name == record.name), FeatureRange(record.name, 0, 0))
    if record.level and not supported.min_level <= record.level <= supported.max_level:
        raise InvalidRecord(
            f"sets {quoted(record.name)} to {record.level}, and this program knows levels up to {supported.max_level};"
            " upgrade this node"
        )
    if record.level:
        view.put(FEATURES, record)
    else:
        _remove_if_there(view, FEATURES, (record.name,))


def _producer_ids(view: View, record: ProducerIdsRecord) -> None:
    before = view.get(PRODUCER_IDS, PRODUCER_IDS.key_of(record))
    if before is not None and record.next_producer_id <= before.next_producer_id:
        raise InvalidRecord(
            f"goes from producer id {before.next_producer_id} to {record.next_producer_id}: ids would be reused"
        )
    view.put(PRODUCER_IDS, record)


def _client_quota(view: View, record: ClientQuotaRecord) -> None:
    if not record.remove:
        view.put(CLIENT_QUOTAS, record)
    else:
        _remove_if_there(view, CLIENT_QUOTAS, (quota_entity_key(record.entity), record.key))


def _access_control_entry(view: View, record: AccessControlEntryRecord) -> None:
    before = view.get(ACLS, (record.id,))
    if before is not None:
        view.remove(ACLS_BY_CONTENT, ACLS_BY_CONTENT.key_of(before))
    for table in (ACLS, ACLS_BY_CONTENT):
        view.put(table, record)


def _remove_access_control_entry(view: View, record: RemoveAccessControlEntryRecord) -> None:
    entry = view.get(ACLS, (record.id,)) if len(record.id) == ID_BYTES else None
    found = _existing(entry, f"removes access control entry {record.id.hex()}")
    for table in (ACLS, ACLS_BY_CONTENT):
        view.remove(table, table.key_of(found))


def _remove_if_there(view: View, table: Any, key: Any) -> None:
    if view.get(table, key) is not None:
        view.remove(table, key)


def _existing(found: R | None, what: str) -> R:
    if found is None:
        raise InvalidRecord(f"{what}, which does not exist")
    return found


def _putting(table: Any) -> Callable[[View, Any], None]:
    return lambda view, record: view.put(table, record)


def _removing(table: Any) -> Callable[[View, Any], None]:
    return lambda view, record: _remove_if_there(view, table, table.key_of(record))


def _nothing(view: View, record: Any) -> None:
    """The record has no effect of its own."""


_REPLAY: Final[dict[str, Callable[[View, Any], None]]] = {
    "register_broker": _putting(BROKERS),
    "unregister_broker": _unregister_broker,
    "broker_registration_change": _broker_registration_change,
    "fence_broker": _fence_broker,
    "unfence_broker": _unfence_broker,
    "register_controller": _putting(CONTROLLERS),
    "topic": _topic,
    "remove_topic": _remove_topic,
    "partition": _partition,
    "partition_change": _partition_change,
    "clear_elr": _clear_elr,
    "config": _config,
    "feature_level": _feature_level,
    "client_quota": _client_quota,
    "access_control_entry": _access_control_entry,
    "remove_access_control_entry": _remove_access_control_entry,
    "producer_ids": _producer_ids,
    "user_scram_credential": _putting(SCRAM_CREDENTIALS),
    "remove_user_scram_credential": _removing(SCRAM_CREDENTIALS),
    "delegation_token": _putting(DELEGATION_TOKENS),
    "remove_delegation_token": _removing(DELEGATION_TOKENS),
    "zk_migration_state": _putting(ZK_MIGRATION_STATES),
    "no_op": _nothing,
    "begin_transaction": _nothing,
    "end_transaction": _nothing,
    "abort_transaction": _nothing,
    "remote_log_segment_metadata": replay_tiering.segment,
    "remote_log_segment_metadata_update": replay_tiering.segment_update,
    "remote_partition_delete_metadata": replay_tiering.partition_delete,
    "remote_log_epoch_end": _putting(REMOTE_EPOCH_ENDS),
}
