"""DescribeClientQuotas and AlterClientQuotas; DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages import alter_client_quotas
from kraftlog.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, OpData
from kraftlog.kafka.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kraftlog.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from kraftlog.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftlog.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.kraftlog.broker.administration.world import AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXACT, DEFAULT, SPECIFIED = range(3)
RATE = "producer_byte_rate"

Entity = tuple[tuple[str, str | None], ...]
Acl = tuple[int, str, int, str, str, int, int]
"""Resource type, name and pattern type; principal, host, operation and permission type."""


async def limited(
    world: AdministrationWorld, *entries: tuple[Entity, dict[str, float | None]], version: int = 1,
    validate_only: bool = False,
) -> list[tuple[Entity, int]]:  # fmt: skip
    body = AlterClientQuotasRequest(
        entries=tuple(
            alter_client_quotas.EntryData(
                entity=tuple(alter_client_quotas.EntityData(entity_type=of, entity_name=name) for of, name in entity),
                ops=tuple(
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
                ),
            )
            for entity, quotas in entries
        ),
        validate_only=validate_only,
    )  # fmt: skip
    response = await world.answer(body, version, AlterClientQuotasResponse)
    await world.settle()
    assert all(bool(entry.error_message) == bool(entry.error_code) for entry in response.entries)
    return [
        (tuple((part.entity_type, part.entity_name) for part in entry.entity), entry.error_code)
        for entry in response.entries
    ]


async def quotas(
    world: AdministrationWorld, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[Entity, dict[str, float]] | int:
    """By entity, or the error."""
    body = DescribeClientQuotasRequest(
        components=tuple(ComponentData(entity_type=of, match_type=kind, match=name) for of, kind, name in components),
        strict=strict,
    )
    response = await world.answer(body, version, DescribeClientQuotasResponse)
    if response.entries is None:
        assert response.error_message
        return response.error_code
    assert response.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def user(name: str | None) -> Entity:
    return (("user", name),)


@pytest.mark.parametrize("version", range(2))
async def test_quotas_are_set_found_and_removed(world: AdministrationWorld, version: int) -> None:
    alice, everybody, both = user(f"alice{version}"), user(None), (("client-id", "app"), ("user", f"alice{version}"))
    values: dict[str, float | None] = {RATE: 5.0, "consumer_byte_rate": 6.0}
    assert await limited(world, (alice, values), version=version, validate_only=True) == [(alice, 0)]
    assert await quotas(world, version=version) == {}
    entries = ((alice, values), (everybody, {RATE: 7.0}), (both, {RATE: 8.0}))
    assert await limited(world, *entries, version=version) == [(entity, 0) for entity, _ in entries]
    exact, name = ("user", EXACT, f"alice{version}"), f"alice{version}"
    assert await quotas(world, exact, version=version) == {alice: values, both: {RATE: 8.0}}
    assert await quotas(world, exact, strict=True, version=version) == {alice: values}
    assert await quotas(world, ("user", DEFAULT, None), version=version) == {everybody: {RATE: 7.0}}
    found = await quotas(world, ("user", SPECIFIED, None), ("client-id", EXACT, "app"), version=version)
    assert found == {both: {RATE: 8.0}}, name
    assert await quotas(world, ("ip", SPECIFIED, None), version=version) == {}
    assert await limited(world, *[(entity, dict.fromkeys(given)) for entity, given in entries], version=version)
    assert await quotas(world, version=version) == {}


async def test_each_entity_that_cannot_be_limited_has_its_own_error(world: AdministrationWorld) -> None:
    entries: list[tuple[Entity, dict[str, float | None]]] = [
        (user("bob"), {RATE: 5.0}),
        (user("carol"), {"no_such_rate": 5.0}),
        (user("dave"), {RATE: -1.0}),
        ((("planet", "mars"),), {RATE: 5.0}),
        (user("erin"), {}),
    ]
    invalid = ErrorCode.INVALID_REQUEST
    results = dict(await limited(world, *entries))
    assert [results[entity] for entity, _ in entries] == [0, invalid, invalid, invalid, 0]
    assert await quotas(world) == {user("bob"): {RATE: 5.0}}
    await limited(world, (user("bob"), {RATE: None}))
    assert await limited(world, (user("erin"), {})) == [(user("erin"), 0)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "alice"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "mars")], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: AdministrationWorld, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert await quotas(world, *components) == code


# --- ACLs -------------------------------------------------------------------------------------------------------------

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
READ, WRITE, ALLOW = 3, 4, 3

FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")


def acl(name: str, *, pattern: int = LITERAL, operation: int = READ, kind: int = TOPIC) -> Acl:
    return kind, name, pattern, "User:alice", "*", operation, ALLOW


async def allowed(world: AdministrationWorld, *acls: Acl, version: int = 3) -> list[int]:
    creations = tuple(
        AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=pattern, principal=principal, host=host,
            operation=operation, permission_type=permission,
        )
        for kind, name, pattern, principal, host, operation, permission in acls
    )  # fmt: skip
    response = await world.answer(CreateAclsRequest(creations=creations), version, CreateAclsResponse)
    await world.settle()
    return [result.error_code for result in response.results]


def wanted(name: str | None, pattern: int = LITERAL, *, kind: int = TOPIC, operation: int = ANY) -> dict[str, Any]:
    return {
        "resource_type_filter": kind, "resource_name_filter": name, "pattern_type_filter": pattern,
        "principal_filter": None, "host_filter": None, "operation": operation, "permission_type": ANY,
    }  # fmt: skip


async def known(world: AdministrationWorld, given: dict[str, Any], version: int = 3) -> set[Acl] | int:
    """The entries that a filter matches, or the error."""
    response = await world.answer(DescribeAclsRequest(**given), version, DescribeAclsResponse)
    if response.error_code:
        assert response.error_message
        return response.error_code
    return {
        (of.resource_type, of.resource_name, of.pattern_type, one.principal, one.host, one.operation,
         one.permission_type)
        for of in response.resources
        for one in of.acls
    }  # fmt: skip


async def deleted(world: AdministrationWorld, *given: dict[str, Any], version: int = 3) -> list[tuple[int, set[Acl]]]:
    """Of each filter the error, and the entries that it has matched."""
    body = DeleteAclsRequest(filters=tuple(DeleteAclsFilter(**one) for one in given))
    response = await world.answer(body, version, DeleteAclsResponse)
    await world.settle()
    return [
        (found.error_code, {tuple(getattr(one, field) for field in FIELDS) for one in found.matching_acls})  # type: ignore[misc]
        for found in response.filter_results
    ]


@pytest.mark.parametrize("version", range(1, 4))
async def test_entries_are_created_found_and_deleted(world: AdministrationWorld, version: int) -> None:
    name = f"secret-{version}"
    read, write, prefixed = acl(name), acl(name, operation=WRITE), acl(name[:-1], pattern=PREFIXED)
    assert await allowed(world, read, write, prefixed, read, version=version) == [0, 0, 0, 0]
    assert await known(world, wanted(name), version) == {read, write}
    assert await known(world, wanted(name, operation=WRITE), version) == {write}
    assert await known(world, wanted(name, MATCH), version) == {read, write, prefixed}
    assert await known(world, wanted(None, ANY, kind=ANY), version) == {read, write, prefixed}
    assert await deleted(world, wanted(name), wanted(name, MATCH), wanted("other"), version=version) == [
        (0, {read, write}),
        (0, {read, write, prefixed}),
        (0, set()),
    ]
    assert await known(world, wanted(None, ANY, kind=ANY), version) == set()


async def test_each_entry_and_filter_that_is_none_has_its_own_error(world: AdministrationWorld) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    good, nobody = acl("good"), (*acl("nobody")[:3], "alice", *acl("nobody")[4:])
    codes = await allowed(
        world, good, acl(""), acl("cluster", kind=CLUSTER), acl("any", pattern=ANY), acl("op", operation=0), nobody
    )  # fmt: skip
    assert codes == [0, *[invalid] * 5]
    assert await known(world, wanted("good", 0)) == invalid
    assert await deleted(world, wanted("good", 0), wanted("good")) == [(invalid, set()), (0, {good})]
