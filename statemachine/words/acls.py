"""Numbers and names of access control, and whether an entry is valid.

Numbers are Kafka's (AclOperation, AclPermissionType, PatternType, and its ResourceType, which is not that of
configs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftbase.errors import invalid_request
from kraftpb.v1.metadata_pb2 import AccessControlEntryRecord
from statemachine.words.names import quoted

ANY: Final = 1
"""In filters: any."""


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


def check_acl(entry: AccessControlEntryRecord) -> None:
    """Raise ApiError(INVALID_REQUEST) unless the entry is valid."""
    check_number("resource type", entry.resource_type, RESOURCE_TYPES)
    check_number("pattern type", entry.pattern_type, PATTERN_TYPES)
    check_number("operation", entry.operation, OPERATIONS)
    check_number("permission type", entry.permission_type, PERMISSION_TYPES)
    if not entry.resource_name:
        raise invalid_request("the resource name is empty; give one, or * for all")
    if entry.resource_type == CLUSTER and entry.resource_name != CLUSTER_NAME:
        raise invalid_request(f"the cluster's resource name is {CLUSTER_NAME}, not {quoted(entry.resource_name)}")
    principal_type, _, principal_name = entry.principal.partition(":")
    if not principal_type or not principal_name:
        raise invalid_request(
            f"{quoted(entry.principal)} is no principal; give its type and its name, such as User:alice"
        )
    if not entry.host:
        raise invalid_request("the host is empty; give an address, or * for all")


def check_number(what: str, number: int, numbers: Sequence[int]) -> None:
    """Raise ApiError(INVALID_REQUEST) unless `number` is one of `numbers`, which have no gaps."""
    if number not in numbers:
        raise invalid_request(f"the {what} is {number}; it must be between {numbers[0]} and {numbers[-1]}")
