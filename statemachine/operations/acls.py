"""CreateAcls: from a request and the latest state to records and an answer; and which entries filters match.

Nothing changes here.

Numbers are Kafka's (AclOperation, AclPermissionType, PatternType, and its ResourceType, which is not that of configs).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import takewhile
from random import Random
from typing import Any, Final

from kraftpb.v1.admin_pb2 import (
    AclFilter,
    AclResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord, MetadataRecord
from raft.core.errors import ErrorCode, ProtocolError
from statemachine.cluster_tables import ACL_CONTENT, ACLS, acl_content
from statemachine.ids import random_id
from statemachine.limits import check_record_count
from statemachine.names import check_name_lengths, quoted
from statemachine.operations.finding import about
from statemachine.state import MetadataState
from statemachine.table import Key

ANY: Final = 1
"""In filters: whatever it is."""

TOPIC, CLUSTER, USER = 2, 4, 7
RESOURCE_TYPES: Final = range(TOPIC, USER + 1)
"""2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user."""

MATCH, LITERAL, PREFIXED = 2, 3, 4
PATTERN_TYPES: Final = range(LITERAL, PREFIXED + 1)

OPERATIONS: Final = range(2, 16)
"""2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter
configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two-phase commit."""

DENY, ALLOW = 2, 3
PERMISSION_TYPES: Final = range(DENY, ALLOW + 1)

WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource of the type."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of its type."""


# --- CreateAcls -------------------------------------------------------------------------------------------------------


def create_acls(
    state: MetadataState, request: CreateAclsRequest, random: Random
) -> tuple[list[MetadataRecord], CreateAclsResponse]:
    """The records that create the valid entries, and an answer for each entry, in their order (CT-63).

    Each gets a random id, whatever id the request says. One that is there already, or twice in the request, makes no
    record and is answered with the id that it has. Raises ProtocolError(RECORD_LIST_TOO_LARGE) if there are too many
    for one batch (CT-12), INVALID_REQUEST if a name is far too long.
    """
    check_record_count(len(request.entries))
    for entry in request.entries:
        check_name_lengths((entry.resource_name, entry.principal, entry.host))
    ids: dict[Key, bytes] = {}
    """Of the entries that the request creates, by what they say."""
    records: list[MetadataRecord] = []
    response = CreateAclsResponse()
    for entry in request.entries:
        try:
            with about(f"the entry for {quoted(entry.principal)} on {quoted(entry.resource_name)}"):
                check_acl(entry)
        except ProtocolError as error:
            response.results.add(error_code=error.code, error_message=error.args[0])
            continue
        content, existing = acl_content(entry), state.acl_like(entry)
        if existing is not None:
            ids[content] = existing.id
        elif content not in ids:
            created = AccessControlEntryRecord()
            created.CopyFrom(entry)
            created.id = ids[content] = _new_id(state, random)
            records.append(MetadataRecord(access_control_entry=created))
        response.results.append(AclResult(id=ids[content]))
    return records, response


def check_acl(entry: AccessControlEntryRecord) -> None:
    """Raise ProtocolError(INVALID_REQUEST) unless there can be such an entry."""
    _check_number("resource type", entry.resource_type, RESOURCE_TYPES)
    _check_number("pattern type", entry.pattern_type, PATTERN_TYPES)
    _check_number("operation", entry.operation, OPERATIONS)
    _check_number("permission type", entry.permission_type, PERMISSION_TYPES)
    if not entry.resource_name:
        raise _invalid("the resource name is empty; give one, or * for all")
    if entry.resource_type == CLUSTER and entry.resource_name != CLUSTER_NAME:
        raise _invalid(f"the cluster's resource name is {CLUSTER_NAME}, not {quoted(entry.resource_name)}")
    principal_type, _, principal_name = entry.principal.partition(":")
    if not principal_type or not principal_name:
        raise _invalid(f"{quoted(entry.principal)} is no principal; give its type and its name, such as User:alice")
    if not entry.host:
        raise _invalid("the host is empty; give an address, or * for all")


