"""`kraftlog log-dirs`: what is in the log directories of brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from kraftlog.cli.broker_options import INT32_MAX, BrokerServers
from kraftlog.cli.options import Output, OutputOption, endpoints
from kraftlog.cli.output import print_rows


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("log-dirs")(log_dirs)


def log_dirs(
    bootstrap_server: BrokerServers,
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
    from kraftlog.clients.log_dirs import COLUMNS, has_failed, log_dir_rows

    rows = log_dir_rows(endpoints(bootstrap_server), broker or (), topic or ())
    print_rows(COLUMNS, rows, output)
    if has_failed(rows):
        raise typer.Exit(1)
