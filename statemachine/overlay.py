"""What the active controller decides on: its own uncommitted records, and under them the committed state in SQLite.

Each read looks here first, then in the store. A record enters when its append is prepared, with the end offset of that
append, and leaves when the store has applied that offset; between the store's transaction and `drain` both say the
same. Losing leadership drops everything. This is no second copy of the world: it holds what is in flight, nothing else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kraftpb.v1.metadata_pb2 import MetadataRecord, RegisterBrokerRecord
from raft.core.checks import check
from raft.core.types import Offset
from statemachine import queries
from statemachine.conversions import broker_to_record
from statemachine.ids import id_to_bytes, id_to_text
from statemachine.names import collision_key, may_collide
from statemachine.resources import ResourceType
from statemachine.store import MetadataStore

K = TypeVar("K")
V = TypeVar("V")

ConfigKey = tuple[int, str | bytes]
"""A resource that has configs: a topic goes by its id, so that a new topic of an old name starts without any."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[V]):
    """An uncommitted value, and the end offset of the append that sets it. None: the committed one is removed."""

    end_offset: Offset
    value: V | None


class Layer(Generic[K, V]):
    """The last uncommitted value of each key."""

    __slots__ = ("_order", "entries")

    def __init__(self) -> None:
        self.entries: dict[K, Entry[V]] = {}
        self._order: deque[tuple[Offset, K]] = deque()

    def put(self, key: K, value: V | None, end_offset: Offset) -> None:
        """Set `key` by the append that ends at `end_offset`, which is none before the last one's."""
        self.entries[key] = Entry(end_offset, value)
        self._order.append((end_offset, key))

    def drain(self, applied_end_offset: Offset) -> None:
        """Forget what the store has now; a key that was set again later stays."""
        while self._order and self._order[0][0] <= applied_end_offset:
            end_offset, key = self._order.popleft()
            entry = self.entries.get(key)
            if entry is not None and entry.end_offset == end_offset:
                del self.entries[key]

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self._order.clear()


@dataclass(frozen=True, slots=True)
class PlacementBroker:
    """What the placement of replicas needs to know of a broker."""

    is_active: bool
    """Neither fenced nor shutting down."""
    directory: bytes | None
    """Its log directory if it has exactly one."""


