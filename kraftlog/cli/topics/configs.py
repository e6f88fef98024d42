"""`kraftlog configs`: describe and alter the configs of topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import print_result, print_rows

app = typer.Typer(help="Configs of topics and brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("Name", "Value")
SOURCED_COLUMNS = (*COLUMNS, "Source")
ALL_COLUMNS = ("Entity", *COLUMNS)
ALTER_OPTIONS = ("--add-config", "--append-config", "--subtract-config", "--delete-config")


class EntityType(StrEnum):
    """The types of entities that have configs."""

    TOPICS = "topics"
    BROKERS = "brokers"


EntityTypeOption = Annotated[
    EntityType,
    typer.Option("--entity-type", help="The type of the entity. For users, clients and addresses: kraftlog quotas."),
]
EntityNameOption = Annotated[
    str | None,
    typer.Option("--entity-name", help="A topic's name or a broker's id; empty: the default of all brokers."),
]
EntityDefaultOption = Annotated[
    bool, typer.Option("--entity-default", help="Instead of a name: the default of all brokers.")
]


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    entity_type: EntityTypeOption,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
    all_configs: Annotated[
        bool, typer.Option("--all", help="Also configs that are not set, with the value in effect and where it is set.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the configs that are set, or all. Without a name: those of every topic, or broker, that has any.

    With --all the source is TOPIC, BROKER, CLUSTER_DEFAULT (set for all brokers) or DEFAULT (set nowhere). For a topic,
    what is set for one broker only is not shown: it applies where that broker leads.
    """
    if entity_name is None and not entity_default:
        if all_configs:
            raise typer.BadParameter("give it with --entity-name or --entity-default", param_hint="--all")
        from kraftlog.commands.admin import all_config_listing

        of_all = run_async(all_config_listing(endpoints(bootstrap_server), entity_type.value))
        print_rows(ALL_COLUMNS, of_all, output)
        return
    name = _entity_name(entity_type, entity_name, is_default=entity_default)
    if all_configs:
        from kraftlog.commands.config_admin import sourced_config_listing

        sourced = run_async(sourced_config_listing(endpoints(bootstrap_server), entity_type.value, name))
        print_rows(SOURCED_COLUMNS, sourced, output)
        return
    from kraftlog.commands.admin import config_listing

    found = run_async(config_listing(endpoints(bootstrap_server), entity_type.value, name))
    print_rows(COLUMNS, found, output)


@app.command()
def alter(
    bootstrap_server: BootstrapServer,
    entity_type: EntityTypeOption,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,
    add: Annotated[list[str] | None, typer.Option("--add-config", metavar="KEY=VALUE", help="Set a config.")] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append-config", metavar="KEY=V1,V2", help="Add elements to a config that is a list."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract-config", metavar="KEY=V1,V2", help="Remove elements from a config that is a list."),
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Unset a config.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set, unset, append to and subtract from configs, all or none. Reports configs that already had the value."""
    from kraftlog.commands.admin import parse_configs
    from kraftlog.commands.config_admin import change_configs, check_one_each, config_changes
    from statemachine.query.cluster_descriptions import ConfigChangeKind

    if not (add or append or subtract or delete):
        raise typer.BadParameter("give at least one of them", param_hint=" / ".join(ALTER_OPTIONS))
    name = _entity_name(entity_type, entity_name, is_default=entity_default)
    values = {
        ConfigChangeKind.SET: usage(check_one_each, usage(parse_configs, add or [], "--add-config"), "--add-config"),
        ConfigChangeKind.APPEND: usage(parse_configs, append or [], "--append-config"),
        ConfigChangeKind.SUBTRACT: usage(parse_configs, subtract or [], "--subtract-config"),
        ConfigChangeKind.DELETE: dict.fromkeys(delete or [], ""),
    }
    changes = usage(lambda of: config_changes(entity_type.value, name, of), values, " / ".join(ALTER_OPTIONS))
    outcomes = run_async(change_configs(endpoints(bootstrap_server), changes))
    entity = f"{entity_type.value.removesuffix('s')} {name}" if name else "the brokers' default"
    altered = sum(outcome.is_altered for outcome in outcomes)
    lines = [f"Altered {'1 config' if altered == 1 else f'{altered} configs'} of {entity}."] if altered else []
    lines += [outcome.unaltered(entity) for outcome in outcomes if not outcome.is_altered]
    result = {"EntityType": entity_type.value, "EntityName": name, "Configs": [outcome.row() for outcome in outcomes]}
    print_result(result, lines, output)


def _entity_name(entity_type: EntityType, name: str | None, *, is_default: bool) -> str:
    """The name that the options give, empty for the default of all brokers. Raises a usage error unless one does."""
    hint = "--entity-name / --entity-default"
    if (name is not None) == is_default:
        raise typer.BadParameter("give one of them, to say whose configs are meant", param_hint=hint)
    if not name and entity_type is EntityType.TOPICS:
        raise typer.BadParameter(
            "topics have no default entity; name a topic, or use --entity-type brokers", param_hint=hint
        )
    return name or ""
