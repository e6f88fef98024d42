"""Records of a metadata log in a form in which the records of two systems can be compared.

Each record is of one resource: a partition, a topic, a broker, the configs of one resource, an entity with quotas, an
access control entry, a feature, or the producer ids. A value that the controller generated, such as the id of a topic
or an entry or the epoch of a broker, is replaced by a name that is the same on both systems: "registration 2".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LOST: Final = (2).to_bytes(16, "big")
RESERVED_DIRECTORIES: Final = {
    (0).to_bytes(16, "big"): "migrating",
    (1).to_bytes(16, "big"): "unassigned",
    LOST: "lost",
}
"""The reserved ids of Kafka's DirectoryId."""

COMPARED_FEATURES: Final = frozenset({"metadata.version", "eligible.leader.replicas.version"})
"""The features that both systems have; the others are not compared."""


def incarnation_id(broker_id: int, incarnation: int) -> bytes:
    """Return the incarnation id of a broker's process, the same on both systems."""
    return b"incarnat" + broker_id.to_bytes(4, "big", signed=True) + incarnation.to_bytes(4, "big")


def directory_id(broker_id: int, number: int) -> bytes:
    """Return the id of a broker's log directory, the same on both systems; number 0 gives the reserved id "lost"."""
    return LOST if number == 0 else b"director" + broker_id.to_bytes(4, "big", signed=True) + number.to_bytes(4, "big")


def directory_name(found: bytes) -> str:
    """Return the name of a directory's id."""
    if found[:8] == b"director":
        return f"{int.from_bytes(found[8:12], 'big', signed=True)}:{int.from_bytes(found[12:], 'big')}"
    return RESERVED_DIRECTORIES.get(found, "made up")


def incarnation_name(found: bytes) -> str:
    """Return the name of an incarnation's id."""
    return f"{int.from_bytes(found[8:12], 'big', signed=True)}:{int.from_bytes(found[12:], 'big')}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its kind by Kafka's name, the resource, and the fields that are set."""

    kind: str
    resource: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.kind}({shown})"


@dataclass(slots=True)
class Names:
    """One system's ids and epochs for the things that steps name, learned from its records."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    """The epoch of each broker's last registration, even if it is deleted."""
    _topics: dict[bytes, str] = field(default_factory=dict)
    _registrations: dict[tuple[int, int], int] = field(default_factory=dict)
    _registered: dict[int, int] = field(default_factory=dict)
    _entries: dict[bytes, str] = field(default_factory=dict)
    _first_producer_id: int | None = None

    def begin(self) -> None:
        """Begin another sequence: count registrations and producer ids from the start."""
        self.broker_epochs.clear()
        self.topic_ids.clear()
        self._registrations.clear()
        self._registered.clear()
        self._first_producer_id = None

    def learn_topic(self, name: str, topic_id: bytes) -> None:
        """Learn the id of a created topic."""
        self.topic_ids[name] = topic_id
        self._topics[topic_id] = name

    def topic(self, topic_id: bytes) -> str:
        """Return the name of a topic, even if it is deleted."""
        return self._topics.get(topic_id, "an unknown topic")

    def learn_registration(self, broker_id: int, epoch: int) -> None:
        """Learn the epoch of a registration. The same registration may be written more than once."""
        self.broker_epochs[broker_id] = epoch
        if (broker_id, epoch) not in self._registrations:
            self._registered[broker_id] = self._registered.get(broker_id, 0) + 1
            self._registrations[broker_id, epoch] = self._registered[broker_id]

    def registration(self, broker_id: int, epoch: int) -> str:
        """Return the name of the registration with this epoch: its number among those of its broker."""
        return f"registration {self._registrations.get((broker_id, epoch), 'unknown')}"

    def learn_entry(self, entry_id: bytes, content: str) -> None:
        """Learn the id of a created access control entry."""
        self._entries[entry_id] = content

    def entry(self, entry_id: bytes) -> str:
        """The content of an access control entry."""
        return self._entries.get(entry_id, "an unknown entry")

    def producer_id(self, found: int) -> int:
        """Return a producer id, counted from the first one that this system allocated."""
        if self._first_producer_id is None:
            self._first_producer_id = found
        return found - self._first_producer_id


def quota_resource(entity: tuple[tuple[str, str | None], ...]) -> str:
    """The name of an entity with quotas."""
    return "quotas " + ", ".join(f"{kind}={'default' if name is None else repr(name)}" for kind, name in sorted(entity))


def config_resource(resource_type: int, resource_name: str) -> str:
    """The name of a resource with configs."""
    return f"configs { ({2: 'topic', 4: 'broker'}.get(resource_type, resource_type)) } {resource_name!r}"


def partition_resource(topic: str, partition: int) -> str:
    """The name of a partition."""
    return f"partition {topic}-{partition}"


def features(found: list[tuple[str, int, int]]) -> str:
    """The features that both systems have, in one order."""
    return ", ".join(f"{name} {low}-{high}" for name, low, high in sorted(found) if name in COMPARED_FEATURES)
