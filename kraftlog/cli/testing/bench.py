"""`kraftlog bench`: each benchmark except `kafka` starts its own processes, and measures them."""

from __future__ import annotations

import functools
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kraftlog.cli.shared.options import Output, OutputOption, path_argument, run_async, usage
from kraftlog.cli.shared.output import print_json

app = typer.Typer(help="Measure a cluster of processes on this machine.", no_args_is_help=True, rich_markup_mode=None)

WIDTH_MIN: Final = 120
"""How wide the tables are at least: a narrower terminal wraps lines, and nothing is cut."""

MUST_BE_MET: Final = ("hostile", "metadata-changes", "starts")
"""The figures of `bench broker` whose missed limits make the exit code 1."""

METADATA_PARTS: Final = ("create", "one-by-one", "failover", "alter", "reads", "latency")

IdleSecondsOption = Annotated[
    float, typer.Option("--idle-seconds", min=0.1, help="idle: how long the processor time is counted.")
]
HostileSecondsOption = Annotated[
    float,
    typer.Option("--hostile-seconds", min=0.1, help="hostile: how long each request is repeated."),
]
StartedOption = Annotated[
    int, typer.Option("--started-partitions", min=1, help="starts: how many, and then five times as many.")
]
ChangedOption = Annotated[
    int, typer.Option("--changed-partitions", min=10, help="metadata-changes: how many are created at once.")
]
KafkaOption = Annotated[
    Path, typer.Option("--peers", parser=path_argument, metavar="DIR", help="Where `make peers` installs Kafka.")
]

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", parser=path_argument, metavar="FILE", help="Also write the result to this file."),
]
AgainstOption = Annotated[
    Path,
    typer.Option(
        "--against",
        parser=path_argument,
        metavar="DIR",
        help="A checkout of the other version; it runs with what is installed for this one.",
    ),
]
PairsOption = Annotated[int, typer.Option("--pairs", min=1, help="How many times both are measured.")]


def _directory(text: str) -> Path:
    """A directory, which is created if it does not exist."""
    path: Path = path_argument(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{text!r} cannot be used: {error.strerror}") from None
    return path


DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        parser=_directory,
        metavar="DIR",
        help="Where the clusters are made, in a directory that is removed; default: a temporary one.",
    ),
]


