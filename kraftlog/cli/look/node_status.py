"""`kraftlog node`: the state that each node reports about itself."""

from __future__ import annotations

from typing import Final

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.shared.output import note, print_json, print_rows, say, visible

app = typer.Typer(
    help="The nodes, each of which is asked for its own state.", no_args_is_help=True, rich_markup_mode=None
)

EXIT_NO_QUORUM: Final = 1

NO_QUORUM: Final = "no quorum: there is no leader that a majority of the voters follow"


@app.callback()
def node() -> None:
    """The nodes, each of which is asked for its own state."""


@app.command()
def status(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """Show the state that every known node reports, with or without a leader.

    Asks the addresses given, and the voters that the nodes name; observers whose address was not given are shown as the
    leader sees them. The exit code is 0 if there is a quorum: a leader that answers, and that a majority of the voters,
    itself included, report as their leader. Else it is 1.
    """
    from kraftlog.commands.node_status import COLUMNS, ask_all, condition_lines, rows

    findings = run_async(ask_all(endpoints(bootstrap_server)))
    has_quorum = findings.has_quorum()
    if output is Output.JSON:
        print_json({"ClusterId": findings.cluster_id or None, "HasQuorum": has_quorum, "Nodes": rows(findings)})
    else:
        found = rows(findings)
        print_rows(COLUMNS, found, output)
        for line in condition_lines(found):
            say(visible(line))
    if not has_quorum:
        note(NO_QUORUM)
        raise typer.Exit(EXIT_NO_QUORUM)
