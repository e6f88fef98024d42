"""`kraftlog format`, `start` and `random-uuid`: one node, from its configuration file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.options import path_argument, run_async, usage
from kraftlog.cli.shared.output import say
from kraftlog.config.endpoints import parse_initial_controllers
from raft.core.voters import VoterSet

ConfigOption = Annotated[
    Path, typer.Option("--config", parser=path_argument, metavar="FILE", help="The node's TOML file.")
]


InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY-ID[,...]",
        help="All voters, each with its directory's id, such as `kraftlog random-uuid` prints.",
    ),
]


def initial_voters(text: str | None) -> VoterSet | None:
    """The voters in `--initial-controllers`, None if it was not given. Raises a usage error."""
    return None if text is None else usage(parse_initial_controllers, text, "--initial-controllers")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("format")(format_node)
    app.command("start")(start_node)
    app.command("random-uuid")(random_uuid)


def format_node(
    config: ConfigOption,
    cluster_id: Annotated[
        str,
        typer.Option("--cluster-id", help="The cluster's id, the same on all its nodes, or 'random' for a new one."),
    ],
    initial_controllers: InitialControllers = None,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", help="Accept a directory formatted for this node, unchanged.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace a lost directory: the voter takes part when it has caught up."),
    ] = False,
) -> None:
    """Make a node's data directory.

    With --initial-controllers, the same on all nodes, the voters are known by their directory ids: a voter with a
    replaced disk is not mistaken for the earlier one. Asks the other voters first, for 3 s: if the cluster has records,
    its voters are formatted only with --replace.
    """
    from kraftbase.uuids import random_cluster_id, uuid_to_text
    from kraftlog.commands.other_voters import refuse_lost_directory_id, refuse_to_begin_anew
    from kraftlog.config.config import load_config
    from kraftlog.config.formatting import format_directory, is_formatted, own_directory_id

    voters = initial_voters(initial_controllers)
    loaded = load_config(config)
    wanted = random_cluster_id() if cluster_id == "random" else cluster_id
    if replace:
        directory_id = None if voters is None else own_directory_id(loaded, voters)
        run_async(refuse_lost_directory_id(loaded, wanted, directory_id))
    elif not is_formatted(loaded):
        run_async(refuse_to_begin_anew(loaded, wanted))
    identity = format_directory(
        loaded,
        wanted,
        initial_controllers=voters,
        ignore_formatted=ignore_formatted,
        is_replacement=replace,
    )
    say(f"Formatted {loaded.directory} for node {identity.node_id} of cluster {identity.cluster_id}.")
    say(f"Directory id: {uuid_to_text(identity.directory_id)}")


def start_node(
    config: ConfigOption,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", help="Stop when standard input ends, so that it ends with its parent.")
    ] = False,
) -> None:
    """Run a node until Ctrl-C, SIGTERM or SIGHUP.

    A leader resigns before it stops.
    """
    import uvloop

    from kraftlog.config.config import load_config
    from kraftlog.local.child import stop_at_end_of_input
    from kraftlog.process.logs import configure_logging, flush_logging
    from kraftlog.process.open_files import allow_open_files
    from kraftlog.process.server import serve

    loaded = load_config(config)
    configure_logging(loaded.log_level)
    allow_open_files()
    if stop_at_eof:
        stop_at_end_of_input()
    role = "voter" if loaded.is_voter else "observer"

    def ready() -> None:
        say(f"node {loaded.node_id} ({role}) listens on {loaded.listener}, its data is in {loaded.directory}")
        sys.stdout.flush()

    try:
        uvloop.run(serve(loaded, ready=ready))
    finally:
        flush_logging()  # the error that ended it is printed after what led to it


def random_uuid() -> None:
    """Print a fresh id, for a cluster or a directory."""
    from kraftbase.uuids import random_cluster_id

    say(random_cluster_id())
