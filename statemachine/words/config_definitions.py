"""The configs of topics and brokers, with Kafka's names, kinds and defaults (4.x), and the check of a value.

A few are kraftlog's own, which Kafka does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from statemachine.words.config_kinds import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    ClassNames,
    Flag,
    Fraction,
    HostLimits,
    Kind,
    LevelOrDefault,
    ListKind,
    Number,
    OneOf,
    SomeOf,
    ThrottledReplicas,
    Whole,
)
from statemachine.words.kafkas_broker_configs import KAFKAS_OTHER_CONFIGS, LISTENER_PREFIX
from statemachine.words.names import quoted
from statemachine.words.resources import ResourceType

CLEANUP_POLICY: Final = "cleanup.policy"
FLUSH_BEFORE_ACK: Final = "flush.before.ack"
LOG_FLUSH_BEFORE_ACK: Final = "log.flush.before.ack"
VALIDATE_RECORDS: Final = "validate.records"
LOG_VALIDATE_RECORDS: Final = "log.validate.records"
CONNECTIONS_MAX: Final = "max.connections"
MAX_CONNECTIONS_PER_IP: Final = "max.connections.per.ip"
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_RATE: Final = "leader.replication.throttled.rate"
THROTTLED_FOLLOWERS: Final = "follower.replication.throttled.replicas"
THROTTLED_LEADERS: Final = "leader.replication.throttled.replicas"
MIN_ISR: Final = "min.insync.replicas"
MIN_ISR_DEFAULT: Final = "1"
NUM_PARTITIONS: Final = "num.partitions"
NUM_PARTITIONS_DEFAULT: Final = "1"
PRODUCER_EXPIRATION: Final = "producer.id.expiration.ms"
REPLICATION_FACTOR: Final = "default.replication.factor"
REPLICATION_FACTOR_DEFAULT: Final = "1"
REMOTE_COPY_DISABLE: Final = "remote.log.copy.disable"
REMOTE_DELETE_ON_DISABLE: Final = "remote.log.delete.on.disable"
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

VALUE_LENGTH_MAX: Final = 32_767
"""Characters of a value: what a Kafka string can hold."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A config."""

    kind: Kind
    default: str
    """The value that applies where nothing is set."""
    broker_config: str | None = None
    """For a topic's config: the brokers' config whose value applies where the topic has none."""
    is_own: bool = False
    """It is kraftlog's own, which Kafka does not have."""

    @property
    def is_list(self) -> bool:
        """Whether its value is a list, to which elements can be added."""
        return isinstance(self.kind, ListKind)


_INT_FROM_0: Final = Whole(0, INT_MAX)
_INT_FROM_1: Final = Whole(1, INT_MAX)
_LONG_FROM_0: Final = Whole(0, LONG_MAX)
_LONG_FROM_1: Final = Whole(1, LONG_MAX)
_LONG_OR_UNLIMITED: Final = Whole(-1, LONG_MAX)
_LOCAL_RETENTION: Final = Whole(-2, LONG_MAX)
_CLEANUP_POLICY: Final = SomeOf(("delete", "compact"))
_COMPRESSION_TYPE: Final = OneOf(("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"))
_TIMESTAMP_TYPE: Final = OneOf(("CreateTime", "LogAppendTime"))
_SEGMENT_BYTES: Final = Whole(1024 * 1024, INT_MAX)

_UNBOUNDED: Final = str(LONG_MAX)
_UNBOUNDED_COUNT: Final = str(INT_MAX)
_SEVEN_DAYS: Final = str(7 * 24 * 3_600_000)

