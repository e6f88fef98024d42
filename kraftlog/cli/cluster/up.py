"""`kraftlog up` and `kraftlog demo`: a whole cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.options import path_argument, run_async
from kraftlog.config.endpoints import PORT_MAX

DirectoryOption = Annotated[
    Path, typer.Option("--dir", parser=path_argument, metavar="DIR", help="Where the cluster keeps everything.")
]
TemporaryDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", parser=path_argument, metavar="DIR", help="Where the cluster keeps everything; else a temporary one."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up")(up)
    app.command("demo")(demo)


def up(
    directory: DirectoryOption = Path("kraftlog-data"),
    voters: Annotated[int | None, typer.Option("--voters", help="Of a new cluster; 3 if not given.")] = None,
    observers: Annotated[int | None, typer.Option("--observers", help="Of a new cluster; 0 if not given.")] = None,
    brokers: Annotated[int, typer.Option("--brokers", help="Data brokers, which run with the nodes.")] = 0,
    first_port: Annotated[
        int | None,
        typer.Option(
            "--first-port",
            min=1,
            max=PORT_MAX,
            help="Of a new cluster: node 1 listens there, node 2 at the next, and so on; free ports if not given.",
        ),
    ] = None,
    first_broker_port: Annotated[
        int | None,
        typer.Option(
            "--first-broker-port",
            min=1,
            max=PORT_MAX,
            help="The first broker listens there, the second at the next, and so on; default: the ports of the last"
            " run, or free ports.",
        ),
    ] = None,
) -> None:
    """Run a local cluster until Ctrl-C.

    One process per node and broker. The same command on the same directory resumes with all its data.
    """
    from kraftlog.local.brokers import check_broker_count
    from kraftlog.local.cluster import LocalCluster
    from kraftlog.local.cluster_directory import open_or_create
    from kraftlog.local.status import watch_cluster

    check_broker_count(brokers, first_broker_port)
    found = open_or_create(directory, voters=voters, observers=observers, first_port=first_port)
    with found.held():
        run_async(watch_cluster(LocalCluster(found), brokers, first_broker_port))


def demo(directory: TemporaryDirectoryOption = None) -> None:
    """Show the main features in one run.

    A quorum, topics, a killed leader, a listener, the export, Spark, and the latency with Fetch 17 and 18.
    """
    from kraftlog.demo.demo import run_demo

    if not run_async(run_demo(directory)):
        raise typer.Exit(1)