class Overlay:
    """The latest state, committed or not. Used on the event loop's thread only."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._topic_ids: Final = Layer[str, bytes]()
        self._topic_names: Final = Layer[bytes, str]()
        self._collisions: Final = Layer[str, str]()
        """The last name that was created for each collision key."""
        self._brokers: Final = Layer[int, RegisterBrokerRecord]()
        self._configs: Final = Layer[ConfigKey, dict[str, str | None]]()
        """By resource, since its first uncommitted change; what of it is committed by now says what the store says."""
        self.last_end_offset = Offset(0)
        """The end of the last append that entered."""

    def __len__(self) -> int:
        """How many uncommitted values it holds."""
        return sum(len(layer.entries) for layer in self._layers())

    # --- reads --------------------------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> bytes | None:
        """The id of the topic of that name."""
        entry = self._topic_ids.entries.get(name)
        if entry is not None:
            return entry.value
        found = self._store.reader.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
        return None if found is None else id_to_bytes(found[0])

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic of that id."""
        entry = self._topic_names.entries.get(topic_id)
        if entry is not None:
            return entry.value
        found = self._store.reader.execute(
            "SELECT name FROM topics WHERE topic_id = ?", (id_to_text(topic_id),)
        ).fetchone()
        return None if found is None else str(found[0])

    def colliding_topic(self, name: str) -> str | None:
        """Another topic whose name collides with `name`, if there is one."""
        if not may_collide(name):
            return None
        key = collision_key(name)
        stored = self._store.reader.execute("SELECT name FROM topics WHERE replace(name, '.', '_') = ?", (key,))
        entry = self._collisions.entries.get(key)
        candidates = [row[0] for row in stored] + ([entry.value] if entry is not None else [])
        return next((other for other in candidates if other != name and self.topic_id(other) is not None), None)

    def brokers(self) -> dict[int, RegisterBrokerRecord]:
        """All registrations."""
        found = {broker.broker_id: broker_to_record(broker) for broker in queries.list_brokers(self._store.reader)}
        found.update((id_, entry.value) for id_, entry in self._brokers.entries.items() if entry.value is not None)
        return found

    def placement_brokers(self) -> dict[int, PlacementBroker]:
        """All registered brokers by id, ascending."""
        rows = self._store.reader.execute("SELECT broker_id, fenced OR in_controlled_shutdown, log_dirs FROM brokers")
        found = {id_: _placement_broker(not inactive, json.loads(log_dirs)) for id_, inactive, log_dirs in rows}
        for broker_id, entry in self._brokers.entries.items():
            record = entry.value
            if record is not None:
                is_active = not (record.fenced or record.in_controlled_shutdown)
                found[broker_id] = _placement_broker(is_active, [id_to_text(log_dir) for log_dir in record.log_dirs])
        return dict(sorted(found.items()))

    def broker_exists(self, broker_id: int) -> bool:
        """Whether that broker is registered."""
        return broker_id in self._brokers.entries or queries.broker_exists(self._store.reader, broker_id)

    def configs(self, resource_type: ResourceType, resource_name: str) -> dict[str, str]:
        """The configs that are set for a resource; none for a topic that does not exist."""
        key, is_new = self._config_key(resource_type, resource_name)
        found = {} if is_new else self._stored_configs(resource_type, resource_name)
        entry = self._configs.entries.get(key)
        if entry is None or entry.value is None:
            return found
        return {name: value for name, value in {**found, **entry.value}.items() if value is not None}

    def _stored_configs(self, resource_type: ResourceType, resource_name: str) -> dict[str, str]:
        return dict(
            self._store.reader.execute(
                "SELECT name, value FROM configs WHERE resource_type = ? AND resource_name = ?",
                (int(resource_type), resource_name),
            )
        )

    def _config_key(self, resource_type: int, resource_name: str) -> tuple[ConfigKey, bool]:
        """The key of a resource, and whether nothing of it is in the store yet."""
        if resource_type != ResourceType.TOPIC:
            return (resource_type, resource_name), False
        topic_id = self.topic_id(resource_name)
        return (resource_type, topic_id or resource_name), resource_name in self._topic_ids.entries

    # --- changes ------------------------------------------------------------------------------------------------------

    def replay(self, records: Iterable[MetadataRecord], end_offset: Offset) -> None:
        """Take in the records of one prepared append, which ends at `end_offset`."""
        check(end_offset > self.last_end_offset, "appends enter the overlay in order", end_offset=end_offset)
        for record in records:
            match record.WhichOneof("record"):
                case "topic":
                    self._topic_ids.put(record.topic.name, record.topic.topic_id, end_offset)
                    self._topic_names.put(record.topic.topic_id, record.topic.name, end_offset)
                    if may_collide(record.topic.name):
                        self._collisions.put(collision_key(record.topic.name), record.topic.name, end_offset)
                case "remove_topic":
                    name = self.topic_name(record.remove_topic.topic_id)
                    if name is not None:
                        self._topic_ids.put(name, None, end_offset)
                    self._topic_names.put(record.remove_topic.topic_id, None, end_offset)
                case "config":
                    self._put_config(record, end_offset)
                case "register_broker":
                    self._brokers.put(record.register_broker.broker_id, record.register_broker, end_offset)
        self.last_end_offset = end_offset

    def _put_config(self, record: MetadataRecord, end_offset: Offset) -> None:
        config = record.config
        key, _ = self._config_key(config.resource_type, config.resource_name)
        present = self._configs.entries.get(key)
        values = present.value if present is not None and present.value is not None else {}
        values[config.name] = config.value if config.HasField("value") else None
        self._configs.put(key, values, end_offset)

    def drain(self, applied_end_offset: Offset) -> None:
        """Forget what the store has applied."""
        for layer in self._layers():
            layer.drain(applied_end_offset)

    def clear(self) -> None:
        """Forget everything: it will not be committed by this controller."""
        for layer in self._layers():
            layer.clear()
        self.last_end_offset = Offset(0)

    def _layers(self) -> tuple[Layer[Any, Any], ...]:
        return self._topic_ids, self._topic_names, self._collisions, self._brokers, self._configs


def _placement_broker(is_active: bool, log_dirs: list[str]) -> PlacementBroker:
    return PlacementBroker(is_active, id_to_bytes(log_dirs[0]) if len(log_dirs) == 1 else None)
