"""`kraftlog topics apply`: make topics match a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kraftlog.cli.shared.confirmation import check_can_ask, confirm
from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, path_argument, run_async
from kraftlog.cli.shared.output import note, print_json, print_rows, say

if TYPE_CHECKING:
    from kraftlog.commands.topic_plans import Progress


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("apply")(apply)


def apply(
    bootstrap_server: BootstrapServer,
    file: Annotated[
        Path,
        typer.Option(
            "-f",
            "--file",
            parser=path_argument,
            metavar="FILE",
            help="YAML: topics, or KafkaTopics; -: standard input.",
        ),
    ],
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete topics that the file does not name, except those named __*.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create topics, add partitions and change configs until all topics match the file. Running it again does nothing.

    The plan is shown first. Fewer partitions or another replication factor are refused before anything is changed.
    Configs that a topic has and the file does not name are removed, unless the file gives the topic no configs at all.
    """
    from kraftlog.commands.topic_files import STANDARD_INPUT, UNMANAGED, read_topic_file
    from kraftlog.commands.topic_plans import COLUMNS, execute_plan, topic_plan

    addresses = endpoints(bootstrap_server)
    is_asked = not (yes or dry_run)
    if is_asked and file == STANDARD_INPUT:
        raise typer.BadParameter("standard input is the file; give --yes to confirm", param_hint="--yes")
    wanted = read_topic_file(file)
    if is_asked:
        check_can_ask(output)
    for topic in wanted:
        if not topic.is_managed:
            note(f"Topic {topic.name} is not changed: {UNMANAGED} is false ({topic.place}).")
    plan = run_async(topic_plan(addresses, wanted, prune=prune))
    rows = plan.rows()
    if not rows:
        _print_outcome([], False, output, "Nothing to do: all topics match the file.")
        return
    if output is Output.TABLE:
        print_rows(COLUMNS, rows, output)
        sys.stdout.flush()
    if dry_run:
        _print_outcome(rows, False, output, f"{_changes(len(rows))} would be made.")
        return
    if is_asked:
        confirm(f"Make {_changes(len(rows))}?")
    with _progress() as progress:
        run_async(execute_plan(addresses, plan, progress))
    _print_outcome(rows, True, output, f"Made {_changes(len(rows))}.")


def _print_outcome(rows: list[dict[str, Any]], is_applied: bool, output: Output, line: str) -> None:
    if output is Output.JSON:
        print_json({"Changes": rows, "Applied": is_applied})
    else:
        say(line)


def _changes(count: int) -> str:
    return "1 change" if count == 1 else f"{count:,} changes"


@contextmanager
def _progress() -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda made, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("changes", total=None)
        yield lambda made, total: bar.update(task, completed=made, total=total)
