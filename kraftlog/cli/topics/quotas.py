"""`kraftlog quotas`: limits for users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import print_result, print_rows

if TYPE_CHECKING:
    from statemachine.query.cluster_descriptions import QuotaEntityPart

app = typer.Typer(help="Client quotas.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("Entity", "Quota", "Value")

User = Annotated[str | None, typer.Option("--user", help="A user's name.")]
UserDefault = Annotated[bool, typer.Option("--user-default", help="All users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="A client id, of any user or of the one named.")]
ClientIdDefault = Annotated[
    bool, typer.Option("--client-id-default", help="All client ids without a quota of their own.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="An address.")]
IpDefault = Annotated[bool, typer.Option("--ip-default", help="All addresses without a quota of their own.")]


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show quotas: all, or those of the named user, client id or address, whatever other parts their entity has."""
    from kraftlog.commands.cluster_admin import quota_listing

    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    print_rows(COLUMNS, run_async(quota_listing(endpoints(bootstrap_server), entity)), output)


@app.command()
def alter(
    bootstrap_server: BootstrapServer,
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    add: Annotated[list[str] | None, typer.Option("--add-config", metavar="KEY=NUMBER", help="Set a quota.")] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Remove a quota.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set and remove quotas of one entity, all or none.

    Of users and client ids: producer_byte_rate, consumer_byte_rate, controller_mutation_rate (each per second) and
    request_percentage; of addresses: connection_creation_rate.
    """
    from kraftlog.commands.cluster_admin import alter_client_quotas, quota_alterations, shown_entity, shown_number

    entity = _entity(user, user_default, client_id, client_id_default, ip, ip_default)
    alterations = usage(
        lambda added: quota_alterations(entity, added, delete or []), add or [], "--add-config / --delete-config"
    )
    altered = run_async(alter_client_quotas(endpoints(bootstrap_server), alterations))
    whose = shown_entity(entity)
    lines = [f"Altered {'1 quota' if len(altered) == 1 else f'{len(altered)} quotas'} of {whose}."] if altered else []
    for same in (alteration for alteration in alterations if alteration not in altered):
        found = "was not set" if same.value is None else f"was already {shown_number(same.value)}"
        lines.append(f"{same.key} of {whose} {found}; nothing was changed.")
    quotas = [{"Quota": of.key, "Value": of.value, "Altered": of in altered} for of in alterations]
    print_result({"Entity": whose, "Quotas": quotas}, lines, output)


def _entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> tuple[QuotaEntityPart, ...]:
    from kraftlog.commands.cluster_admin import quota_entity

    defaults = {"user": user_default, "client-id": client_id_default, "ip": ip_default}
    names = {"user": user, "client-id": client_id, "ip": ip}
    return usage(lambda of: quota_entity(of, defaults), names, "--user / --client-id / --ip")
