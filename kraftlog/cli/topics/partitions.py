"""`kraftlog partitions`: leaders and in-sync replicas, and adding partitions."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async
from kraftlog.cli.shared.output import print_result, print_rows
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
    "Damaged",
    "Adding",
    "Removing",
)


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Of this topic; default: of all.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only where a replica that is not being removed is not in sync.")
    ] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable", help="Only those without a leader.")] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr", help="Only where fewer replicas are in sync than min.insync.replicas.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr", help="Only where exactly min.insync.replicas replicas are in sync.")
    ] = False,
    leader: Annotated[
        int | None,
        typer.Option("--leader", metavar="ID", min=0, max=NODE_ID_MAX, help="Only those led by this broker."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe partitions, one per line.

    Several options select the partitions that meet all of them. Leader -1 means no leader; Elr lists brokers out of
    sync that are still eligible to lead; LastKnownElr is the last leader, while no replica is in sync (KIP-966);
    Damaged lists brokers whose log of the partition is damaged or missing; Adding and Removing belong to a reassignment
    in progress.
    """
    from kraftlog.commands.partition_admin import PartitionFilter, partition_listing

    wanted = PartitionFilter(under_replicated, unavailable, under_min_isr, leader, at_min_isr)
    print_rows(COLUMNS, run_async(partition_listing(endpoints(bootstrap_server), topic, wanted)), output)


@app.command()
def add(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    bootstrap_server: BootstrapServer,
    count: Annotated[
        int,
        typer.Option("--count", min=1, max=INT32_MAX, help="The new number of partitions, including the present ones."),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a topic more partitions. It cannot be undone."""
    from kraftlog.commands.partition_admin import add_partitions

    run_async(add_partitions(endpoints(bootstrap_server), topic, count))
    line = f"Topic {topic} has {count} partitions now."
    print_result({"Topic": topic, "PartitionCount": count}, [line], output)
