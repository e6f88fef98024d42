"""`kraftlog quorum`: the leader, and the lag of the replicas (OT-01 to OT-04)."""

from __future__ import annotations

from typing import Annotated

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.shared.output import note, print_fields, print_rows

app = typer.Typer(help="The quorum of voters.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def quorum() -> None:
    """The quorum of voters."""


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    status: Annotated[bool, typer.Option("--status", help="The leader, its epoch, the lag, the members.")] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="The log end offset and lag of each replica.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="With --replication: ages instead of timestamps.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe the quorum as its leader sees it."""
    if status == replication:
        raise typer.BadParameter("give one of the two, not both or none", param_hint="--status / --replication")
    if status and human_readable:
        raise typer.BadParameter("give it only with --replication", param_hint="--human-readable")
    import time

    from kraftlog.admin.client.connection import describe_quorum
    from kraftlog.commands import quorum as view
    from kraftlog.commands.node_status import failed_listeners

    response = run_async(describe_quorum(endpoints(bootstrap_server)))
    if output is Output.TABLE and response.kraft_version == 0:
        note(view.NO_DIRECTORY_IDS)
    if status:
        print_fields(view.status(response), output)
        return
    rows = view.replication(response, run_async(failed_listeners(response)))
    if human_readable:
        rows = view.human_readable(rows, int(time.time() * 1000))
    print_rows(view.REPLICATION_COLUMNS, rows, output)
