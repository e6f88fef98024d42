"""`kraftlog configs`: describe and alter the configs of topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.output import print_rows, say

app = typer.Typer(help="Configs of topics and brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("Name", "Value")
SOURCED_COLUMNS = (*COLUMNS, "Source")
ALTER_OPTIONS = ("--add-config", "--append-config", "--subtract-config", "--delete-config")


class EntityType(StrEnum):
    """What has configs."""

    TOPICS = "topics"
    BROKERS = "brokers"


EntityTypeOption = Annotated[EntityType, typer.Option("--entity-type", help="What the configs belong to.")]
EntityNameOption = Annotated[
    str, typer.Option("--entity-name", help="A topic's name or a broker's id; empty: the default of all brokers.")
]


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    entity_type: EntityTypeOption,
    entity_name: EntityNameOption,
    all_configs: Annotated[
        bool, typer.Option("--all", help="Also those that are not set, with what holds, and where each is set.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the configs that are set, or all.

    With --all the source is TOPIC, BROKER, CLUSTER_DEFAULT (set for all brokers) or DEFAULT (set nowhere).
    """
    if all_configs:
        from kraftlog.cluster_admin import sourced_config_listing

        sourced = run_async(sourced_config_listing(endpoints(bootstrap_server), entity_type.value, entity_name))
        print_rows(SOURCED_COLUMNS, sourced, output)
        return
    from kraftlog.admin import config_listing

    found = run_async(config_listing(endpoints(bootstrap_server), entity_type.value, entity_name))
    print_rows(COLUMNS, found, output)


@app.command()
def alter(
    bootstrap_server: BootstrapServer,
    entity_type: EntityTypeOption,
    entity_name: EntityNameOption,
    add: Annotated[list[str] | None, typer.Option("--add-config", metavar="KEY=VALUE", help="Set a config.")] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append-config", metavar="KEY=V1,V2", help="Add elements to a config that is a list."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract-config", metavar="KEY=V1,V2", help="Take elements from a config that is a list."),
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Unset a config.")] = None,
) -> None:
    """Set, unset, append to and subtract from configs, all or none."""
    from kraftlog.admin import parse_configs
    from kraftlog.cluster_admin import change_configs, config_changes
    from statemachine.cluster_descriptions import ConfigChangeKind

    if not (add or append or subtract or delete):
        raise typer.BadParameter("give at least one of them", param_hint=" / ".join(ALTER_OPTIONS))
    values = {
        ConfigChangeKind.SET: usage(parse_configs, add or [], "--add-config"),
        ConfigChangeKind.APPEND: usage(parse_configs, append or [], "--append-config"),
        ConfigChangeKind.SUBTRACT: usage(parse_configs, subtract or [], "--subtract-config"),
        ConfigChangeKind.DELETE: dict.fromkeys(delete or [], ""),
    }
    changes = usage(lambda of: config_changes(entity_type.value, entity_name, of), values, " / ".join(ALTER_OPTIONS))
    run_async(change_configs(endpoints(bootstrap_server), changes))
    configs = "1 config" if len(changes) == 1 else f"{len(changes)} configs"
    entity = f"{entity_type.value.removesuffix('s')} {entity_name}" if entity_name else "the brokers' default"
    say(f"Altered {configs} of {entity}.")
