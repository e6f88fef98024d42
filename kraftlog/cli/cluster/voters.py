"""`kraftlog voters`: the directory ids of the voters (docs/operations/voters.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from kraftlog.cli.cluster.node import ConfigOption
from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import print_json, say
from kraftlog.config.endpoints import initial_controllers_text, parse_initial_controllers

app = typer.Typer(help="The voters and the ids of their directories.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def voters() -> None:
    """The voters and the ids of their directories."""


@app.command()
def show(
    bootstrap_server: BootstrapServer,
    directory_id: Annotated[
        list[str] | None,
        typer.Option(
            "--directory-id",
            metavar="NODE-ID=DIRECTORY-ID",
            help="A voter's directory id, instead of asking it; may be given again.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the voters in the form of `--initial-controllers`, each with the id of its present directory.

    Asks each voter; a voter that is not running is printed with the directory id that the others know.
    """
    from kraftbase.uuids import uuid_to_text
    from kraftlog.commands import voter_ids

    given = usage(voter_ids.parse_directory_ids, directory_id or [], "--directory-id")
    known = run_async(voter_ids.known_voters(endpoints(bootstrap_server), given))
    if output is Output.JSON:
        print_json(
            [
                {
                    "NodeId": voter.key.node_id,
                    "DirectoryId": uuid_to_text(voter.key.directory_id) if voter.key.directory_id else None,
                    "Endpoint": str(voter.endpoint),
                }
                for voter in known.voters()
            ]
        )
        return
    say(initial_controllers_text(known))


@app.command("set")
def set_voters(
    config: ConfigOption,
    initial_controllers: Annotated[
        str,
        typer.Option(
            "--initial-controllers",
            metavar="ID@HOST:PORT:DIRECTORY-ID[,...]",
            help="All voters, each with its directory's id, as `kraftlog voters show` prints them.",
        ),
    ],
) -> None:
    """Set the directory ids by which a stopped node knows the voters, from its next start on.

    Run this on one node after the other. The voters must stay the same; at most one directory id may change.
    """
    from kraftlog.config import formatting
    from kraftlog.config.config import load_config

    voters = usage(parse_initial_controllers, initial_controllers, "--initial-controllers")
    loaded = load_config(config)
    formatting.set_voters(loaded, voters)
    say(f"Node {loaded.node_id} knows {len(voters)} voters by their directories. Start it, then do the next one.")
