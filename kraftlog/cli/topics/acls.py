"""`kraftlog acls`: access control entries, with the options of kafka-acls."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.confirmation import check_can_ask, confirm
from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import note, print_json, print_rows, say

if TYPE_CHECKING:
    from kraftlog.commands.acl_arguments import AclArguments, Resource

app = typer.Typer(help="Access control entries.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("ResourceType", "ResourceName", "PatternType", "Principal", "Host", "Operation", "PermissionType")
NOT_ENFORCED = "the entries are stored, but not yet enforced: every client may do everything"
RESOURCE_OPTIONS = "--topic / --group / --transactional-id / --delegation-token / --user-principal"


class StoredPattern(StrEnum):
    """How an entry's name matches."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class SoughtPattern(StrEnum):
    """How the name of a filter matches."""

    LITERAL = "literal"
    PREFIXED = "prefixed"
    MATCH = "match"
    ANY = "any"


Topics = Annotated[list[str] | None, typer.Option("--topic", help="A topic; * is all. May be given again.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A consumer group; * is all.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TransactionalIds = Annotated[list[str] | None, typer.Option("--transactional-id", help="A transactional id.")]
DelegationTokens = Annotated[list[str] | None, typer.Option("--delegation-token", help="A delegation token.")]
Users = Annotated[list[str] | None, typer.Option("--user-principal", help="A user, as the owner of delegation tokens.")]
AllowPrincipals = Annotated[
    list[str] | None,
    typer.Option("--allow-principal", metavar="TYPE:NAME", help="A principal to allow, such as User:alice."),
]
DenyPrincipals = Annotated[
    list[str] | None,
    typer.Option("--deny-principal", metavar="TYPE:NAME", help="A principal to deny, such as User:mallory."),
]
AllowHosts = Annotated[list[str] | None, typer.Option("--allow-host", help="A host to allow from; default: all hosts.")]
DenyHosts = Annotated[list[str] | None, typer.Option("--deny-host", help="A host to deny from; default: all hosts.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", help="Such as Read or DescribeConfigs; default: All. May be given again."),
]
Producer = Annotated[
    bool, typer.Option("--producer", help="The operations that a producer needs on topics and transactional ids.")
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="The operations that a consumer needs on topics and groups.")
]
Idempotent = Annotated[bool, typer.Option("--idempotent", help="With --producer: IdempotentWrite on the cluster.")]


@app.command("list")
def list_acls(
    bootstrap_server: BootstrapServer,
    principal: Annotated[
        list[str] | None, typer.Option("--principal", metavar="TYPE:NAME", help="Only theirs.")
    ] = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: Users = None,
    pattern_type: Annotated[
        SoughtPattern, typer.Option("--resource-pattern-type", help="match: every pattern that matches the names.")
    ] = SoughtPattern.LITERAL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List entries: all, or those of the named resources and principals."""
    from kraftlog.commands.acl_arguments import listing_filters, parse_principal
    from kraftlog.commands.cluster_admin import acl_listing
    from statemachine.query.cluster_descriptions import PatternType

    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    principals = [usage(parse_principal, text, "--principal") for text in principal or []]
    filters = listing_filters(resources, PatternType[pattern_type.name], principals)
    print_rows(COLUMNS, run_async(acl_listing(endpoints(bootstrap_server), filters)), output)


@app.command()
def add(
    bootstrap_server: BootstrapServer,
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: Users = None,
    pattern_type: Annotated[
        StoredPattern, typer.Option("--resource-pattern-type", help="prefixed: every name that begins with it.")
    ] = StoredPattern.LITERAL,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add entries: each principal, with each of its hosts, each operation and each resource. Existing entries stay. The
    entries are not yet enforced.
    """
    from kraftlog.commands.acl_arguments import entries_of
    from kraftlog.commands.cluster_admin import add_acls

    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    who = (allow_principal, deny_principal, allow_host, deny_host)
    arguments = _arguments(resources, pattern_type, who, operation, (producer, consumer, idempotent))
    entries = usage(entries_of, arguments, "acls add")
    print_rows(COLUMNS, run_async(add_acls(endpoints(bootstrap_server), entries)), output)
    note(NOT_ENFORCED)


@app.command()
def remove(
    bootstrap_server: BootstrapServer,
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: DelegationTokens = None,
    user_principal: Users = None,
    pattern_type: Annotated[
        SoughtPattern, typer.Option("--resource-pattern-type", help="match: every pattern that matches the names.")
    ] = SoughtPattern.LITERAL,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    yes: Annotated[bool, typer.Option("--yes", "--force", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove what `acls add` adds with the same options; without principals, every entry of the resources."""
    from kraftlog.commands.acl_arguments import removal_filters
    from kraftlog.commands.cluster_admin import acl_listing, remove_acls

    resources = _resources(topic, group, cluster, transactional_id, delegation_token, user_principal)
    who = (allow_principal, deny_principal, allow_host, deny_host)
    arguments = _arguments(resources, pattern_type, who, operation, (producer, consumer, idempotent))
    filters = usage(removal_filters, arguments, "acls remove")
    addresses = endpoints(bootstrap_server)
    if not yes:
        check_can_ask(output)
        found = run_async(acl_listing(addresses, filters))
        if found:
            print_rows(COLUMNS, found, output)
            sys.stdout.flush()
            confirm(f"Remove {_entries(len(found))}?")
    removed = run_async(remove_acls(addresses, filters))
    if output is Output.JSON:
        print_json(removed)
        return
    if yes:
        print_rows(COLUMNS, removed, output)
    say(f"Removed {_entries(len(removed))}.")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _resources(
    topics: list[str] | None,
    groups: list[str] | None,
    cluster: bool,
    transactional_ids: list[str] | None,
    delegation_tokens: list[str] | None,
    users: list[str] | None,
) -> list[Resource]:
    from kraftlog.commands.acl_arguments import resources_of

    def parse(is_about_cluster: bool) -> list[Resource]:
        return resources_of(
            topics=topics or [],
            groups=groups or [],
            cluster=is_about_cluster,
            transactional_ids=transactional_ids or [],
            delegation_tokens=delegation_tokens or [],
            users=users or [],
        )

    return usage(parse, cluster, RESOURCE_OPTIONS)


def _arguments(
    resources: list[Resource],
    pattern_type: StoredPattern | SoughtPattern,
    who: tuple[list[str] | None, list[str] | None, list[str] | None, list[str] | None],
    operations: list[str] | None,
    roles: tuple[bool, bool, bool],
) -> AclArguments:
    """`who` are principals to allow and to deny, then hosts; `roles`: producer, consumer, idempotent."""
    from kraftlog.commands.acl_arguments import AclArguments, parse_operation, parse_principal
    from statemachine.query.cluster_descriptions import PatternType

    allow_principals, deny_principals, allow_hosts, deny_hosts = (tuple(of or ()) for of in who)
    is_producer, is_consumer, is_idempotent = roles
    return AclArguments(
        resources=resources,
        pattern_type=PatternType[pattern_type.name],
        allow_principals=[usage(parse_principal, text, "--allow-principal") for text in allow_principals],
        deny_principals=[usage(parse_principal, text, "--deny-principal") for text in deny_principals],
        allow_hosts=allow_hosts,
        deny_hosts=deny_hosts,
        operations=[usage(parse_operation, text, "--operation") for text in operations or []],
        is_producer=is_producer,
        is_consumer=is_consumer,
        is_idempotent=is_idempotent,
    )
