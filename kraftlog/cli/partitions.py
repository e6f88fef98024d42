"""`kraftlog partitions`: who leads, who is in sync, and more of them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraftlog.cli.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.output import print_result, print_rows
from kraftlog.config.endpoints import NODE_ID_MAX

app = typer.Typer(help="Partitions.", no_args_is_help=True, rich_markup_mode=None)

INT32_MAX: Final = 2**31 - 1

COLUMNS = (
    "Topic",
    "Partition",
    "Leader",
    "LeaderEpoch",
    "Replicas",
    "Isr",
    "Elr",
    "LastKnownElr",
    "Adding",
    "Removing",
)


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Of this topic; none: of all.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only where a replica that is to stay is not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only where nobody leads.")] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only where fewer are in sync than min.insync.replicas says.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only where just as many are in sync as that, so that none may go.")
    ] = False,
    leader: Annotated[
        int | None, typer.Option("--leader", metavar="ID", min=0, max=NODE_ID_MAX, help="Only what this broker leads.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe partitions, one on a line.

    With several options those that all of them apply to. Leader -1 is nobody; Elr are brokers out of sync that may lead
    all the same; LastKnownElr is, while nobody is in sync, who led last (KIP-966); Adding and Removing belong to a
    reassignment that is under way.
    """
    from kraftlog.commands.partition_admin import PartitionFilter, partition_listing

    wanted = PartitionFilter(under_replicated, unavailable, under_min_isr, leader, at_min_isr)
    print_rows(COLUMNS, run_async(partition_listing(endpoints(bootstrap_server), topic, wanted)), output)


@app.command()
def add(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    bootstrap_server: BootstrapServer,
    count: Annotated[
        int, typer.Option("--count", min=1, max=INT32_MAX, help="How many there shall be, the present ones included.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a topic more partitions. It cannot be undone."""
    from kraftlog.commands.partition_admin import add_partitions

    run_async(add_partitions(endpoints(bootstrap_server), topic, count))
    line = f"Topic {topic} has {count} partitions now."
    print_result({"Topic": topic, "PartitionCount": count}, [line], output)
