"""`kraftlog brokers`: register and list."""

from __future__ import annotations

from typing import Annotated

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.output import print_rows, say
from kraftlog.endpoints import NODE_ID_MAX

app = typer.Typer(help="Brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("BrokerId", "BrokerEpoch", "Endpoints", "Rack", "Fenced")


@app.command()
def register(
    bootstrap_server: BootstrapServer,
    broker_id: Annotated[int, typer.Option("--id", min=0, max=NODE_ID_MAX, help="The broker's id.")],
    endpoint: Annotated[
        list[str], typer.Option("--endpoint", metavar="NAME://HOST:PORT", help="A listener; may be given again.")
    ],
    rack: Annotated[str | None, typer.Option("--rack", help="The rack that it stands in.")] = None,
) -> None:
    """Register a broker, so that topics can be placed on it."""
    from kraftlog.admin import parse_listener, register_broker

    listeners = [usage(parse_listener, text, "--endpoint") for text in endpoint]
    broker_epoch = run_async(register_broker(endpoints(bootstrap_server), broker_id, listeners, rack))
    say(f"Registered broker {broker_id} with epoch {broker_epoch}.")


@app.command("list")
def list_brokers(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """List all brokers."""
    from kraftlog.admin import broker_listing

    print_rows(COLUMNS, run_async(broker_listing(endpoints(bootstrap_server))), output)
