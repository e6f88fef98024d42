"""`kraftlog brokers`: run one, list and describe them, fence and unregister, and move one to a restored cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from kraftlog import __version__
from kraftlog.cli.cluster import adoption
from kraftlog.cli.shared.options import (
    BootstrapServer,
    BootstrapServerOrNone,
    Output,
    OutputOption,
    endpoints,
    path_argument,
    run_async,
    usage,
)
from kraftlog.cli.shared.output import note, print_json, print_result, print_rows, say
from kraftlog.config.endpoints import NODE_ID_MAX

app = typer.Typer(help="Brokers.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("BrokerId", "BrokerEpoch", "Endpoints", "Rack", "Fenced", "InControlledShutdown")
DESCRIPTION_COLUMNS = ("Property", "Value")

DataDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        parser=path_argument,
        metavar="DIR",
        help="Where it keeps everything; broker-ID in the working directory if not given.",
    ),
]
LogDirectories = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        parser=path_argument,
        metavar="DIR",
        help="Where it keeps partitions; may be given again. `partitions` in --data-dir if not given.",
    ),
]
Rack = Annotated[str | None, typer.Option("--rack", help="The broker's rack.")]

_BROKER_ID: Final = typer.Option("--id", min=0, max=NODE_ID_MAX, help="The broker's id.")
_LISTENERS: Final = typer.Option("--endpoint", metavar="NAME://HOST:PORT", help="A listener; may be given again.")
BrokerId = Annotated[int, _BROKER_ID]
BrokerIdOrNone = Annotated[int | None, _BROKER_ID]
Listeners = Annotated[list[str], _LISTENERS]
ListenersOrNone = Annotated[list[str] | None, _LISTENERS]
Advertised = Annotated[
    list[str] | None,
    typer.Option(
        "--advertised",
        metavar="NAME://HOST:PORT",
        help="Where clients reach a listener, if not where it listens; may be given again.",
    ),
]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="FILE|KEY=VALUE",
        help="The broker's TOML file, which may set all of these options; or KEY=VALUE, a config by Kafka's name,"
        " which overrides the file. May be given again.",
    ),
]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", help="debug, info, warning or error; warning if not given.")
]
StopAtEof = Annotated[
    bool, typer.Option("--stop-at-eof", help="Stop when standard input ends, so that it ends with its parent.")
]


@app.command()
def register(
    bootstrap_server: BootstrapServer,
    broker_id: BrokerId,
    endpoint: Listeners,
    rack: Rack = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Register a broker. It is fenced until it sends heartbeats: see `kraftlog brokers run`."""
    from kraftlog.commands.admin import register_broker
    from kraftlog.config.listeners import parse_listener

    listeners = [usage(parse_listener, text, "--endpoint") for text in endpoint]
    broker_epoch = run_async(register_broker(endpoints(bootstrap_server), broker_id, listeners, rack))
    line = f"Registered broker {broker_id} with epoch {broker_epoch}; it is fenced until it sends heartbeats."
    print_result({"BrokerId": broker_id, "BrokerEpoch": broker_epoch, "Fenced": True}, [line], output)


@app.command()
def run(
    bootstrap_server: BootstrapServerOrNone = None,
    broker_id: BrokerIdOrNone = None,
    endpoint: ListenersOrNone = None,
    advertised: Advertised = None,
    rack: Rack = None,
    data_dir: DataDirectory = None,
    log_dir: LogDirectories = None,
    config: Configs = None,
    log_level: LogLevel = None,
    stop_at_eof: StopAtEof = False,
) -> None:
    """Run a data broker until Ctrl-C, SIGTERM or SIGHUP: Kafka's clients produce to it and consume from it.

    Then it shuts down in a controlled way: other in-sync replicas lead its partitions first, where there are any.
    """
    import uvloop

    from kraftlog.broker.running import Callbacks
    from kraftlog.cli.shared.recovery_progress import recovery_progress
    from kraftlog.commands.broker_arguments import (
        LOG_LEVEL,
        BrokerOptions,
        broker_settings,
        given_configs,
        nodes_to_ask,
    )
    from kraftlog.commands.broker_process import run_broker
    from kraftlog.config.listeners import parse_bound_listener, parse_listener
    from kraftlog.config.settings import LOG_LEVELS
    from kraftlog.local.child import stop_at_end_of_input
    from kraftlog.process.logs import configure_logging, flush_logging
    from kraftlog.process.open_files import allow_open_files

    if log_level is not None and log_level not in LOG_LEVELS:
        raise typer.BadParameter(
            f"{log_level!r} is not a log level; use one of {', '.join(LOG_LEVELS)}", param_hint="--log-level"
        )
    options = BrokerOptions(
        nodes=() if bootstrap_server is None else endpoints(bootstrap_server),
        broker_id=broker_id,
        listeners=tuple(usage(parse_bound_listener, text, "--endpoint") for text in endpoint or ()),
        advertised=tuple(usage(parse_listener, text, "--advertised") for text in advertised or ()),
        rack=rack,
        directory=data_dir,
        log_dirs=tuple(log_dir or ()),
    )
    file = given_configs(config or [])
    settings, nodes = broker_settings(options, file), nodes_to_ask(options, file)
    level = log_level or file.log_level or LOG_LEVEL
    configure_logging(level)
    allow_open_files()
    if stop_at_eof:
        stop_at_end_of_input()
    try:
        with recovery_progress() as on_progress:
            callbacks = Callbacks(note, on_progress, is_debugged=level == "debug")
            uvloop.run(run_broker(settings, nodes, callbacks, _say_now, __version__))
    finally:
        flush_logging()  # the error that ended it is printed after what led to it


def _say_now(line: str) -> None:
    say(line)
    sys.stdout.flush()


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
def status(
    bootstrap_server: BootstrapServer,
    broker_id: Annotated[
        int | None, typer.Option("--id", min=0, max=NODE_ID_MAX, help="All counters of this broker.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the counters of every broker: partitions, connections, requests and more.

    A table has a few figures of each broker; --id and --output json have all. The exit code is 1 if a broker does not
    answer. A broker of a version without these counters is not an error.
    """
    from kraftlog.clients.broker_status import COLUMNS, METRIC_COLUMNS, broker_status

    found = run_async(broker_status(endpoints(bootstrap_server), broker_id))
    if output is Output.JSON:
        print_json([one.as_json() for one in found])
    elif broker_id is None:
        print_rows(COLUMNS, [one.row() for one in found], output)
    else:
        print_rows(METRIC_COLUMNS, [row for one in found for row in one.metric_rows()], output)
    if output is Output.TABLE:
        for one in found:
            if one.note:
                note(one.note)
    if any(one.has_failed for one in found):
        raise typer.Exit(1)


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


adoption.add_to(app)
