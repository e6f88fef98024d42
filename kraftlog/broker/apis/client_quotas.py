"""DescribeClientQuotas from this broker's applied metadata; AlterClientQuotas at the controller (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftlog.broker.apis.refusals import message_of, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.controller_channel import TIMEOUT_MS_DEFAULT
from kraftlog.kafka.messages import alter_client_quotas, describe_client_quotas
from kraftlog.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)
from kraftlog.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import QuotaEntity
from statemachine.tables.cluster_tables import CLIENT_QUOTAS
from statemachine.words.names import quoted

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

EXACT, DEFAULT, SPECIFIED = range(3)
"""Kafka's numbers for how a component matches: a name, the default without a name, any name."""

PARTS_MAX: Final = 100
"""At most this many parts of an entity are read. There are three types, and the controller refuses repeated ones."""

Entity = tuple[tuple[str, str | None], ...]
"""The types and names of an entity's parts; a default has no name."""


class DescribeClientQuotasApi:
    """Handles DescribeClientQuotas."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(DescribeClientQuotasRequest, request.body)
        try:
            wanted = _wanted(body.components)
        except ApiError as error:
            reply(DescribeClientQuotasResponse(error_code=error.code, error_message=text_of(error), entries=None))
            return
        entities: dict[Entity, list[ValueData]] = {}
        for _, quota in list(CLIENT_QUOTAS.find(self._cluster.metadata)):
            yield
            entity = _entity(quota.entity)
            if _matches(dict(entity), wanted, body.strict):
                entities.setdefault(entity, []).append(ValueData(key=quota.key, value=quota.value))
        kind = describe_client_quotas.EntityData
        reply(
            DescribeClientQuotasResponse(
                error_code=ErrorCode.NONE,
                error_message=None,
                entries=tuple(
                    describe_client_quotas.EntryData(
                        entity=tuple(kind(entity_type=entity_type, entity_name=name) for entity_type, name in entity),
                        values=tuple(values),
                    )
                    for entity, values in entities.items()
                ),
            )
        )


def _wanted(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    """Return the components by type. Raises ApiError, with Kafka's codes, if they are invalid."""
    wanted: dict[str, ComponentData] = {}
    for component in components:
        entity_type, match = component.entity_type, component.match
        if not entity_type:
            raise invalid_request("a component has no entity type; give user, client-id or ip")
        if entity_type in wanted:
            raise invalid_request(f"entity type {quoted(entity_type)} is given more than once")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {quoted(entity_type)}")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise invalid_request(f"unknown match type {component.match_type}; use 0 (exact), 1 (default) or 2 (any)")
        if (match is None) == (component.match_type == EXACT):
            given = "none is given" if match is None else f"{quoted(match)} is given"
            raise invalid_request(
                f"a match of type {component.match_type} {'needs a' if match is None else 'has no'} name, but {given}"
            )
        wanted[entity_type] = component
    if IP in wanted and len(wanted) > 1:
        raise invalid_request("ip cannot be combined with user or client-id; ask for those in another request")
    return wanted


def _matches(entity: Mapping[str, str | None], wanted: Mapping[str, ComponentData], is_strict: bool) -> bool:
    if is_strict and len(entity) != len(wanted):
        return False
    return all(
        entity_type in entity and (component.match_type == SPECIFIED or entity[entity_type] == component.match)
        for entity_type, component in wanted.items()
    )


class AlterClientQuotasApi:
    """Handles AlterClientQuotas."""

    def __init__(self, services: BrokerServices) -> None:
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered. Repeated entries for one entity are altered and answered as one."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(AlterClientQuotasRequest, request.body)
        answers: dict[Entity, ResponseEntryData] = {}
        alterations: list[admin_pb2.ClientQuotaAlteration] = []
        for entry in body.entries:
            parts = entry.entity[:PARTS_MAX]
            given = _in_order((part.entity_type, part.entity_name) for part in parts)
            answers[given] = _altered(given, ErrorCode.NONE, None)
            yield
            named = [QuotaEntity(entity_type=part.entity_type, entity_name=part.entity_name) for part in parts]
            for change in entry.ops:
                value = None if change.remove else change.value
                alterations.append(admin_pb2.ClientQuotaAlteration(entity=named, key=change.key, value=value))
                yield

        def answer(result: admin_pb2.OperationResult | ApiError | None) -> Steps:
            if isinstance(result, ApiError):
                for entity in answers:
                    answers[entity] = _altered(entity, result.code, text_of(result))
                    yield
            elif result is not None:
                for found in result.alter_client_quotas.results:
                    entity = _entity(found.entity)
                    answers[entity] = _altered(entity, found.error_code, message_of(found))
                    yield
            reply(AlterClientQuotasResponse(entries=tuple(answers.values())))

        if not alterations:
            yield from answer(None)
            return
        changes = admin_pb2.AlterClientQuotasRequest(alterations=alterations, validate_only=body.validate_only)
        operation = admin_pb2.Operation(client_id=request.context.client_id, alter_client_quotas=changes)
        self._controller.submit(
            operation, TIMEOUT_MS_DEFAULT, lambda result: request.slices.run(answer(result)), retry_unknown=True
        )


def _entity(parts: Sequence[QuotaEntity]) -> Entity:
    return _in_order((part.entity_type, part.entity_name if part.HasField("entity_name") else None) for part in parts)


def _in_order(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return an entity's parts in a fixed order: in any order they name the same entity."""
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def _altered(entity: Entity, code: int, message: str | None) -> ResponseEntryData:
    kind = alter_client_quotas.EntityData
    return ResponseEntryData(
        error_code=code,
        error_message=message,
        entity=tuple(kind(entity_type=entity_type, entity_name=name) for entity_type, name in entity),
    )
