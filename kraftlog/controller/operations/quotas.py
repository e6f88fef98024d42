"""AlterClientQuotas: from alterations and the latest state to records and an answer. Nothing changes here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kraftbase.errors import ApiError, invalid_request
from kraftlog.controller.rules.quota import MutationLimit, stored_limit
from kraftpb.v1.admin_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaAlteration,
    ClientQuotaResult,
)
from kraftpb.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord, QuotaEntity
from statemachine.metadata.state import MetadataState
from statemachine.tables.cluster_tables import quota_entity_key
from statemachine.words.limits import check_record_count
from statemachine.words.names import check_name_lengths, quoted
from statemachine.words.repeats import repeats

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

FRACTION_MAX: Final = 1e-6
"""How far off a value that was computed as a double may be and still count as whole (as in Kafka)."""


@dataclass(frozen=True, slots=True)
class QuotaKind:
    """The values that a quota accepts, all above 0."""

    whole_max: int | None
    """The value is a whole number up to this; None: any number."""


CLIENT_KEYS: Final[Mapping[str, QuotaKind]] = {
    "consumer_byte_rate": QuotaKind(LONG_MAX),
    CONTROLLER_MUTATION_RATE: QuotaKind(None),
    "producer_byte_rate": QuotaKind(LONG_MAX),
    "request_percentage": QuotaKind(None),
}
"""Those of users and client ids, per second except for the percentage of one thread's time."""

IP_KEYS: Final[Mapping[str, QuotaKind]] = {"connection_creation_rate": QuotaKind(INT_MAX)}
"""Those of addresses, per second."""

_Parts = tuple[tuple[str, str | None], ...]
"""The types and names of an entity, in one order."""


def alter_client_quotas(
    state: MetadataState, request: AlterClientQuotasRequest
) -> tuple[list[MetadataRecord], AlterClientQuotasResponse]:
    """The records that alter the quotas of the entities whose alterations are all valid, and an answer for each entity.

    An entity is altered as a whole or not at all. A quota that already has the value makes no record, nor does the
    removal of a quota that is not set. An invalid alteration is an INVALID_REQUEST of its entity (CT-63). Raises
    ApiError(RECORD_LIST_TOO_LARGE) if there are too many alterations for one batch (CT-12), INVALID_REQUEST if a name
    is far too long.
    """
    check_record_count(len(request.alterations))
    check_name_lengths(_names(request.alterations))
    by_entity: dict[_Parts, list[ClientQuotaAlteration]] = {}
    for alteration in request.alterations:
        by_entity.setdefault(_parts(alteration.entity), []).append(alteration)
    records: list[MetadataRecord] = []
    response = AlterClientQuotasResponse()
    for parts, alterations in by_entity.items():
        answer = ClientQuotaResult(entity=alterations[0].entity)
        try:
            records += _alter_entity(state, parts, alterations)
        except ApiError as error:
            answer.error_code, answer.error_message = error.code, error.args[0]
        response.results.append(answer)
    return ([] if request.validate_only else records), response


def stored_mutation_limit(state: MetadataState, client_id: str) -> MutationLimit | None:
    """The stored controller_mutation_rate of a client: its own, or that of <default> client ids (KIP-599).

    Those of users apply to no client before there are users. A client without an id has the default.
    """
    for name in (client_id, None) if client_id else (None,):
        entity = QuotaEntity(entity_type=CLIENT_ID, entity_name=name)
        rate = state.client_quota(quota_entity_key([entity]), CONTROLLER_MUTATION_RATE)
        if rate is not None:
            return stored_limit(rate, f"the quota {CONTROLLER_MUTATION_RATE} of {_shown(((CLIENT_ID, name),))}")
    return None


def _names(alterations: Iterable[ClientQuotaAlteration]) -> Iterable[str]:
    for alteration in alterations:
        yield alteration.key
        for part in alteration.entity:
            yield from (part.entity_type, part.entity_name)


def _parts(entity: Iterable[QuotaEntity]) -> _Parts:
    # The default, which has no name, is not the entity with an empty name, which is refused.
    named = ((part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in entity)
    return tuple(sorted(named, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def _alter_entity(
    state: MetadataState, parts: _Parts, alterations: Sequence[ClientQuotaAlteration]
) -> list[MetadataRecord]:
    keys = _check_entity(parts)
    for key in repeats(alteration.key for alteration in alterations):
        raise invalid_request(f"quota {quoted(key)} of {_shown(parts)} is altered more than once")
    entity = [QuotaEntity(entity_type=entity_type, entity_name=name) for entity_type, name in parts]
    present = state.client_quotas(quota_entity_key(entity))
    records = []
    for alteration in alterations:
        value = alteration.value if alteration.HasField("value") else None
        if value is not None:  # a removed quota may be unknown, as in Kafka: then there is nothing to remove
            _check_quota(keys, parts, alteration.key, value)
        if value != present.get(alteration.key):
            quota = ClientQuotaRecord(entity=entity, key=alteration.key, value=value or 0.0, remove=value is None)
            records.append(MetadataRecord(client_quota=quota))
    return records


def _check_entity(parts: _Parts) -> Mapping[str, QuotaKind]:
    """The quotas that the entity can have; raises ApiError(INVALID_REQUEST) unless the entity is valid."""
    if not parts:
        raise invalid_request("the entity is empty; name a user, a client-id, both, or an ip")
    for entity_type, name in parts:
        if entity_type not in ENTITY_TYPES:
            raise invalid_request(f"{quoted(entity_type)} is not a type of entity; use {', '.join(ENTITY_TYPES)}")
        if name == "":
            raise invalid_request(f"the {entity_type} has an empty name; leave the name out for the default of all")
    types = [entity_type for entity_type, _ in parts]
    for entity_type in repeats(types):
        raise invalid_request(f"the entity has more than one {entity_type}; name one")
    if IP not in types:
        return CLIENT_KEYS
    if len(types) > 1:
        raise invalid_request(f"the entity {_shown(parts)} has an ip and another type; an ip must be the only part")
    _check_address(parts[0][1])
    return IP_KEYS


def _check_address(name: str | None) -> None:
    if name is None:
        return
    # Kafka takes host names, too. The address of a name would depend on when and where it is resolved.
    try:
        ip_address(name)
    except ValueError:
        raise invalid_request(
            f"{quoted(name)} is not an ip; give an address such as 192.0.2.1 or 2001:db8::1"
        ) from None


def _check_quota(keys: Mapping[str, QuotaKind], parts: _Parts, key: str, value: float) -> None:
    """Raise ApiError(INVALID_REQUEST) unless the entity can have this quota with this value."""
    kind = keys.get(key)
    if kind is None:
        raise invalid_request(f"{_shown(parts)} cannot have the quota {quoted(key)}; use {', '.join(keys)}")
    if not (math.isfinite(value) and value > 0):
        raise invalid_request(
            f"the quota {key} of {_shown(parts)} is {value}; it must be a number above 0, or be removed"
        )
    # The largest 64-bit number, which stands for "unlimited", is not a double: compared as doubles it is.
    if kind.whole_max is not None and not (abs(value - round(value)) < FRACTION_MAX and value <= float(kind.whole_max)):
        raise invalid_request(
            f"the quota {key} of {_shown(parts)} is {value}; it must be whole, at most {kind.whole_max}"
        )


def _shown(parts: _Parts) -> str:
    return " and ".join(f"{kind} {'<default>' if name is None else quoted(name)}" for kind, name in parts)
