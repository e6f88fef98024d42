"""`kraftlog log-dirs`: what is in the log directories of brokers, and how a damaged log goes on."""

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
    """Show what each broker, kraftlog's or Kafka's, keeps in which directory: bytes, and how far it lags.

    OffsetLag is how many offsets a replica is behind the high watermark; for one that is moved here (IsFuture), behind
    the one that it replaces. The exit code is 1 if a broker does not answer, or a directory has an error.
    """
    if context.invoked_subcommand is not None:
        return
    if bootstrap_server is None:
        raise typer.BadParameter("it is missing; name a broker", param_hint="--bootstrap-server")
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
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this nothing is changed.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what of a damaged log is lost, and with --execute have the log go on without that.

    For the only replica that is left. If a broker with another replica is up, use `kraftlog elect --type unclean`
    instead, which has that one lead: after this command the damaged replica leads, and all others cut what it lacks.
    Every valid batch is kept. A segment with damage is kept in the partition's directory, as .lost.
    """
    from kraftlog.offline import accepted_loss

    named = accepted_loss.partition_named(partition)
    work = accepted_loss.accept_loss if execute else accepted_loss.examine
    report = asyncio.run(work(directory, named))
    print_rows(accepted_loss.COLUMNS, [report.row()], output)
    if not report.damage:
        note("The log is not damaged; nothing was changed.")
    elif execute:
        note(f"The log goes on without {report.lost_count} offsets. Start the broker.")
    else:
        note(
            "Nothing was changed. With --execute the log goes on without what is lost, this replica leads, and all"
            f" other replicas cut what is not below {report.log_end_offset}. Before that, put the files back if you"
            " can; if a broker with another replica is up, `kraftlog elect --type unclean --topic"
            f" {named.topic} --partition {named.partition_id}` has that one lead instead."
        )