def _new_id(state: MetadataState, random: Random) -> bytes:
    while True:
        new_id = random_id(random)
        if state.acl_with_id(new_id) is None:
            return new_id


# --- filters ----------------------------------------------------------------------------------------------------------


def describe_acls(
    connection: sqlite3.Connection, acl_filter: AclFilter
) -> Generator[AccessControlEntryRecord, None, None]:
    """The committed entries that the filter matches, by id, one after the other.

    Raises ProtocolError(INVALID_REQUEST) if it is none.
    """
    matches = _matcher(acl_filter)
    return (entry for _, entry in ACLS.find(connection) if matches(entry))


def matching_acls(entries: Iterable[AccessControlEntryRecord], acl_filter: AclFilter) -> list[AccessControlEntryRecord]:
    """The entries that the filter matches, in their order; raises ProtocolError(INVALID_REQUEST) if it is none."""
    return list(filter(_matcher(acl_filter), entries))


def _matcher(acl_filter: AclFilter) -> Callable[[AccessControlEntryRecord], bool]:
    """Whether an entry is one that the filter matches."""
    wanted = _wanted(acl_filter)
    pattern_type: int = wanted.pop("pattern_type", ANY)
    resource_name: str | None = wanted.pop("resource_name", None)

    def matches(entry: AccessControlEntryRecord) -> bool:
        return all(getattr(entry, field) == value for field, value in wanted.items()) and _pattern_matches(
            entry, pattern_type, resource_name
        )

    return matches


def content_prefix(acl_filter: AclFilter) -> Key:
    """What the content of every entry begins with that the filter matches, as in `ACLS_BY_CONTENT`.

    Raises ProtocolError(INVALID_REQUEST) if it is none.
    """
    wanted = _wanted(acl_filter)
    if wanted.get("pattern_type") == MATCH:
        wanted.pop("resource_name", None)  # patterns of other names may match it
    return tuple(wanted[field] for field in takewhile(wanted.__contains__, ACL_CONTENT))


def _wanted(acl_filter: AclFilter) -> dict[str, Any]:
    """The fields that the filter is about and their values; raises ProtocolError(INVALID_REQUEST)."""
    wanted: dict[str, Any] = {field.name: value for field, value in acl_filter.ListFields()}
    for field, (what, numbers) in _NUMBERS.items():
        if field in wanted:
            _check_number(what, wanted[field], numbers)
            if wanted[field] == ANY:
                del wanted[field]
    return wanted


def _pattern_matches(entry: AccessControlEntryRecord, pattern_type: int, resource_name: str | None) -> bool:
    """Whether the entry's pattern is sought: Kafka's ResourcePatternFilter.

    MATCH stands for every pattern that covers the resource of that name; ANY for both types with exactly that name.
    """
    if pattern_type not in (ANY, MATCH, entry.pattern_type):
        return False
    if resource_name is None or resource_name == entry.resource_name:
        return True
    if pattern_type != MATCH:
        return False
    if entry.pattern_type == LITERAL:
        return entry.resource_name == WILDCARD
    return resource_name.startswith(entry.resource_name)


_NUMBERS: Final[dict[str, tuple[str, Sequence[int]]]] = {
    "resource_type": ("resource type", (ANY, *RESOURCE_TYPES)),
    "pattern_type": ("pattern type", (ANY, MATCH, *PATTERN_TYPES)),
    "operation": ("operation", (ANY, *OPERATIONS)),
    "permission_type": ("permission type", (ANY, *PERMISSION_TYPES)),
}
"""The numbers that filters take, by field."""


def _check_number(what: str, number: int, numbers: Sequence[int]) -> None:
    if number not in numbers:
        raise _invalid(f"the {what} is {number}; it must be between {numbers[0]} and {numbers[-1]}")


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(ErrorCode.INVALID_REQUEST, reason)
