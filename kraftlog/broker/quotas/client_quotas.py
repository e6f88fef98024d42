"""The quotas of clients in the metadata, and which of them applies to a client: a publisher of the broker's state
machine.

The first one that is set, in this order, applies (KIP-55, DB-93):

| quota of | shared by |
|---|---|
| this user with this client id | not shared |
| this user with any client id | not shared: each client id of the user has the quota for itself |
| this user | the user's clients |
| any user with this client id | not shared: each user's clients with that id have the quota for themselves |
| any user with any client id | not shared |
| any user | the clients of each user |
| this client id | all clients with that id, whatever their user |
| any client id | all clients with the same id |

Only quotas of users apply to a client without an id.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from kraftbase.types import Offset
from kraftlog.network.requests import QuotaClient
from kraftpb.v1.metadata_pb2 import ClientQuotaRecord, QuotaEntity
from statemachine.replay.deltas import MetadataDelta
from statemachine.tables.cluster_tables import CLIENT_QUOTAS

LIMIT_MIN: Final = 1e-6
"""Lower quotas count as this one, because the throttle time is divided by the quota."""


class QuotaKind(StrEnum):
    """What a quota limits; Kafka's keys. The controller enforces `controller_mutation_rate` (CT-20)."""

    __hash__ = str.__hash__  # each request looks kinds up, and an enumeration's own hash costs a call

    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    FETCH = "consumer_byte_rate"
    """Bytes of Fetch answers per second."""
    REQUEST = "request_percentage"
    """Percent of the event loop's time: 100 is all of it."""


class Limit(NamedTuple):
    """The quota that applies to a client."""

    shared_by: QuotaClient
    """The clients that share the quota; a part that does not matter is empty."""
    per_second: float


class _Part(Enum):
    """A part of an entity without a name."""

    ABSENT = 0
    DEFAULT = 1


_Name = str | _Part
_Entity = tuple[_Name, _Name]
"""A user and a client id."""

_KINDS: Final = {kind.value: kind for kind in QuotaKind}


class ClientQuotas:
    """All quotas of users and client ids. Not thread-safe."""

    def __init__(self) -> None:
        self._limits: dict[QuotaKind, dict[_Entity, float]] = {kind: {} for kind in QuotaKind}

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """Read all quotas from a complete state."""
        for limits in self._limits.values():
            limits.clear()
        for _, record in CLIENT_QUOTAS.find(metadata):
            self._set(record)

    def on_delta(self, delta: MetadataDelta) -> None:
        """Apply changes."""
        for change in delta.client_quotas:
            if change.after is not None:
                self._set(change.after)
            elif change.before is not None:
                kind, entity = _KINDS.get(change.before.key), _entity_of(change.before.entity)
                if kind is not None and entity is not None:
                    self._limits[kind].pop(entity, None)

    def _set(self, record: ClientQuotaRecord) -> None:
        kind, entity = _KINDS.get(record.key), _entity_of(record.entity)
        if kind is not None and entity is not None:
            self._limits[kind][entity] = max(record.value, LIMIT_MIN)

    def is_set(self, kind: QuotaKind) -> bool:
        """Whether any quota of a kind is set."""
        return bool(self._limits[kind])

    def limit(self, kind: QuotaKind, client: QuotaClient) -> Limit | None:
        """Return the quota that applies to a client; None if there is none."""
        limits = self._limits[kind]
        if not limits:
            return None
        for entity, shared_by in _levels(client):
            per_second = limits.get(entity)
            if per_second is not None:
                return Limit(shared_by, per_second)
        return None


def _levels(client: QuotaClient) -> Iterable[tuple[_Entity, QuotaClient]]:
    """Return the entities whose quotas may apply, by precedence, each with the clients that share its quota."""
    user, client_id = client
    of_user = QuotaClient(user, "")
    if not client_id:
        return (((user, _Part.ABSENT), of_user), ((_Part.DEFAULT, _Part.ABSENT), of_user))
    of_client_id = QuotaClient("", client_id)
    return (
        ((user, client_id), client),
        ((user, _Part.DEFAULT), client),
        ((user, _Part.ABSENT), of_user),
        ((_Part.DEFAULT, client_id), client),
        ((_Part.DEFAULT, _Part.DEFAULT), client),
        ((_Part.DEFAULT, _Part.ABSENT), of_user),
        ((_Part.ABSENT, client_id), of_client_id),
        ((_Part.ABSENT, _Part.DEFAULT), of_client_id),
    )


def _entity_of(parts: Iterable[QuotaEntity]) -> _Entity | None:
    """Return the user and client id of an entity; None for an entity of another type, such as an IP address."""
    names: dict[str, _Name] = {
        part.entity_type: part.entity_name if part.HasField("entity_name") else _Part.DEFAULT for part in parts
    }
    if not names or not names.keys() <= {"user", "client-id"}:
        return None
    return names.get("user", _Part.ABSENT), names.get("client-id", _Part.ABSENT)