@app.command()
def latency(
    fetch_version: Annotated[
        str, typer.Option("--fetch-version", metavar="17,18", help="Versions of Fetch to compare.")
    ] = "17,18",
    operations: Annotated[int, typer.Option("--ops", min=1, help="Operations for each version.")] = 300,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Measure the latency of single admin operations.

    From submitted to acknowledged, and until visible at the last observer's listener.
    """
    from kraftlog.bench.latency import run

    if not re.fullmatch(r"1[78](,1[78])*", fetch_version):
        raise typer.BadParameter(f"{fetch_version!r} is unknown; give 17, 18 or 17,18", param_hint="--fetch-version")
    versions = list(dict.fromkeys(int(version) for version in fetch_version.split(",")))
    _run(run(versions, operations, directory, json, _console()))


@app.command()
def throughput(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long each mode runs.")] = 10.0,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Count operations and records per second.

    Only acknowledged ones count. One client sends for many concurrent callers.
    """
    from kraftlog.bench.throughput import run

    _run(run(seconds, directory, json, _console()))


@app.command()
def crowd(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long each round runs.")] = 5.0,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Measure the throughput of a writer beside 20 readers in a closed loop."""
    from kraftlog.bench.crowd import run

    _run(run(seconds, directory, json, _console()))


@app.command("catch-up")
def catch_up(
    records: Annotated[int, typer.Option("--records", min=1, help="How many records the follower misses.")] = 100_000,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Measure how fast a stopped follower catches up."""
    from kraftlog.bench.catch_up import run

    _run(run(records, directory, json, _console()))


@app.command()
def failover(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often the leader is killed.")] = 5,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Kill the leader while a client writes.

    Measures the time to the next acknowledgement, and counts acknowledged operations that were lost.
    """
    from kraftlog.bench.failover import run

    _run(run(rounds, directory, json, _console()))


@app.command()
def snapshot(
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How much metadata there is.")] = 1_000_000,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How long to measure without a snapshot.")
    ] = 10.0,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Take snapshots of a large amount of metadata.

    Measures how long they take, their effect on the latency of admin operations, and the time to send one over the
    network, to restart, to rebuild a database from one, and to start an empty observer. Prints each figure with its
    limit.
    """
    from kraftlog.bench.snapshot import run

    _run(run(partitions, seconds, directory, json, _console()))


@app.command()
def reload(
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long each policy runs.")] = 30.0,
    pause: Annotated[
        float, typer.Option("--pause", min=0.1, help="How long, in seconds, each stop of the slow ones is.")
    ] = 4.5,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="How much metadata there is.")] = 20_000,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Slow down an observer and a listener while snapshots are taken.

    Under steady writes, with a log that starts at the newest snapshot at once (eager) and with one that waits for
    lagging replicas and listeners (replicated, KAFKA-14932): counts which of them had to load a snapshot and the bytes
    sent, measures how fast they catch up, and shows how large the log grew. Fails if any had to load a snapshot under
    replicated.
    """
    from kraftlog.bench.reload import run

    _run(run(seconds, pause, partitions, directory, json, _console()))


@app.command()
def metadata(
    only: Annotated[
        str | None, typer.Option("--only", metavar="PART,...", help=f"Some of {', '.join(METADATA_PARTS)}.")
    ] = None,
    topics: Annotated[int, typer.Option("--topics", min=1, help="create: how many topics in one request.")] = 1_000,
    topic_partitions: Annotated[
        int, typer.Option("--topic-partitions", min=1, help="create: how many partitions each has.")
    ] = 100,
    operations: Annotated[
        int, typer.Option("--ops", min=1, help="one-by-one, reads, latency: how many, one at a time.")
    ] = 1_000,
    leaders: Annotated[
        int, typer.Option("--leaders", min=1, help="failover: how many partitions the fenced broker leads.")
    ] = 20_000,
    rate: Annotated[float, typer.Option("--rate", min=1, help="alter: how many AlterPartition a second.")] = 1_000.0,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="alter: for how long.")] = 10.0,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="reads, latency: how much metadata there is.")
    ] = 1_000_000,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Put load on the controller.

    Topics created in one request and one by one; a leader of many partitions fenced; ISRs altered at a fixed rate;
    reads, and single operations, with a large amount of metadata. Prints each figure with its limit.
    """
    from kraftlog.bench.metadata.run import Sizes, run

    sizes = Sizes(
        topics=topics,
        topic_partitions=topic_partitions,
        operations=operations,
        leaders=leaders,
        rate=rate,
        seconds=seconds,
        partitions=partitions,
    )
    _run(run(_parts(only), sizes, directory, json, _console()))


@app.command()
def kafka(
    records: Annotated[int, typer.Option("--records", min=1, help="How long the metadata log is.")] = 20_000,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="How many the imported metadata has.")
    ] = 1_000_000,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Read and write Kafka's bytes, and import a Kafka's metadata, without a cluster.

    Metadata records, a log of them, a Produce of 1 MB, a Metadata response with 6,000 partitions; then a directory with
    1,000,000 partitions is imported, and asked in SQL twice. Prints each figure with its target.
    """
    from kraftlog.bench.kafka import run

    _run(run(records, partitions, directory, json, _console()))


