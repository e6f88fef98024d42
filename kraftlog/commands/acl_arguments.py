"""Access control with the options of kafka-acls: from options to entries and filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftbase.errors import ConfigurationError
from statemachine.query.cluster_descriptions import (
    AccessControlEntry,
    AccessControlFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
)

ANYBODY_HOST: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of its type."""

_TOPIC_AND_GROUP: Final = (
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
SUPPORTED_OPERATIONS: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (*_TOPIC_AND_GROUP, AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALTER),
    AclResourceType.GROUP: _TOPIC_AND_GROUP,
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations on a resource, except ALL."""

PRODUCER: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResourceType.GROUP: (AclOperation.READ,),
}
"""What a producer and a consumer need."""


class Resource(NamedTuple):
    """The resources to which access is controlled."""

    resource_type: AclResourceType
    name: str


@dataclass(frozen=True, slots=True)
class AclArguments:
    """The options of `acls add` and `acls remove`, with Kafka's defaults."""

    resources: Sequence[Resource] = ()
    pattern_type: PatternType = PatternType.LITERAL
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    operations: Sequence[AclOperation] = field(default_factory=tuple)
    """None: all operations, as one entry."""
    is_producer: bool = False
    is_consumer: bool = False
    is_idempotent: bool = False
    """With `is_producer`: also allow idempotent writes, which older clusters require."""

    @property
    def has_principals(self) -> bool:
        """Whether the options name a principal."""
        return bool(self.allow_principals or self.deny_principals)


def parse_operation(text: str) -> AclOperation:
    """`DescribeConfigs`, `DESCRIBE_CONFIGS` or `describe-configs`. Raises ConfigurationError."""
    wanted = text.replace("_", "").replace("-", "").lower()
    for operation in AclOperation:
        if operation is not AclOperation.ANY and operation.name.replace("_", "").lower() == wanted:
            return operation
    known = ", ".join(operation.name for operation in AclOperation if operation is not AclOperation.ANY)
    raise ConfigurationError(f"{text!r} is not an operation; use one of {known}")


def parse_principal(text: str) -> str:
    """`User:alice`. Raises ConfigurationError."""
    principal_type, _, name = text.partition(":")
    if not principal_type or not name:
        raise ConfigurationError(f"{text!r} is not a principal; give its type and its name, such as User:alice")
    return text


def resources_of(
    *,
    topics: Iterable[str] = (),
    groups: Iterable[str] = (),
    cluster: bool = False,
    transactional_ids: Iterable[str] = (),
    delegation_tokens: Iterable[str] = (),
    users: Iterable[str] = (),
) -> list[Resource]:
    """The resources that the options name, each once. Raises ConfigurationError for a name that is empty."""
    named = (
        (AclResourceType.TOPIC, topics),
        (AclResourceType.GROUP, groups),
        (AclResourceType.CLUSTER, (CLUSTER_NAME,) if cluster else ()),
        (AclResourceType.TRANSACTIONAL_ID, transactional_ids),
        (AclResourceType.DELEGATION_TOKEN, delegation_tokens),
        (AclResourceType.USER, users),
    )
    resources = [Resource(resource_type, name) for resource_type, names in named for name in names]
    nameless = next((of for of in resources if not of.name), None)
    if nameless is not None:
        what = nameless.resource_type.name.lower().replace("_", " ")
        raise ConfigurationError(f"a {what} has an empty name; give one, or * for all")
    return list(dict.fromkeys(resources))


def entries_of(arguments: AclArguments) -> list[AccessControlEntry]:
    """The entries that the options describe, each once. Raises ConfigurationError that names the option."""
    _check_arguments(arguments)
    entries = [
        AccessControlEntry(
            resource_type=resource.resource_type,
            resource_name=resource.name,
            # There is only one cluster.
            pattern_type=PatternType.LITERAL if resource.name == CLUSTER_NAME else arguments.pattern_type,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission_type,
        )
        for resource, operation in _operations(arguments)
        for permission_type, principal, host in _subjects(arguments)
    ]
    return list(dict.fromkeys(entries))


def removal_filters(arguments: AclArguments) -> list[AccessControlFilter]:
    """The filters of `acls remove`: they match what `add` with the same options adds; without principals, every entry
    of the resources.

    Raises ConfigurationError that names the option.
    """
    if arguments.has_principals:
        return [
            AccessControlFilter(
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            for entry in entries_of(arguments)
        ]
    if not arguments.resources:
        raise ConfigurationError("no resource is named; give --topic, --group, --cluster or another")
    if arguments.operations or arguments.is_producer or arguments.is_consumer or _has_hosts(arguments):
        raise ConfigurationError(
            "an operation, --producer, --consumer or a host needs a principal; add --allow-principal, or leave all"
            " of these out to remove every entry of the resources"
        )
    return listing_filters(arguments.resources, arguments.pattern_type, ())


def listing_filters(
    resources: Sequence[Resource], pattern_type: PatternType, principals: Sequence[str]
) -> list[AccessControlFilter]:
    """The filters of `acls list`: each resource with each principal; an option that is not given filters nothing."""
    of_resources: list[AccessControlFilter] = [
        AccessControlFilter(resource_type=of.resource_type, resource_name=of.name, pattern_type=pattern_type)
        for of in resources
    ] or [AccessControlFilter()]
    return [
        AccessControlFilter(
            resource_type=of.resource_type, resource_name=of.resource_name, pattern_type=of.pattern_type, principal=who
        )
        for of in of_resources
        for who in (principals or (None,))
    ]


def _check_arguments(arguments: AclArguments) -> None:
    if not arguments.has_principals:
        raise ConfigurationError("no principal is named; give --allow-principal or --deny-principal")
    if not arguments.resources:
        raise ConfigurationError("no resource is named; give --topic, --group, --cluster or another")
    if arguments.allow_hosts and not arguments.allow_principals:
        raise ConfigurationError("--allow-host needs --allow-principal; add it")
    if arguments.deny_hosts and not arguments.deny_principals:
        raise ConfigurationError("--deny-host needs --deny-principal; add it")
    given = {of.resource_type for of in arguments.resources}
    if not (arguments.is_producer or arguments.is_consumer):
        if arguments.is_idempotent:
            raise ConfigurationError("--idempotent needs --producer; add it")
        return
    if arguments.operations or arguments.deny_principals:
        raise ConfigurationError(
            "--producer and --consumer stand for operations to allow; leave --operation and --deny-principal out"
        )
    if AclResourceType.TOPIC not in given:
        raise ConfigurationError("--producer and --consumer need a topic; add --topic")
    if arguments.is_consumer and AclResourceType.GROUP not in given:
        raise ConfigurationError("--consumer needs a group; add --group")
    known = {*(PRODUCER if arguments.is_producer else ()), *(CONSUMER if arguments.is_consumer else ())}
    other = next((of for of in arguments.resources if of.resource_type not in known), None)
    if other is not None:
        what = f"{other.resource_type.name} {other.name!r}"
        raise ConfigurationError(f"--producer and --consumer do not cover {what}; add it with --operation")


def _has_hosts(arguments: AclArguments) -> bool:
    return bool(arguments.allow_hosts or arguments.deny_hosts)


def _operations(arguments: AclArguments) -> Iterator[tuple[Resource, AclOperation]]:
    """Which operation on which resource."""
    if arguments.is_producer or arguments.is_consumer:
        for resource in arguments.resources:
            for role, has_role in ((PRODUCER, arguments.is_producer), (CONSUMER, arguments.is_consumer)):
                if has_role:
                    yield from ((resource, operation) for operation in role.get(resource.resource_type, ()))
        if arguments.is_idempotent:
            yield Resource(AclResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE
        return
    for resource in arguments.resources:
        for operation in arguments.operations or (AclOperation.ALL,):
            supported = SUPPORTED_OPERATIONS[resource.resource_type]
            if operation is not AclOperation.ALL and operation not in supported:
                known = ", ".join(of.name for of in (AclOperation.ALL, *supported))
                raise ConfigurationError(
                    f"{operation.name} does not apply to a {resource.resource_type.name}; use {known}"
                )
            yield resource, operation


def _subjects(arguments: AclArguments) -> Iterator[tuple[PermissionType, str, str]]:
    """Principals, hosts, and whether they are allowed or denied."""
    for permission_type, principals, hosts in (
        (PermissionType.ALLOW, arguments.allow_principals, arguments.allow_hosts),
        (PermissionType.DENY, arguments.deny_principals, arguments.deny_hosts),
    ):
        for principal in principals:
            for host in hosts or (ANYBODY_HOST,):
                yield permission_type, principal, host
