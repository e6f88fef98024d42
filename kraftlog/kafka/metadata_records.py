"""The metadata records of Kafka 4.3: what a controller writes to __cluster_metadata, in the order of their keys."""

from __future__ import annotations

from kraftlog.kafka.notation import (
    Message,
    Struct,
    Uuid,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint)
    features: tuple[BrokerFeature, ...] = array(BrokerFeature)
    rack: str | None = string(null=True)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[Uuid, ...] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "4+", null=True, default=None, tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    name: str = string()
    topic_id: Uuid = uuid()


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: tuple[int, ...] = array(int32)
    isr: tuple[int, ...] = array(int32)
    removing_replicas: tuple[int, ...] = array(int32)
    adding_replicas: tuple[int, ...] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: tuple[Uuid, ...] = array(uuid, "1+")
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", null=True, default=None, tag=1)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", null=True, default=None, tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(null=True)


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: tuple[int, ...] | None = array(int32, null=True, default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: tuple[int, ...] | None = array(int32, null=True, default=None, tag=2)
    removing_replicas: tuple[int, ...] | None = array(int32, null=True, default=None, tag=3)
    adding_replicas: tuple[int, ...] | None = array(int32, null=True, default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: tuple[Uuid, ...] | None = array(uuid, "1+", null=True, default=None, tag=8)
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", null=True, default=None, tag=6)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", null=True, default=None, tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    topic_id: Uuid = uuid()


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+", closed=True):
    owner: str = string()
    requester: str = string()
    renewers: tuple[str, ...] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+", closed=True):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(null=True)


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    entity: tuple[EntityData, ...] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "3+", null=True, default=None, tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    id: Uuid = uuid()


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+", closed=True):
    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+", closed=True):
    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    name: str | None = string(null=True, default=None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    reason: str | None = string(null=True, default=None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+", closed=True):
    token_id: str = string()


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: tuple[ControllerEndpoint, ...] = array(ControllerEndpoint)
    features: tuple[ControllerFeature, ...] = array(ControllerFeature)


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    topic_name: str = string()
