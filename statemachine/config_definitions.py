"""The configs of topics and brokers, with Kafka's names, types and ranges (4.x), and the check of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from raft.core.errors import ErrorCode, ProtocolError
from statemachine.names import quoted
from statemachine.resources import ResourceType

VALUE_LENGTH_MAX: Final = 32_767
"""Characters of a value: what a Kafka string can hold."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?\Z")
_THROTTLED: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}\Z")


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from `least` to `most`."""

    least: int
    most: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not _INTEGER.match(value):
            return "it must be an integer"
        if not self.least <= int(value) <= self.most:
            return f"it must be between {self.least} and {self.most}"
        return None


@dataclass(frozen=True, slots=True)
class LevelOrDefault:
    """A compression level from `least` to `most`, or what stands for the codec's own choice."""

    least: int
    most: int
    default: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if _INTEGER.match(value) and (int(value) == self.default or self.least <= int(value) <= self.most):
            return None
        return f"it must be an integer between {self.least} and {self.most}, or {self.default}"


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number from 0 to 1."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not _DECIMAL.match(value) or not 0 <= float(value) <= 1:
            return "it must be a number between 0 and 1"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if value in self.words else f"it must be one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, in any case."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if value.lower() in ("true", "false") else "it must be true or false"


@dataclass(frozen=True, slots=True)
class SomeOf:
    """At least one of a few words, separated by commas, none of them twice."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        given = [word.strip() for word in value.split(",")]
        if len(set(given)) == len(given) and set(given) <= set(self.words):
            return None
        return f"it must be some of {', '.join(self.words)}, each once, separated by commas"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or pairs of partition and broker."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        pairs = [pair.strip() for pair in value.split(",")]
        if value.strip() in ("", "*") or all(_THROTTLED.match(pair) for pair in pairs):
            return None
        return "it must be * or a list such as 0:101,1:102 (partition:broker)"


Kind = Whole | LevelOrDefault | Fraction | OneOf | Flag | SomeOf | ThrottledReplicas

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

TOPIC_CONFIGS: Final[Mapping[str, Kind]] = {
    "cleanup.policy": _CLEANUP_POLICY,
    "compression.gzip.level": LevelOrDefault(1, 9, -1),
    "compression.lz4.level": Whole(1, 17),
    "compression.type": _COMPRESSION_TYPE,
    "compression.zstd.level": Whole(-131_072, 22),
    "delete.retention.ms": _LONG_FROM_0,
    "file.delete.delay.ms": _LONG_FROM_0,
    "flush.messages": _LONG_FROM_1,
    "flush.ms": _LONG_FROM_0,
    "follower.replication.throttled.replicas": ThrottledReplicas(),
    "index.interval.bytes": _INT_FROM_0,
    "leader.replication.throttled.replicas": ThrottledReplicas(),
    "local.retention.bytes": _LOCAL_RETENTION,
    "local.retention.ms": _LOCAL_RETENTION,
    "max.compaction.lag.ms": _LONG_FROM_1,
    "max.message.bytes": _INT_FROM_0,
    "message.timestamp.after.max.ms": _LONG_FROM_0,
    "message.timestamp.before.max.ms": _LONG_FROM_0,
    "message.timestamp.type": _TIMESTAMP_TYPE,
    "min.cleanable.dirty.ratio": Fraction(),
    "min.compaction.lag.ms": _LONG_FROM_0,
    "min.insync.replicas": _INT_FROM_1,
    "preallocate": Flag(),
    "remote.log.copy.disable": Flag(),
    "remote.log.delete.on.disable": Flag(),
    "remote.storage.enable": Flag(),
    "retention.bytes": _LONG_OR_UNLIMITED,
    "retention.ms": _LONG_OR_UNLIMITED,
    "segment.bytes": _SEGMENT_BYTES,
    "segment.index.bytes": Whole(4, INT_MAX),
    "segment.jitter.ms": _LONG_FROM_0,
    "segment.ms": _LONG_FROM_1,
    "unclean.leader.election.enable": Flag(),
}

BROKER_CONFIGS: Final[Mapping[str, Kind]] = {
    "background.threads": _INT_FROM_1,
    "compression.gzip.level": LevelOrDefault(1, 9, -1),
    "compression.lz4.level": Whole(1, 17),
    "compression.type": _COMPRESSION_TYPE,
    "compression.zstd.level": Whole(-131_072, 22),
    "default.replication.factor": Whole(1, 2**15 - 1),
    "follower.replication.throttled.rate": _LONG_FROM_0,
    "leader.replication.throttled.rate": _LONG_FROM_0,
    "log.cleaner.threads": _INT_FROM_0,
    "log.cleanup.policy": _CLEANUP_POLICY,
    "log.flush.interval.messages": _LONG_FROM_1,
    "log.flush.interval.ms": _LONG_FROM_0,
    "log.index.interval.bytes": _INT_FROM_0,
    "log.index.size.max.bytes": Whole(4, INT_MAX),
    "log.local.retention.bytes": _LOCAL_RETENTION,
    "log.local.retention.ms": _LOCAL_RETENTION,
    "log.message.timestamp.type": _TIMESTAMP_TYPE,
    "log.preallocate": Flag(),
    "log.retention.bytes": _LONG_OR_UNLIMITED,
    "log.retention.ms": _LONG_OR_UNLIMITED,
    "log.roll.ms": _LONG_FROM_1,
    "log.segment.bytes": _SEGMENT_BYTES,
    "log.segment.delete.delay.ms": _LONG_FROM_0,
    "max.connection.creation.rate": _INT_FROM_0,
    "max.connections": _INT_FROM_0,
    "max.connections.per.ip": _INT_FROM_0,
    "message.max.bytes": _INT_FROM_0,
    "min.insync.replicas": _INT_FROM_1,
    "num.io.threads": _INT_FROM_1,
    "num.network.threads": _INT_FROM_1,
    "num.partitions": _INT_FROM_1,
    "num.recovery.threads.per.data.dir": _INT_FROM_1,
    "num.replica.fetchers": _INT_FROM_1,
    "remote.log.index.file.cache.total.size.bytes": _LONG_FROM_1,
    "remote.log.manager.copier.thread.pool.size": _INT_FROM_1,
    "remote.log.manager.copy.max.bytes.per.second": _LONG_FROM_1,
    "remote.log.manager.expiration.thread.pool.size": _INT_FROM_1,
    "remote.log.manager.fetch.max.bytes.per.second": _LONG_FROM_1,
    "remote.log.reader.threads": _INT_FROM_1,
    "replica.alter.log.dirs.io.max.bytes.per.second": _LONG_FROM_0,
    "unclean.leader.election.enable": Flag(),
}

_DEFINITIONS: Final[Mapping[ResourceType, Mapping[str, Kind]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
}


def check_config(resource_type: ResourceType, name: str, value: str | None) -> None:
    """Raise ProtocolError(INVALID_CONFIG) unless that kind of resource can have this config with this value."""
    kind = check_config_name(resource_type, name)
    what = resource_type.name.lower()
    if value is None:
        raise _invalid(f"the {what} config {name} has no value; give one or leave the config out")
    problem = (
        kind.problem(value) if len(value) <= VALUE_LENGTH_MAX else f"it has more than {VALUE_LENGTH_MAX} characters"
    )
    if problem is not None:
        raise _invalid(f"{quoted(value)} is no value for the {what} config {name}: {problem}")


def check_config_name(resource_type: ResourceType, name: str) -> Kind:
    """The kind of values of a config; raises ProtocolError(INVALID_CONFIG) unless that kind of resource has it."""
    kind = _DEFINITIONS[resource_type].get(name)
    if kind is None:
        raise _invalid(f"{quoted(name)} is no config of a {resource_type.name.lower()}")
    return kind


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise ProtocolError(INVALID_CONFIG) unless the valid `configs` go together in one topic."""
    tiered = configs.get("remote.storage.enable", "false").lower() == "true"
    if tiered and "compact" in configs.get("cleanup.policy", "delete"):
        raise _invalid("remote.storage.enable=true and cleanup.policy=compact exclude each other; drop one")
    if tiered:
        _check_local_retention(configs, "ms")
        _check_local_retention(configs, "bytes")
    least, most = int(configs.get("min.compaction.lag.ms", 0)), int(configs.get("max.compaction.lag.ms", LONG_MAX))
    if least > most:
        raise _invalid(f"min.compaction.lag.ms={least} is above max.compaction.lag.ms={most}")


_RETENTION_DEFAULTS: Final = {"ms": 7 * 24 * 3_600_000, "bytes": -1}
_AS_RETENTION: Final = -2
_UNLIMITED: Final = -1


def _check_local_retention(configs: Mapping[str, str], unit: str) -> None:
    total = int(configs.get(f"retention.{unit}", _RETENTION_DEFAULTS[unit]))
    local = int(configs.get(f"local.retention.{unit}", _AS_RETENTION))
    if total != _UNLIMITED and (local == _UNLIMITED or local > total):
        raise _invalid(
            f"local.retention.{unit}={local} is more than retention.{unit}={total}, of which it must be a part"
        )


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_CONFIG, reason)
