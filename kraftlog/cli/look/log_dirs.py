"""`kraftlog log-dirs`: what is in the log directories of brokers, and how a damaged log is accepted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kraftlog.cli.shared.broker_options import INT32_MAX, OptionalBrokerServers
from kraftlog.cli.shared.options import Output, OutputOption, endpoints, path_argument
from kraftlog.cli.shared.output import note, print_rows

app = typer.Typer(rich_markup_mode=None)


def add_to(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app, name="log-dirs")


@app.callback(invoke_without_command=True)
def log_dirs(
    context: typer.Context,
    bootstrap_server: OptionalBrokerServers = None,
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", metavar="ID", min=0, max=INT32_MAX, help="Only of this broker; may be given again."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only of this topic; may be given again.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which partitions each broker, kraftlog's or Kafka's, keeps in which directory: their bytes and their lag.

    OffsetLag is how many offsets a replica is behind the high watermark; for a replica that is being moved here
    (IsFuture), behind the replica that it replaces. The exit code is 1 if a broker does not answer, or a directory has
    an error.
    """
    if context.invoked_subcommand is not None:
        return
    if bootstrap_server is None:
        raise typer.BadParameter("missing; name a broker", param_hint="--bootstrap-server")
    from kraftlog.clients.log_dirs import COLUMNS, has_failed, log_dir_rows

    rows = log_dir_rows(endpoints(bootstrap_server), broker or (), topic or ())
    print_rows(COLUMNS, rows, output)
    if has_failed(rows):
        raise typer.Exit(1)


@app.command("accept-loss")
def accept_loss(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as orders-0.")],
    directory: Annotated[
        Path,
        typer.Option(
            "--directory",
            parser=path_argument,
            metavar="DIR",
            help="The directory of the stopped broker, or the one of its log directories that has the partition.",
        ),
    ],
    execute: Annotated[
        bool, typer.Option("--execute", help="Make the change; without this option nothing is changed.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which records of a damaged log are lost; with --execute, let the log continue without them.

    Use it for the last remaining replica. If a broker with another replica is up, use `kraftlog elect --type unclean`
    instead, so that the other replica leads: after this command the damaged replica leads, and all others truncate what
    it lacks. Every valid batch is kept. A segment with damage is kept in the partition's directory, as .lost.
    """
    from kraftlog.offline import accepted_loss

    named = accepted_loss.partition_named(partition)
    work = accepted_loss.accept_loss if execute else accepted_loss.examine
    report = asyncio.run(work(directory, named))
    print_rows(accepted_loss.COLUMNS, [report.row()], output)
    if not report.damage:
        note("The log is not damaged; nothing was changed.")
    elif execute:
        note(f"The log continues without {report.lost_count} offsets. Start the broker.")
    else:
        note(
            "Nothing was changed. With --execute the log continues without the lost records, this replica leads,"
            " and all"
            f" other replicas truncate their logs to {report.log_end_offset}. Before that, restore the files if you"
            " can; if a broker with another replica is up, `kraftlog elect --type unclean --topic"
            f" {named.topic} --partition {named.partition_id}` makes the other replica lead instead."
        )
