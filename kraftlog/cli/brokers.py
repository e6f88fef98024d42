"""`kraftlog brokers`: run the metadata side of one, list and describe them, fence and unregister."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, path_argument, run_async, usage
from kraftlog.cli.output import note, print_json, print_result, print_rows, say
from kraftlog.config.endpoints import NODE_ID_MAX

app = typer.Typer(help="Brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("BrokerId", "BrokerEpoch", "Endpoints", "Rack", "Fenced", "InControlledShutdown")
DESCRIPTION_COLUMNS = ("Property", "Value")

BrokerId = Annotated[int, typer.Option("--id", min=0, max=NODE_ID_MAX, help="The broker's id.")]
Listeners = Annotated[
    list[str], typer.Option("--endpoint", metavar="NAME://HOST:PORT", help="A listener; may be given again.")
]
DataDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=path_argument,
        metavar="DIR",
        help="Where it records a clean shutdown; without it, each start counts as one after a crash.",
    ),
]
Rack = Annotated[str | None, typer.Option("--rack", help="The broker's rack.")]


@app.command()
def register(
    bootstrap_server: BootstrapServer,
    broker_id: BrokerId,
    endpoint: Listeners,
    rack: Rack = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Register a broker. It is fenced until it sends heartbeats: see `kraftlog brokers run`."""
    from kraftlog.commands.admin import parse_listener, register_broker

    listeners = [usage(parse_listener, text, "--endpoint") for text in endpoint]
    broker_epoch = run_async(register_broker(endpoints(bootstrap_server), broker_id, listeners, rack))
    line = f"Registered broker {broker_id} with epoch {broker_epoch}; it is fenced until it sends heartbeats."
    print_result({"BrokerId": broker_id, "BrokerEpoch": broker_epoch, "Fenced": True}, [line], output)


@app.command()
def run(
    bootstrap_server: BootstrapServer,
    broker_id: BrokerId,
    endpoint: Listeners,
    rack: Rack = None,
    data_dir: DataDirectory = None,
) -> None:
    """Run as a broker until Ctrl-C: register, send heartbeats, and shut down controlled. It keeps no data yet.

    With --data-dir, its next registration reports whether this shutdown was clean.
    """
    from kraftlog.commands.admin import parse_listener, run_broker

    listeners = [usage(parse_listener, text, "--endpoint") for text in endpoint]
    work = run_broker(endpoints(bootstrap_server), broker_id, listeners, rack, data_dir, say, note)
    run_async(work, is_endless=True)


@app.command("list")
def list_brokers(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """List all brokers."""
    from kraftlog.commands.admin import broker_listing

    print_rows(COLUMNS, run_async(broker_listing(endpoints(bootstrap_server))), output)


@app.command()
def describe(bootstrap_server: BootstrapServer, broker_id: BrokerId, output: OutputOption = Output.TABLE) -> None:
    """Describe one broker."""
    from kraftlog.commands.admin import broker_description

    described = run_async(broker_description(endpoints(bootstrap_server), broker_id))
    if output is Output.JSON:
        print_json(described)
        return
    features = [f"{of['Feature']} {of['MinLevel']}-{of['MaxLevel']}" for of in described["Features"]]
    shown = {**described, "Features": features}
    print_rows(DESCRIPTION_COLUMNS, [{"Property": name, "Value": value} for name, value in shown.items()], output)


@app.command()
def fence(bootstrap_server: BootstrapServer, broker_id: BrokerId, output: OutputOption = Output.TABLE) -> None:
    """Take a broker out of every ISR and leadership. The next heartbeat of a running broker unfences it."""
    from kraftlog.commands.admin import fence_broker

    run_async(fence_broker(endpoints(bootstrap_server), broker_id))
    line = f"Fenced broker {broker_id}. If it is running, its next heartbeat unfences it: stop it to keep it fenced."
    print_result({"BrokerId": broker_id, "Fenced": True}, [line], output)


@app.command()
def unregister(bootstrap_server: BootstrapServer, broker_id: BrokerId, output: OutputOption = Output.TABLE) -> None:
    """Unregister a broker that will not come back. Its replicas stay assigned: reassign them."""
    from kraftlog.commands.admin import unregister_broker

    run_async(unregister_broker(endpoints(bootstrap_server), broker_id))
    print_result({"BrokerId": broker_id, "Unregistered": True}, [f"Unregistered broker {broker_id}."], output)
