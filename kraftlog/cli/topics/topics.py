"""`kraftlog topics`: create, list, describe, alter, delete."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import BootstrapServer, Output, OutputOption, endpoints, run_async, usage
from kraftlog.cli.shared.output import print_error, print_json, print_result, print_rows, say, visible
from kraftlog.cli.topics.partitions import COLUMNS as PARTITION_COLUMNS
from statemachine.words.resources import FROM_DEFAULT

if TYPE_CHECKING:
    from kraftbase.endpoint import Endpoint

app = typer.Typer(help="Topics.", no_args_is_help=True, rich_markup_mode=None)

INT32_MAX: Final = 2**31 - 1

LIST_COLUMNS = ("Topic", "TopicId", "Partitions", "ReplicationFactor")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="The topics' names.")]


@app.command()
def create(
    name: Name,
    bootstrap_server: BootstrapServer,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=FROM_DEFAULT, max=INT32_MAX, help="How many; default: the cluster's."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=FROM_DEFAULT,
            max=INT32_MAX,
            help="Brokers for each partition; default: the cluster's.",
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment", metavar="1:2,2:3", help="Brokers of each partition, the preferred leader first."
        ),
    ] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A config.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is not an error.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only validate, and create nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic."""
    from kraftlog.commands.admin import create_topic, existing_topic, parse_assignment, parse_configs
    from statemachine.query.descriptions import NewTopic

    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise typer.BadParameter(
            "the assignment sets partitions and replicas; leave --partitions and --replication-factor out",
            param_hint="--replica-assignment",
        )
    assignments = {}
    if replica_assignment is not None:
        assignments = usage(parse_assignment, replica_assignment, "--replica-assignment")
    topic = NewTopic(
        name,
        num_partitions=FROM_DEFAULT if partitions is None else partitions,
        replication_factor=FROM_DEFAULT if replication_factor is None else replication_factor,
        assignments=assignments,
        configs=usage(parse_configs, config or [], "--config"),
    )
    work = create_topic(endpoints(bootstrap_server), topic, if_not_exists=if_not_exists, validate_only=validate_only)
    created = run_async(work)
    if created is None:
        known = run_async(existing_topic(endpoints(bootstrap_server), name)) if output is Output.JSON else {}
        print_result({**known, "Created": False}, [f"Topic {name} already exists."], output)
        return
    result = {
        "Topic": created.name,
        "TopicId": None if validate_only else created.topic_id,
        "PartitionCount": created.num_partitions,
        "ReplicationFactor": created.replication_factor,
        "Created": not validate_only,
    }
    of = f"{created.num_partitions} partitions, replication factor {created.replication_factor}"
    line = f"Topic {name} could be created with {of}." if validate_only else f"Created topic {name} with {of}."
    print_result(result, [line], output)


@app.command("list")
def list_topics(bootstrap_server: BootstrapServer, output: OutputOption = Output.TABLE) -> None:
    """List all topics."""
    from kraftlog.commands.admin import topic_listing

    print_rows(LIST_COLUMNS, run_async(topic_listing(endpoints(bootstrap_server))), output)


@app.command()
def describe(
    bootstrap_server: BootstrapServer,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="The topics' names; none: all topics.")
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="A row for each replica: its lag, and why it is not in sync.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe topics: partitions, leaders, replicas, ISR, ELR, configs.

    With --replicas the leaders are asked, at their listeners. Lag is in offsets, LagMs is the time since the replica
    was level with the leader. The exit code is 1 if a leader does not answer. docs/operations/replication.md explains
    each value of WhyNot.
    """
    from kraftlog.commands.admin import topic_descriptions

    if replicas:
        _describe_replicas(endpoints(bootstrap_server), names or [], output)
        return
    topics = run_async(topic_descriptions(endpoints(bootstrap_server), names or []))
    if output is Output.JSON:
        print_json(topics)
        return
    for topic in topics:
        configs = ",".join(f"{key}={value}" for key, value in topic["Configs"].items())
        say(
            f"Topic: {topic['Topic']}  TopicId: {topic['TopicId']}  PartitionCount: {topic['PartitionCount']}"
            f"  ReplicationFactor: {topic['ReplicationFactor']}  Configs: {visible(configs)}"
        )
    rows: list[dict[str, Any]] = [
        {"Topic": topic["Topic"], **partition} for topic in topics for partition in topic["Partitions"]
    ]
    print_rows(PARTITION_COLUMNS, rows, output)


def _describe_replicas(addresses: tuple[Endpoint, ...], names: list[str], output: Output) -> None:
    from kraftlog.clients.replica_tables import COLUMNS, replica_rows
    from kraftlog.clients.replicas import describe_replicas

    found = run_async(describe_replicas(addresses, names))
    print_rows(COLUMNS, replica_rows(found), output)
    for error in found.silent.values():
        print_error(str(error))
    if found.silent:
        raise typer.Exit(1)


@app.command()
def alter(
    name: Name,
    bootstrap_server: BootstrapServer,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, max=INT32_MAX, help="The new number of partitions, with the present ones."),
    ] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Set a config.")] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Unset a config.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a topic more partitions, and set and unset its configs, all or none."""
    from kraftlog.commands.admin import parse_configs
    from kraftlog.commands.config_admin import alter_topic, topic_config_changes

    if partitions is None and not config and not delete_config:
        raise typer.BadParameter("give at least one of them", param_hint="--partitions / --config / --delete-config")
    added = usage(parse_configs, config or [], "--config")
    changes = usage(lambda of: topic_config_changes(name, of, delete_config or []), added, "--delete-config")
    outcomes = run_async(alter_topic(endpoints(bootstrap_server), name, partitions, changes))
    count = sum(outcome.is_altered for outcome in outcomes)
    altered = [f"{count} config{'' if count == 1 else 's'}"] if count else []
    altered += [f"it has {partitions} partitions now"] if partitions is not None else []
    lines = [f"Altered topic {name}: {', '.join(altered)}."] if altered else []
    lines += [outcome.unaltered(f"topic {name}") for outcome in outcomes if not outcome.is_altered]
    result = {"Topic": name, "PartitionCount": partitions, "Configs": [outcome.row() for outcome in outcomes]}
    print_result(result, lines, output)


@app.command()
def delete(
    names: Names,
    bootstrap_server: BootstrapServer,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that does not exist is not an error.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete topics.

    Tries each, and reports on each. The exit code is 1 if one could not be deleted; the others are deleted.
    """
    results: list[dict[str, Any]] = []
    try:
        run_async(_delete(endpoints(bootstrap_server), names, if_exists, output, results))
    finally:
        if output is Output.JSON and results:  # deletions are reported even if the rest could not be tried
            print_result(results, (), output)
    if any(result["Error"] for result in results):
        raise typer.Exit(1)


async def _delete(
    addresses: tuple[Endpoint, ...], names: list[str], if_exists: bool, output: Output, results: list[dict[str, Any]]
) -> None:
    """Delete them and report on each; `results` gets the outcomes."""
    from kraftbase.errors import ErrorCode
    from kraftlog.commands.admin import delete_topics

    async with aclosing(delete_topics(addresses, names)) as deletions:
        async for name, error in deletions:
            is_absent = error is not None and if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            failure = None if is_absent else error
            results.append(
                {"Topic": name, "Deleted": error is None, "Error": None if failure is None else failure.code.name}
            )
            if failure is not None:
                print_error(str(failure))
            elif output is Output.TABLE:
                say(f"Topic {visible(name)} does not exist." if is_absent else f"Deleted topic {name}.")