TOPIC_CONFIGS: Final[Mapping[str, Definition]] = {
    CLEANUP_POLICY: Definition(_CLEANUP_POLICY, "delete", "log.cleanup.policy"),
    "compression.gzip.level": Definition(LevelOrDefault(1, 9, -1), "-1", "compression.gzip.level"),
    "compression.lz4.level": Definition(Whole(1, 17), "9", "compression.lz4.level"),
    "compression.type": Definition(_COMPRESSION_TYPE, "producer", "compression.type"),
    "compression.zstd.level": Definition(Whole(-131_072, 22), "3", "compression.zstd.level"),
    "delete.retention.ms": Definition(_LONG_FROM_0, "86400000", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": Definition(_LONG_FROM_0, "60000", "log.segment.delete.delay.ms"),
    FLUSH_BEFORE_ACK: Definition(Flag(), "true", LOG_FLUSH_BEFORE_ACK, is_own=True),
    VALIDATE_RECORDS: Definition(Flag(), "true", LOG_VALIDATE_RECORDS, is_own=True),
    "flush.messages": Definition(_LONG_FROM_1, _UNBOUNDED, "log.flush.interval.messages"),
    "flush.ms": Definition(_LONG_FROM_0, _UNBOUNDED, "log.flush.interval.ms"),
    THROTTLED_FOLLOWERS: Definition(ThrottledReplicas(), ""),
    "index.interval.bytes": Definition(_INT_FROM_0, "4096", "log.index.interval.bytes"),
    THROTTLED_LEADERS: Definition(ThrottledReplicas(), ""),
    "local.retention.bytes": Definition(_LOCAL_RETENTION, "-2", "log.local.retention.bytes"),
    "local.retention.ms": Definition(_LOCAL_RETENTION, "-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": Definition(_LONG_FROM_1, _UNBOUNDED, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": Definition(_INT_FROM_0, "1048588", "message.max.bytes"),
    "message.timestamp.after.max.ms": Definition(_LONG_FROM_0, "3600000", "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": Definition(_LONG_FROM_0, _UNBOUNDED, "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": Definition(_TIMESTAMP_TYPE, "CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": Definition(Fraction(), "0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": Definition(_LONG_FROM_0, "0", "log.cleaner.min.compaction.lag.ms"),
    MIN_ISR: Definition(_INT_FROM_1, MIN_ISR_DEFAULT, MIN_ISR),
    "preallocate": Definition(Flag(), "false", "log.preallocate"),
    REMOTE_COPY_DISABLE: Definition(Flag(), "false"),
    REMOTE_DELETE_ON_DISABLE: Definition(Flag(), "false"),
    REMOTE_STORAGE_ENABLE: Definition(Flag(), "false"),
    "retention.bytes": Definition(_LONG_OR_UNLIMITED, "-1", "log.retention.bytes"),
    "retention.ms": Definition(_LONG_OR_UNLIMITED, _SEVEN_DAYS, "log.retention.ms"),
    "segment.bytes": Definition(_SEGMENT_BYTES, "1073741824", "log.segment.bytes"),
    "segment.index.bytes": Definition(Whole(4, INT_MAX), "10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": Definition(_LONG_FROM_0, "0", "log.roll.jitter.ms"),
    "segment.ms": Definition(_LONG_FROM_1, _SEVEN_DAYS, "log.roll.ms"),
    UNCLEAN_ELECTION: Definition(Flag(), "false", UNCLEAN_ELECTION),
}

# Where Kafka has a default in another unit (log.retention.hours, log.roll.hours), it is converted to this one.
BROKER_CONFIGS: Final[Mapping[str, Definition]] = {
    "background.threads": Definition(_INT_FROM_1, "10"),
    "compression.gzip.level": Definition(LevelOrDefault(1, 9, -1), "-1"),
    "compression.lz4.level": Definition(Whole(1, 17), "9"),
    "compression.type": Definition(_COMPRESSION_TYPE, "producer"),
    "compression.zstd.level": Definition(Whole(-131_072, 22), "3"),
    REPLICATION_FACTOR: Definition(Whole(1, 2**15 - 1), REPLICATION_FACTOR_DEFAULT),
    FOLLOWER_RATE: Definition(_LONG_FROM_0, _UNBOUNDED),
    LEADER_RATE: Definition(_LONG_FROM_0, _UNBOUNDED),
    "log.cleaner.backoff.ms": Definition(_LONG_FROM_0, "15000"),
    "log.cleaner.dedupe.buffer.size": Definition(Whole(LONG_MIN, LONG_MAX), "134217728"),
    "log.cleaner.delete.retention.ms": Definition(_LONG_FROM_0, "86400000"),
    "log.cleaner.io.buffer.load.factor": Definition(Number(), "0.9"),
    "log.cleaner.io.buffer.size": Definition(_INT_FROM_0, "524288"),
    "log.cleaner.io.max.bytes.per.second": Definition(Number(), "1.7976931348623157E308"),
    "log.cleaner.max.compaction.lag.ms": Definition(_LONG_FROM_1, _UNBOUNDED),
    "log.cleaner.min.cleanable.ratio": Definition(Fraction(), "0.5"),
    "log.cleaner.min.compaction.lag.ms": Definition(_LONG_FROM_0, "0"),
    "log.cleaner.threads": Definition(_INT_FROM_0, "1"),
    "log.cleanup.policy": Definition(_CLEANUP_POLICY, "delete"),
    LOG_FLUSH_BEFORE_ACK: Definition(Flag(), "true", is_own=True),
    LOG_VALIDATE_RECORDS: Definition(Flag(), "true", is_own=True),
    "log.flush.interval.messages": Definition(_LONG_FROM_1, _UNBOUNDED),
    "log.flush.interval.ms": Definition(_LONG_FROM_0, _UNBOUNDED),
    "log.index.interval.bytes": Definition(_INT_FROM_0, "4096"),
    "log.index.size.max.bytes": Definition(Whole(4, INT_MAX), "10485760"),
    "log.local.retention.bytes": Definition(_LOCAL_RETENTION, "-2"),
    "log.local.retention.ms": Definition(_LOCAL_RETENTION, "-2"),
    "log.message.timestamp.after.max.ms": Definition(_LONG_FROM_0, "3600000"),
    "log.message.timestamp.before.max.ms": Definition(_LONG_FROM_0, _UNBOUNDED),
    "log.message.timestamp.type": Definition(_TIMESTAMP_TYPE, "CreateTime"),
    "log.preallocate": Definition(Flag(), "false"),
    "log.retention.bytes": Definition(_LONG_OR_UNLIMITED, "-1"),
    "log.retention.ms": Definition(_LONG_OR_UNLIMITED, _SEVEN_DAYS),
    "log.roll.jitter.ms": Definition(_LONG_FROM_0, "0"),
    "log.roll.ms": Definition(_LONG_FROM_1, _SEVEN_DAYS),
    "log.segment.bytes": Definition(_SEGMENT_BYTES, "1073741824"),
    "log.segment.delete.delay.ms": Definition(_LONG_FROM_0, "60000"),
    "max.connection.creation.rate": Definition(_INT_FROM_0, _UNBOUNDED_COUNT),
    CONNECTIONS_MAX: Definition(_INT_FROM_0, _UNBOUNDED_COUNT),
    MAX_CONNECTIONS_PER_IP: Definition(_INT_FROM_0, _UNBOUNDED_COUNT),
    MAX_CONNECTIONS_PER_IP_OVERRIDES: Definition(HostLimits(), ""),
    "message.max.bytes": Definition(_INT_FROM_0, "1048588"),
    "metric.reporters": Definition(ClassNames(), "org.apache.kafka.common.metrics.JmxReporter"),
    MIN_ISR: Definition(_INT_FROM_1, MIN_ISR_DEFAULT),
    "num.io.threads": Definition(_INT_FROM_1, "8"),
    "num.network.threads": Definition(_INT_FROM_1, "3"),
    NUM_PARTITIONS: Definition(_INT_FROM_1, NUM_PARTITIONS_DEFAULT),
    "num.recovery.threads.per.data.dir": Definition(_INT_FROM_1, "2"),
    "num.replica.fetchers": Definition(_INT_FROM_1, "1"),
    PRODUCER_EXPIRATION: Definition(_INT_FROM_1, "86400000"),
    "remote.fetch.max.wait.ms": Definition(_INT_FROM_1, "500"),
    "remote.list.offsets.request.timeout.ms": Definition(_LONG_FROM_1, "30000"),
    "remote.log.index.file.cache.total.size.bytes": Definition(_LONG_FROM_1, "1073741824"),
    "remote.log.manager.copier.thread.pool.size": Definition(_INT_FROM_1, "10"),
    "remote.log.manager.copy.max.bytes.per.second": Definition(_LONG_FROM_1, _UNBOUNDED),
    "remote.log.manager.expiration.thread.pool.size": Definition(_INT_FROM_1, "10"),
    "remote.log.manager.fetch.max.bytes.per.second": Definition(_LONG_FROM_1, _UNBOUNDED),
    "remote.log.reader.threads": Definition(_INT_FROM_1, "10"),
    "replica.alter.log.dirs.io.max.bytes.per.second": Definition(_LONG_FROM_0, _UNBOUNDED),
    "transaction.partition.verification.enable": Definition(Flag(), "true"),
    UNCLEAN_ELECTION: Definition(Flag(), "false"),
}

CONFIG_DEFINITIONS: Final[Mapping[ResourceType, Mapping[str, Definition]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
}


def check_config(resource_type: ResourceType, name: str, value: str | None) -> None:
    """Raise ApiError(INVALID_CONFIG) unless that kind of resource can have this config with this value."""
    kind = config_definition(resource_type, name).kind
    what = resource_type.name.lower()
    if value is None:
        raise invalid_config(f"the {what} config {name} has no value; give one or leave the config out")
    problem = (
        kind.problem(value) if len(value) <= VALUE_LENGTH_MAX else f"it has more than {VALUE_LENGTH_MAX} characters"
    )
    if problem is not None:
        raise invalid_config(f"{quoted(value)} is no value for the {what} config {name}: {problem}")


def may_be_stored_unknown(resource_type: ResourceType, name: str) -> bool:
    """Whether that is a name that Kafka does not know either: a broker may have it, with any value (CT-70)."""
    is_known = not name or name in BROKER_CONFIGS or name in KAFKAS_OTHER_CONFIGS or name.startswith(LISTENER_PREFIX)
    return resource_type is ResourceType.BROKER and not is_known


def check_unknown_config(name: str, value: str) -> None:
    """Raise ApiError(INVALID_CONFIG) if an unknown name, or its value, is too long to be stored."""
    for what, text in (("name", name), ("value", value)):
        if len(text) > VALUE_LENGTH_MAX:
            raise invalid_config(f"the {what} {quoted(text)} has more than {VALUE_LENGTH_MAX} characters")


def is_own_config(resource_type: int, name: str) -> bool:
    """Whether it is one of kraftlog's own configs. A number of no resource type has none."""
    own = (definitions.get(name) for kind, definitions in CONFIG_DEFINITIONS.items() if kind == resource_type)
    return any(definition is not None and definition.is_own for definition in own)


def config_definition(resource_type: ResourceType, name: str) -> Definition:
    """The definition of a config; raises ApiError(INVALID_CONFIG) unless that kind of resource has it."""
    definition = CONFIG_DEFINITIONS[resource_type].get(name)
    if definition is None:
        raise invalid_config(f"{quoted(name)} is no config of a {resource_type.name.lower()}")
    return definition


def invalid_config(reason: str) -> ApiError:
    """The refusal of configs, for a reason that names them."""
    return ApiError(ErrorCode.INVALID_CONFIG, reason)