@app.command()
def cost(
    against: Annotated[
        Path,
        typer.Option("--against", parser=path_argument, metavar="DIR", help="A checkout of the other version."),
    ],
    operations: Annotated[int, typer.Option("--ops", min=10, help="Operations of each kind and run.")] = 3_000,
    pairs: PairsOption = 10,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare the cost of an operation for the leader with another version.

    Measures CPU seconds per 1,000 operations, one at a time and with 64 callers, of both versions in turn.
    """
    from kraftlog.bench.cost import run

    _run(run(against.resolve(), operations, pairs, directory, json, _console()))


@app.command()
def starts(
    against: AgainstOption,
    pairs: PairsOption = 5,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare how long a broker takes to open its logs with another version.

    1,000 partitions of three segments, after a clean shutdown and after a kill, and one partition of 2,000 segments.
    """
    from kraftlog.bench.starts.run import run

    if not run(against.resolve(), pairs, directory, json, _console()):
        raise typer.Exit(1)


@app.command()
def produce(
    against: AgainstOption,
    pairs: PairsOption = 10,
    total_bytes: Annotated[
        int, typer.Option("--bytes", min=1_000, help="How much each gets each time; a quarter of it with flushes.")
    ] = 200_000_000,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare how fast a broker takes records with another version.

    1 KB records to one partition, acks=all, in batches of 64 KiB, without flushes and with flush.before.ack. Limit: the
    median of the pairs' ratios is at least 0.97. Exit code: 1 if it is missed. Ten pairs take about two minutes.
    """
    from kraftlog.bench.produce import run

    _run(run(against.resolve(), pairs, total_bytes, directory, json, _console()))


@app.command()
def peers(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How many times each system runs.")] = 5,
    operations: Annotated[int, typer.Option("--ops", min=1, help="One at a time: how many in each round.")] = 200,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How long 64 callers submit in each round, and 256.")
    ] = 5.0,
    installed: Annotated[
        Path, typer.Option("--peers", parser=path_argument, metavar="DIR", help="Where `make peers` installs them.")
    ] = Path("build/peers"),
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare with etcd and with Kafka's controllers.

    Three servers of each run in turn on this machine, with one client. Measures one operation at a time, to the
    acknowledgement and until it is visible on another node, and operations per second of 64 and 256 callers. Prints the
    ratios of ours to theirs with their limits, and how to install a peer that is missing.
    """
    from kraftlog.bench.peers.run import Sizes, run

    sizes = Sizes(rounds=rounds, operations=operations, seconds=seconds)
    _run(run(installed, sizes, directory, json, _console()))


@app.command()
def broker(
    only: Annotated[
        str | None, typer.Option("--only", metavar="FIGURE,...", help="Some of the figures; all if not given.")
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="How many times each broker is measured.")] = 7,
    total_bytes: Annotated[
        int, typer.Option("--bytes", min=1_000, help="produce, consume-hot: how many bytes each time.")
    ] = 1_000_000_000,
    cold_bytes: Annotated[
        int, typer.Option("--cold-bytes", min=1_000, help="consume-cold: how many bytes each time.")
    ] = 4_000_000_000,
    records: Annotated[int, typer.Option("--records", min=1, help="one-record: how many each time.")] = 2_000,
    connections: Annotated[int, typer.Option("--connections", min=1, help="connections: how many.")] = 500,
    rate: Annotated[int, typer.Option("--rate", min=1, max=500, help="connections: records per second of each.")] = 20,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="connections: how long they send each time.")
    ] = 10.0,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="idle: how many.")] = 2_000,
    idle_seconds: IdleSecondsOption = 30.0,
    hostile_seconds: HostileSecondsOption = 3.0,
    started_partitions: StartedOption = 2_000,
    changed_partitions: ChangedOption = 1_000,
    installed: KafkaOption = Path("build/peers"),
    output: OutputOption = Output.TABLE,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare our broker with a stock Kafka.

    Both run all the time, and are measured in alternated pairs with the same client, a process of its own. The figures:
    produce-64k, produce-1m, and both with -flushed; consume-hot, consume-cold; one-record and one-record-flushed;
    connections; idle; starts; hostile; metadata-changes. Prints medians, ratios with their limits, and the broker's
    processor time. Without an installed Kafka, says how to install it and measures ours alone. Needs confluent-kafka.

    hostile: the longest wait of a client beside one with the largest requests, and the longest turn of the event loop.
    metadata-changes: that of ours while 1,000 partitions are created, 300 leaderships move and 2,000 are deleted, and
    the syncs at a start and at an end. starts: until all of 2,000 partitions answer after SIGKILL, and of 10,000. The
    limits are in docs/figures.md. Exit code: 1 if one of these three is missed.
    """
    from kraftlog.bench.broker.measure import chosen_figures
    from kraftlog.bench.broker.measures import MEASURES
    from kraftlog.clients.broker_errors import require_confluent_kafka

    figures = usage(functools.partial(chosen_figures, MEASURES), only, "--only")
    require_confluent_kafka()
    from kraftlog.bench.broker.experiments import Sizes
    from kraftlog.bench.broker.run import run

    sizes = Sizes(
        pairs=pairs,
        total_bytes=total_bytes,
        cold_bytes=cold_bytes,
        records=records,
        connections=connections,
        records_per_second=rate,
        seconds=seconds,
        partitions=partitions,
        idle_seconds=idle_seconds,
        hostile_seconds=hostile_seconds,
        started_partitions=started_partitions,
        changed_partitions=changed_partitions,
    )
    console = _console(to_errors=output is Output.JSON)
    result = _tell(run(figures, sizes, installed, directory, console), output, json)
    bounded = [result["figures"][name]["targets"] for name in MUST_BE_MET if name in result["figures"]]
    if not all(target["met"] for targets in bounded for target in targets.values()):
        raise typer.Exit(1)


@app.command()
def replication(
    only: Annotated[
        str | None, typer.Option("--only", metavar="FIGURE,...", help="Some of the figures; all if not given.")
    ] = None,
    pairs: Annotated[
        int, typer.Option("--pairs", min=1, help="produce, one-record: how many times each system is measured.")
    ] = 7,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="The others: how many times.")] = 5,
    total_bytes: Annotated[int, typer.Option("--bytes", min=1_000, help="produce: how many bytes each time.")] = 10**9,
    flushed_bytes: Annotated[
        int, typer.Option("--flushed-bytes", min=1_000, help="produce, flushed: how many bytes each time.")
    ] = 200_000_000,
    records: Annotated[int, typer.Option("--records", min=1, help="one-record: how many each time.")] = 2_000,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="leader-killed, controlled-shutdown: how many the broker leads.")
    ] = 100,
    behind_bytes: Annotated[
        int, typer.Option("--behind-bytes", min=1_000, help="catch-up: how much the follower has missed.")
    ] = 2 * 10**9,
    installed: KafkaOption = Path("build/peers"),
    output: OutputOption = Output.TABLE,
    json: JsonOption = None,
    directory: DirectoryOption = None,
) -> None:
    """Compare three brokers of ours with three of a stock Kafka, with three replicas.

    Measured in alternated pairs with the same client, a process of its own. The figures: produce-1 and produce-10, by
    their partitions, and one-record, all three also with -flushed; leader-killed, controlled-shutdown, catch-up,
    follower-stopped. Prints medians, ratios and own figures with their limits, and the brokers' processor time. Without
    an installed Kafka, says how to install it and measures ours alone. Needs confluent-kafka.
    """
    from kraftlog.bench.broker.measure import chosen_figures
    from kraftlog.bench.replication.measures import MEASURES
    from kraftlog.clients.broker_errors import require_confluent_kafka

    figures = usage(functools.partial(chosen_figures, MEASURES), only, "--only")
    require_confluent_kafka()
    from kraftlog.bench.replication.experiments import Sizes
    from kraftlog.bench.replication.run import run

    sizes = Sizes(
        pairs=pairs,
        rounds=rounds,
        total_bytes=total_bytes,
        flushed_bytes=flushed_bytes,
        records=records,
        partitions=partitions,
        behind_bytes=behind_bytes,
    )
    _tell(run(figures, sizes, installed, directory, _console(to_errors=output is Output.JSON)), output, json)


def _tell(benchmark: Coroutine[Any, Any, dict[str, Any]], output: Output, json: Path | None) -> dict[str, Any]:
    from kraftlog.bench.figures import write_json

    result = run_async(benchmark)
    write_json(json, result)
    if output is Output.JSON:
        print_json(result)
    return result


def _parts(only: str | None) -> list[str]:
    parts = METADATA_PARTS if only is None else only.split(",")
    for part in parts:
        if part not in METADATA_PARTS:
            raise typer.BadParameter(
                f"{part!r} is not a part; choose from {', '.join(METADATA_PARTS)}", param_hint="--only"
            )
    return list(parts)


def _console(*, to_errors: bool = False) -> Any:
    from rich.console import Console, ConsoleDimensions

    console = Console(markup=False, emoji=False, stderr=to_errors)  # errors and paths may have brackets
    if not console.is_terminal or console.width < WIDTH_MIN:
        console.size = ConsoleDimensions(WIDTH_MIN, console.height)
    return console


def _run(benchmark: Coroutine[Any, Any, bool]) -> None:
    import uvloop

    if not uvloop.run(benchmark):
        raise typer.Exit(1)
