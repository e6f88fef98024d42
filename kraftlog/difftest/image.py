"""The metadata that the records of one system result in, computed without code of the state machine under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kraftbase.errors import KraftlogError
from kraftlog.difftest.records import Record, config_resource, partition_resource

NO_BROKER: Final = -1
_ELIGIBLE: Final = ("elr", "last_known_elr")


class WrongRecord(KraftlogError):
    """A record is about a resource that does not exist."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, with the fields of Kafka's PartitionRecord."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[str, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Broker:
    """A registration."""

    incarnation: str
    epoch: str
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    end_points: tuple[Any, ...]
    features: str


@dataclass(slots=True)
class Image:
    """All metadata, under names that are the same on both systems."""

    topics: set[str] = field(default_factory=set)
    partitions: dict[tuple[str, int], Partition] = field(default_factory=dict)
    brokers: dict[int, Broker] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    """The number of access control entries with each content."""
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    former_eligible: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    """The eligible replicas of each partition that are no longer replicas; only Kafka has such."""
    has_forgotten_eligible: bool = False
    """Whether a ClearElr record removed eligible replicas."""
    _entities: dict[str, tuple[tuple[str, str | None], ...]] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Apply a committed record. Raises WrongRecord."""
        apply = _APPLY.get(record.kind)
        if apply is None:
            raise WrongRecord(f"no controller should have written {record}")
        try:
            apply(self, record.resource, dict(record.values))
        except KeyError as missing:
            raise WrongRecord(f"{record} is about {missing}, which does not exist") from None

    def settled(self, record: Record) -> Record:
        """Return the record with its eligible replicas in ascending order, without former replicas (CT-56).

        Kafka keeps former replicas in the list, but elects none of them before it is a replica again. They are kept in
        `former_eligible`.
        """
        partition = self.partitions.get(_key(record.resource)) if record.kind == "PartitionChange" else None
        if partition is None:
            return record
        key = _key(record.resource)
        values = {name: value for name, value in record.values.items() if name not in _ELIGIBLE}
        replicas = values.get("replicas", partition.replicas)
        listed = record.values.get("elr", (*partition.elr, *self.former_eligible.get(key, ())))
        self.former_eligible[key] = frozenset(listed).difference(replicas)
        eligible = tuple(sorted(one for one in listed if one in replicas))
        if eligible != partition.elr:
            values["elr"] = eligible
        if "last_known_elr" in record.values:
            values["last_known_elr"] = record.values["last_known_elr"]
        return Record(record.kind, record.resource, values)

    def partition_ids(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return sorted(partition for name, partition in self.partitions if name == topic)

    def quota_entities(self) -> list[tuple[tuple[tuple[str, str | None], ...], dict[str, float]]]:
        """The entities with quotas, each with its quotas."""
        return [(entity, self.quotas[resource]) for resource, entity in self._entities.items()]

    def resources(self) -> dict[str, Any]:
        """Each resource with its state, for the comparison."""
        shown: dict[str, Any] = {f"topic {name}": True for name in self.topics}
        shown |= {partition_resource(*key): partition for key, partition in self.partitions.items()}
        shown |= {f"broker {broker_id}": broker for broker_id, broker in self.brokers.items()}
        shown |= {name: dict(sorted(configs.items())) for name, configs in self.configs.items() if configs}
        shown |= {name: dict(sorted(quotas.items())) for name, quotas in self.quotas.items() if quotas}
        shown |= {name: count for name, count in self.entries.items() if count}
        shown |= {f"feature {name}": level for name, level in self.features.items()}
        return shown | {"next producer id": self.next_producer_id}


def _register(image: Image, resource: str, values: dict[str, Any]) -> None:
    image.brokers[int(resource.split()[1])] = Broker(**values)


def _unregister(image: Image, resource: str, _: dict[str, Any]) -> None:
    del image.brokers[int(resource.split()[1])]


def _change_broker(image: Image, resource: str, values: dict[str, Any]) -> None:
    broker_id = int(resource.split()[1])
    image.brokers[broker_id] = replace(image.brokers[broker_id], **values)


def _topic(image: Image, _: str, values: dict[str, Any]) -> None:
    image.topics.add(values["name"])


def _remove_topic(image: Image, _: str, values: dict[str, Any]) -> None:
    name = values["name"]
    image.topics.remove(name)
    image.partitions = {key: partition for key, partition in image.partitions.items() if key[0] != name}
    image.configs.pop(config_resource(2, name), None)


def _partition(image: Image, resource: str, values: dict[str, Any]) -> None:
    image.partitions[_key(resource)] = Partition(**values)
    image.former_eligible.pop(_key(resource), None)


def _change_partition(image: Image, resource: str, values: dict[str, Any]) -> None:
    """CT-01: the partition epoch always grows by one, the leader epoch if the record has a leader."""
    partition = image.partitions[_key(resource)]
    image.partitions[_key(resource)] = replace(
        partition,
        partition_epoch=partition.partition_epoch + 1,
        leader_epoch=partition.leader_epoch + ("leader" in values),
        **values,
    )


def _clear_elr(image: Image, _: str, values: dict[str, Any]) -> None:
    """Change only the partitions that have eligible replicas or a last known leader."""
    for key, partition in image.partitions.items():
        has_some = partition.elr or partition.last_known_elr or image.former_eligible.get(key)
        if values["topic"] in ("", key[0]) and has_some:
            image.former_eligible.pop(key, None)
            image.has_forgotten_eligible = True
            image.partitions[key] = replace(
                partition, elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
            )


def _config(image: Image, resource: str, values: dict[str, Any]) -> None:
    configs = image.configs.setdefault(resource, {})
    if values["value"] is None:
        configs.pop(values["name"], None)
    else:
        configs[values["name"]] = values["value"]


def _quota(image: Image, resource: str, values: dict[str, Any]) -> None:
    quotas = image.quotas.setdefault(resource, {})
    image._entities[resource] = values["entity"]
    if values["value"] is None:
        quotas.pop(values["key"], None)
    else:
        quotas[values["key"]] = values["value"]


def _entry(image: Image, resource: str, _: dict[str, Any]) -> None:
    image.entries[resource] = image.entries.get(resource, 0) + 1


def _remove_entry(image: Image, resource: str, _: dict[str, Any]) -> None:
    image.entries[resource] -= 1


def _feature(image: Image, resource: str, values: dict[str, Any]) -> None:
    image.features[resource.removeprefix("feature ")] = values["level"]


def _producer_ids(image: Image, _: str, values: dict[str, Any]) -> None:
    image.next_producer_id = values["next"]


def _key(resource: str) -> tuple[str, int]:
    topic, _, partition = resource.removeprefix("partition ").rpartition("-")
    return topic, int(partition)


_APPLY: Final[dict[str, Callable[[Image, str, dict[str, Any]], None]]] = {
    "RegisterBroker": _register,
    "UnregisterBroker": _unregister,
    "BrokerRegistrationChange": _change_broker,
    "Topic": _topic,
    "RemoveTopic": _remove_topic,
    "Partition": _partition,
    "PartitionChange": _change_partition,
    "ClearElr": _clear_elr,
    "Config": _config,
    "ClientQuota": _quota,
    "AccessControlEntry": _entry,
    "RemoveAccessControlEntry": _remove_entry,
    "FeatureLevel": _feature,
    "ProducerIds": _producer_ids,
}
