"""`kraftlog configs`: describe and alter the configs of topics and brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.output import print_rows, say

app = typer.Typer(help="Configs of topics and brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("Name", "Value")


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
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the configs that are set."""
    from kraftlog.admin import config_listing

    found = run_async(config_listing(endpoints(bootstrap_server), entity_type.value, entity_name))
    print_rows(COLUMNS, found, output)


@app.command()
def alter(
    bootstrap_server: BootstrapServer,
    entity_type: EntityTypeOption,
    entity_name: EntityNameOption,
    add: Annotated[list[str] | None, typer.Option("--add-config", metavar="KEY=VALUE", help="Set a config.")] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Unset a config.")] = None,
) -> None:
    """Set and unset configs, all or none."""
    from kraftlog.admin import alter_configs, parse_configs

    if not add and not delete:
        raise typer.BadParameter("give at least one of the two", param_hint="--add-config / --delete-config")
    changes: dict[str, str | None] = {**usage(parse_configs, add or [], "--add-config")}
    contradicted = next((key for key in delete or [] if key in changes), None)
    if contradicted is not None:
        raise typer.BadParameter(f"{contradicted} is to be set and unset; keep one", param_hint="--delete-config")
    changes.update(dict.fromkeys(delete or []))
    run_async(alter_configs(endpoints(bootstrap_server), entity_type.value, entity_name, changes))
    configs = "1 config" if len(changes) == 1 else f"{len(changes)} configs"
    entity = f"{entity_type.value.removesuffix('s')} {entity_name}" if entity_name else "the brokers' default"
    say(f"Altered {configs} of {entity}.")
