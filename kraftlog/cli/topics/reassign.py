"""`kraftlog reassign`: move partitions to other brokers, with the files of kafka-reassign-partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import (
    BootstrapServer,
    Output,
    OutputOption,
    endpoints,
    path_argument,
    run_async,
    usage,
)
from kraftlog.cli.shared.output import note, print_json, print_rows, say

if TYPE_CHECKING:
    from kraftbase.partition import TopicPartition

LONG_MAX: Final = 2**63 - 1

app = typer.Typer(help="Move partitions to other brokers.", no_args_is_help=True, rich_markup_mode=None)

OUTCOME_COLUMNS = ("Topic", "Partition", "Result", "Error", "Reason")
VERIFY_COLUMNS = ("Topic", "Partition", "Status", "Wanted", "Replicas", "Isr", "Adding", "Removing")
LIST_COLUMNS = ("Topic", "Partition", "Replicas", "Isr", "Adding", "Removing")

File = Annotated[
    Path,
    typer.Option(
        "--file",
        parser=path_argument,
        metavar="FILE",
        help="An assignment in JSON, in the format of kafka-reassign-partitions and `generate`.",
    ),
]

TopicsFile = Annotated[
    Path | None,
    typer.Option(
        "--topics-file",
        parser=path_argument,
        metavar="FILE",
        help="The topics to move in JSON, in the format of kafka-reassign-partitions.",
    ),
]

PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave the throttles of brokers and topics as they are.")
]


@app.command()
def generate(
    bootstrap_server: BootstrapServer,
    brokers: Annotated[str, typer.Option("--brokers", metavar="ID[,ID]", help="The brokers to move them to.")],
    topics: Annotated[str | None, typer.Option("--topics", metavar="NAME[,NAME]", help="The topics to move.")] = None,
    topics_file: TopicsFile = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Propose a balanced assignment, spread over racks. Nothing is changed.

    Each partition keeps its number of replicas. Each run proposes another assignment.
    """
    from kraftlog.commands.partition_admin import parse_broker_ids, parse_topics
    from kraftlog.commands.partition_files import read_topics, reassignment_json
    from kraftlog.commands.reassignments import propose

    broker_ids = usage(parse_broker_ids, brokers, "--brokers")
    if topics is not None and topics_file is None:
        names = usage(parse_topics, topics, "--topics")
    elif topics_file is not None and topics is None:
        names = read_topics(topics_file)
    else:
        raise typer.BadParameter("give one of them: the topics to move", param_hint="--topics / --topics-file")
    proposal = run_async(propose(endpoints(bootstrap_server), names, broker_ids))
    for broker_id in proposal.inactive_brokers:
        note(f"Broker {broker_id} is fenced or shutting down; it gets replicas only if the other brokers are too few.")
    current, proposed = reassignment_json(proposal.current), reassignment_json(proposal.proposed)
    if output is Output.JSON:
        print_json({"Current": current, "Proposed": proposed})
        return
    _print_assignment("Current partition replica assignment", current)
    say("")
    _print_assignment("Proposed partition reassignment configuration", proposed)


@app.command()
def execute(
    bootstrap_server: BootstrapServer,
    file: File,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle",
            min=1,
            max=LONG_MAX,
            metavar="BYTES",
            help="Bytes per second that each broker may send, and copy, for the moves; `verify` removes the limit.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start to move partitions to the replicas in a file.

    Prints the present assignment first: save it in a file for a rollback. Replaces reassignments in progress. The exit
    code is 1 if any partition cannot be moved; the others are moved.
    """
    from kraftlog.commands import reassignments
    from kraftlog.commands.partition_files import read_reassignment, reassignment_json

    wanted = read_reassignment(file)
    nodes = endpoints(bootstrap_server)
    current = reassignment_json(run_async(reassignments.present_assignment(nodes, wanted)))
    if output is Output.TABLE:
        _print_assignment("Current partition replica assignment, to keep for a rollback", current)
        say("")
    rows: list[dict[str, Any]] = []
    try:
        rows = run_async(reassignments.execute(nodes, wanted, throttle))
    finally:
        # The assignment for a rollback is printed, whatever the result.
        if output is Output.JSON:
            print_json({"Current": current, "Partitions": rows})
    if output is Output.TABLE:
        print_rows(OUTCOME_COLUMNS, rows, output)
        if throttle is not None:
            say("Their copying is throttled until `kraftlog reassign verify` finds them completed or cancelled.")
    _fail_if_any_failed(rows)


@app.command()
def verify(
    bootstrap_server: BootstrapServer,
    file: File,
    preserve_throttles: PreserveThrottles = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Report the progress of the partitions in a file. The status is completed, in progress, or different: the
    partition has other replicas, and is not being moved to these. The exit code is 0 if all are completed, else 1. When
    no partition of the cluster is still being moved, the throttles of the brokers and of these topics are removed.
    """
    from kraftlog.commands import reassignments
    from kraftlog.commands.partition_files import read_reassignment

    wanted = read_reassignment(file)
    rows = run_async(reassignments.verify(endpoints(bootstrap_server), wanted))
    print_rows(VERIFY_COLUMNS, rows, output)
    if any(row["Status"] != reassignments.COMPLETED for row in rows):
        raise typer.Exit(1)
    _take_throttles_back(bootstrap_server, wanted, preserve_throttles, output)


@app.command()
def cancel(
    bootstrap_server: BootstrapServer,
    file: File,
    preserve_throttles: PreserveThrottles = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel the reassignments of the partitions in a file, whatever replicas it names.

    Their earlier replicas are restored. The exit code is 1 if one cannot be cancelled. Throttles are removed as by
    `verify`.
    """
    from kraftlog.commands import reassignments
    from kraftlog.commands.partition_files import read_reassignment

    wanted = read_reassignment(file)
    rows = run_async(reassignments.cancel(endpoints(bootstrap_server), wanted))
    print_rows(OUTCOME_COLUMNS, rows, output)
    _fail_if_any_failed(rows)
    _take_throttles_back(bootstrap_server, wanted, preserve_throttles, output)


def _take_throttles_back(
    bootstrap_server: str, partitions: Iterable[TopicPartition], preserve: bool, output: Output
) -> None:
    from kraftlog.commands.reassignments import take_throttles_back

    has_removed = not preserve and run_async(take_throttles_back(endpoints(bootstrap_server), partitions))
    if has_removed and output is Output.TABLE:
        say("Removed the throttles.")


@app.command("list")
def list_reassignments(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """List all partitions that are being reassigned."""
    from kraftlog.commands.reassignments import reassignment_listing

    print_rows(LIST_COLUMNS, run_async(reassignment_listing(endpoints(bootstrap_server))), output)


def _print_assignment(title: str, assignment: dict[str, Any]) -> None:
    """On one line, as kafka-reassign-partitions does, to be copied into a file."""
    say(title)
    say(json.dumps(assignment, separators=(",", ":")))


def _fail_if_any_failed(rows: list[dict[str, Any]]) -> None:
    from kraftlog.commands.partition_admin import FAILED

    if any(row["Result"] == FAILED for row in rows):
        raise typer.Exit(1)
