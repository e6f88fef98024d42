"""`kraftlog elect`: hold elections for the leaders of partitions."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, path_argument, run_async
from kraftlog.cli.shared.output import print_rows, say

if TYPE_CHECKING:
    from kraftbase.partition import TopicPartition

INT32_MAX: Final = 2**31 - 1

COLUMNS = ("Topic", "Partition", "Result", "Error", "Reason")

_WHICH: Final = "--topic and --partition / --path / --all-topic-partitions"


class TypeOfElection(StrEnum):
    """Which replica is elected."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("elect")(elect)


def elect(
    bootstrap_server: BootstrapServer,
    election_type: Annotated[
        TypeOfElection,
        typer.Option(
            "--type",
            help="preferred: the first replica leads again; unclean: any replica may lead if there is no leader, but"
            " acknowledged records may be lost.",
        ),
    ],
    topic: Annotated[str | None, typer.Option("--topic", help="With --partition: for this one.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=INT32_MAX, help="Of the topic that --topic names.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--path",
            parser=path_argument,
            metavar="FILE",
            help='For those in a JSON file: {"partitions": [{"topic": "clicks", "partition": 0}]}.',
        ),
    ] = None,
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="For all; shows those that needed one.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Elect leaders of partitions.

    The exit code is 0 if each partition has such a leader now, and 1 if one does not.
    """
    from kraftlog.commands import partition_admin
    from statemachine.query.partition_descriptions import ElectionType

    asked = _partitions(topic, partition, path, all_topic_partitions=all_topic_partitions)
    rows = run_async(partition_admin.elect(endpoints(bootstrap_server), ElectionType[election_type.name], asked))
    if rows or output is Output.JSON:
        print_rows(COLUMNS, rows, output)
    else:
        say("No partition needs an election.")
    if any(row["Result"] == partition_admin.FAILED for row in rows):
        raise typer.Exit(1)


def _partitions(
    topic: str | None, partition: int | None, path: Path | None, *, all_topic_partitions: bool
) -> list[TopicPartition] | None:
    """The partitions that the options name; None: all. Raises a usage error unless they name them in one way."""
    from kraftbase.partition import TopicPartition
    from kraftlog.commands.partition_files import read_election

    is_single = topic is not None or partition is not None
    if is_single + (path is not None) + all_topic_partitions != 1:
        raise typer.BadParameter("name the partitions with exactly one of these", param_hint=_WHICH)
    if path is not None:
        return read_election(path)
    if all_topic_partitions:
        return None
    if topic is None or partition is None:
        raise typer.BadParameter("a partition needs both; give both", param_hint="--topic / --partition")
    return [TopicPartition(topic, partition)]
