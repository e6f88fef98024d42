"""`kraftlog health`: whether nodes, brokers, disks and partitions are well, and what is not."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraftbase.errors import ApiError
from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.shared.output import note, print_json, print_rows, say, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kraftbase.endpoint import Endpoint
    from kraftlog.commands.health import Health

EXIT_NOT_HEALTHY: Final = 1
POLL_SECONDS: Final = 0.5
WATCH_SECONDS: Final = 2.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("health")(health)


def health(
    bootstrap_server: BootstrapServer,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Wait at most this long until everything is well."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Continue until Ctrl-C, and print each change.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what is not well: nodes, brokers, log directories, partitions.

    The exit code is 0 if everything is well: there is a quorum, all nodes answer, no broker is fenced, no disk is full
    or offline, and every partition has a leader and all of its replicas in sync. Else it is 1.
    """
    if wait is not None and watch:
        raise typer.BadParameter("give one of the two", param_hint="--wait / --watch")
    found = run_async(_watch(endpoints(bootstrap_server), wait, watch, lambda health: _print(health, output)))
    if not found.is_healthy:
        raise typer.Exit(EXIT_NOT_HEALTHY)


async def _watch(
    addresses: Sequence[Endpoint], wait: float | None, watch: bool, show: Callable[[Health], None]
) -> Health:
    from kraftlog.commands.health import examine, unreachable

    ends_at = time.monotonic() + (wait or 0.0)
    shown: Health | None = None
    while True:
        try:
            found = await examine(addresses)
        except ApiError as error:
            if wait is None and not watch:
                raise
            found = unreachable(error)
        is_last = not watch and (found.is_healthy or time.monotonic() >= ends_at)
        if is_last or (watch and found != shown):
            show(found)
            shown = found
        if is_last:
            return found
        await asyncio.sleep(WATCH_SECONDS if watch else POLL_SECONDS)


def _print(found: Health, output: Output) -> None:
    from kraftlog.commands.health import COLUMNS

    rows = [finding.row() for finding in found.findings]
    if output is Output.JSON:
        counts = {"Nodes": found.nodes, "Brokers": found.brokers, "Partitions": found.partitions}
        print_json({"IsHealthy": found.is_healthy, **counts, "Findings": rows})
        return
    if found.is_healthy:
        say(found.summary())
    else:
        print_rows(COLUMNS, rows, output)
        note(visible(found.summary()))
