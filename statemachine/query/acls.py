"""Which access control entries a filter matches."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import takewhile
from typing import Any, Final

from kraftpb.v1.admin_pb2 import (
    AclFilter,
)
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord
from statemachine.tables.cluster_tables import ACL_CONTENT, ACLS
from statemachine.tables.table import Key
from statemachine.words.acls import (
    ANY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    RESOURCE_TYPES,
    WILDCARD,
    check_number,
)


def describe_acls(
    connection: sqlite3.Connection, acl_filter: AclFilter
) -> Generator[AccessControlEntryRecord, None, None]:
    """The committed entries that the filter matches, by id, one after the other.

    Raises ApiError(INVALID_REQUEST) if the filter is not valid.
    """
    matches = _matcher(acl_filter)
    return (entry for _, entry in ACLS.find(connection) if matches(entry))


def matching_acls(entries: Iterable[AccessControlEntryRecord], acl_filter: AclFilter) -> list[AccessControlEntryRecord]:
    """The entries that the filter matches, in their order; raises ApiError(INVALID_REQUEST) if it is not valid."""
    return list(filter(_matcher(acl_filter), entries))


def _matcher(acl_filter: AclFilter) -> Callable[[AccessControlEntryRecord], bool]:
    """Whether the filter matches an entry."""
    wanted = _wanted(acl_filter)
    pattern_type: int = wanted.pop("pattern_type", ANY)
    resource_name: str | None = wanted.pop("resource_name", None)

    def matches(entry: AccessControlEntryRecord) -> bool:
        return all(getattr(entry, field) == value for field, value in wanted.items()) and _pattern_matches(
            entry, pattern_type, resource_name
        )

    return matches


def content_prefix(acl_filter: AclFilter) -> Key:
    """The beginning of the content of every entry that the filter matches, as in `ACLS_BY_CONTENT`.

    Raises ApiError(INVALID_REQUEST) if the filter is not valid.
    """
    wanted = _wanted(acl_filter)
    if wanted.get("pattern_type") == MATCH:
        wanted.pop("resource_name", None)  # patterns of other names may match it
    return tuple(wanted[field] for field in takewhile(wanted.__contains__, ACL_CONTENT))


def _wanted(acl_filter: AclFilter) -> dict[str, Any]:
    """The fields that the filter names and their values; raises ApiError(INVALID_REQUEST)."""
    wanted: dict[str, Any] = {field.name: value for field, value in acl_filter.ListFields()}
    for field, (what, numbers) in _NUMBERS.items():
        if field in wanted:
            check_number(what, wanted[field], numbers)
            if wanted[field] == ANY:
                del wanted[field]
    return wanted


def _pattern_matches(entry: AccessControlEntryRecord, pattern_type: int, resource_name: str | None) -> bool:
    """Whether the filter matches the entry's pattern, as Kafka's ResourcePatternFilter does.

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
