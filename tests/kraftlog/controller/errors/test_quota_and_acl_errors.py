"""What AlterClientQuotas, CreateAcls and DeleteAcls refuse (CT-63)."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import AclFilter, Operation
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, QuotaEntity
from tests.kraftlog.controller.errors.cases import Case, provokes, refused
from tests.kraftlog.controller.errors.world import World, running_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = 10_001


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Nothing."""
    async with running_world(tmp_path_factory.mktemp("quotas-and-acls")) as world:
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """More access control entries than one batch can remove."""
    async with running_world(tmp_path_factory.mktemp("many-acls")) as world:
        entries = [entry(resource_name=f"topic-{number}") for number in range(MANY)]
        await world.done(creating(*entries[:5_000]), creating(*entries[5_000:]))
        yield world


# --- quotas -----------------------------------------------------------------------------------------------------------


def limiting(
    key: str, value: float | None, *entity: tuple[str, str | None], repeated: int = 1, validate_only: bool = False
) -> Operation:
    alteration = admin_pb2.ClientQuotaAlteration(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity], key=key, value=value
    )
    request = admin_pb2.AlterClientQuotasRequest(alterations=[alteration] * repeated, validate_only=validate_only)
    return Operation(alter_client_quotas=request)


ALICE = ("user", "alice")
RATE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"

QUOTAS = [
    Case(f"CT-63: quota of {what}", ErrorCode.INVALID_REQUEST, operation, *words)
    for what, operation, *words in (
        ("no entity", limiting(RATE, 1), "entity is empty"),
        ("an unknown type", limiting(RATE, 1, ("planet", "mars")), "'planet'"),
        ("an empty name", limiting(RATE, 1, ("user", "")), "user", "empty name"),
        ("two of a type", limiting(RATE, 1, ALICE, ("user", "bob")), "more than one user"),
        ("an ip and others", limiting(RATE, 1, ALICE, ("ip", "192.0.2.1")), "'alice'", "'192.0.2.1'", "only part"),
        ("no address", limiting(CONNECTIONS, 1, ("ip", "localhost")), "'localhost'"),
        ("an unknown key", limiting("speed", 1, ALICE), "user 'alice'", "'speed'"),
        ("an unknown key", limiting(CONNECTIONS, 1, ALICE), "user 'alice'", CONNECTIONS),
        ("an unknown key", limiting(RATE, 1, ("ip", None)), "ip <default>", RATE),
        ("a bad value", limiting(RATE, 0, ALICE), "user 'alice'", RATE, "is 0.0"),
        ("a bad value", limiting(RATE, -1, ALICE), "user 'alice'", RATE, "is -1.0"),
        ("a bad value", limiting(RATE, math.nan, ALICE), "user 'alice'", RATE, "is nan"),
        ("a bad value", limiting(RATE, 1.5, ALICE), "user 'alice'", RATE, "is 1.5"),
        ("a bad value", limiting(CONNECTIONS, 2.0**31, ("ip", None)), "ip <default>", "is 2147483648.0"),
        ("a bad value", limiting(RATE, 0, ALICE, validate_only=True), "user 'alice'", RATE, "is 0.0"),
        ("a key twice", limiting(RATE, 1, ALICE, repeated=2), "user 'alice'", "'producer_byte_rate'"),
    )
]

# --- access control entries -------------------------------------------------------------------------------------------


def entry(**fields: Any) -> AccessControlEntryRecord:
    """A valid one, except for `fields`."""
    right: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "clicks",
        "pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AccessControlEntryRecord(**{**right, **fields})


def creating(*entries: AccessControlEntryRecord) -> Operation:
    return Operation(create_acls=admin_pb2.CreateAclsRequest(entries=entries))


def deleting(*filters: AclFilter) -> Operation:
    return Operation(delete_acls=admin_pb2.DeleteAclsRequest(filters=filters))


ACLS = [
    *[
        Case(f"CT-63: entry with a bad {what}", ErrorCode.INVALID_REQUEST, creating(entry(**fields)), *words)
        for what, fields, *words in (
            ("resource type", {"resource_type": 1}, "'User:alice' on 'clicks'", "resource type is 1"),
            ("resource type", {"resource_type": 8}, "'User:alice' on 'clicks'", "resource type is 8"),
            ("pattern type", {"pattern_type": 2}, "'User:alice' on 'clicks'", "pattern type is 2"),
            ("operation", {"operation": 1}, "'User:alice' on 'clicks'", "operation is 1"),
            ("permission type", {"permission_type": 1}, "'User:alice' on 'clicks'", "permission type is 1"),
            ("resource name", {"resource_name": ""}, "'User:alice'", "resource name is empty"),
            ("resource name", {"resource_type": 4}, "kafka-cluster, not 'clicks'"),
            ("principal", {"principal": "alice"}, "'alice' is no principal"),
            ("host", {"host": ""}, "'User:alice' on 'clicks'", "host is empty"),
        )
    ],
    *[
        Case("CT-63: bad filter", ErrorCode.INVALID_REQUEST, deleting(acl_filter), "filter 1", *words)
        for acl_filter, *words in (
            (AclFilter(resource_type=0), "resource type is 0"),
            (AclFilter(pattern_type=5), "pattern type is 5"),
            (AclFilter(operation=16), "operation is 16"),
            (AclFilter(permission_type=4), "permission type is 4"),
        )
    ],
]

TOO_MANY = [
    Case("CT-63: deletion of too many", ErrorCode.RECORD_LIST_TOO_LARGE, deleting(AclFilter()), "10001", "10000"),
    Case(
        "CT-63: too many filters",
        ErrorCode.INVALID_REQUEST,
        deleting(*[AclFilter(resource_name="none")] * 50),
        "50 filters",
        "500000 comparisons",
    ),
]


@refused([*QUOTAS, *ACLS])
async def test_ct63_a_quota_or_access_control_entry_that_cannot_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


@provokes("CT-63: deletion of too many", ErrorCode.RECORD_LIST_TOO_LARGE)
@provokes("CT-63: too many filters", ErrorCode.INVALID_REQUEST)
async def test_ct63_a_deletion_of_more_than_one_batch_holds_is_refused(crowded: World) -> None:
    for case in TOO_MANY:  # one test: to make so many entries takes longer than both
        await crowded.refuses(case)
