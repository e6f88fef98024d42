"""`kraftlog demo`: the main features in one run, on real processes, with every claim checked.

Three voters, two observers and three data brokers run as processes on this machine. Every guarantee is checked: nothing
acknowledged is lost when the leader of the quorum or of partitions is killed, a listener sees every committed batch,
and Spark and each node's SQLite agree.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.sentinels import NO_LEADER
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.analytics.dependencies import require_java, require_pyspark
from kraftlog.analytics.export import export_from
from kraftlog.bench import failover, latency
from kraftlog.bench.workload import OBSERVERS, VOTERS
from kraftlog.broker.lifecycle import BrokerLifecycle, living_brokers
from kraftlog.clients.broker_errors import require_confluent_kafka
from kraftlog.demo import records
from kraftlog.demo.command import run_command
from kraftlog.local.cluster import LEADER_TIMEOUT_SECONDS, LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from kraftlog.local.consistency_check import node_counts
from kraftlog.local.status import describe_all, status_table
from raft.listener import BatchReader, Listener
from raft.observe import observe
from statemachine.query.descriptions import Counts, PartitionDescription

BROKER_IDS: Final = (1, 2, 3)
FENCED_SECONDS_MAX: Final = 15.0
SESSION_SECONDS: Final = 6.0
"""Three heartbeats: the demo waits for the end of a session."""
SETTINGS: Final = {"broker.session.timeout.ms": round(SESSION_SECONDS * 1000)}
TOPICS: Final = ("orders", "payments", "shipments")
PARTITIONS: Final = 6
FAILOVER_SECONDS_MAX: Final = 3.0
LATENCY_OPERATIONS: Final = {17: 12, 18: 200}
LISTENER_TIMEOUT_SECONDS: Final = 10.0
WIDTH_MIN: Final = 110
"""How wide the tables are at least: a narrower terminal wraps lines, and nothing is cut."""


class CommitCounter(Listener):
    """A user's own state machine: it counts committed records, and checks that nothing is skipped or repeated."""

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0
        self.next_offset = Offset(0)
        self.gaps = 0
        self._progress = asyncio.Event()

    async def handle_commit(self, reader: BatchReader) -> None:
        """Count a batch."""
        with reader:
            for batch in reader:
                self.gaps += batch.base_offset != self.next_offset
                self.next_offset = batch.end_offset
                self.records += len(batch.records)
                self.batches += 1
        self._progress.set()

    async def wait_for(self, end_offset: int) -> None:
        """Return when everything below `end_offset` was counted, or nothing was delivered for a while."""
        with suppress(TimeoutError):
            while self.next_offset < end_offset:
                self._progress.clear()
                await asyncio.wait_for(self._progress.wait(), LISTENER_TIMEOUT_SECONDS)


async def run_demo(directory: Path | None) -> bool:
    """Run it all in `directory`, or in a temporary one; returns whether every check held."""
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlog-demo-")))
        elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise DirectoryError(f"{directory} is not empty; name a new directory for the demo")
        console = Console(markup=False, emoji=False)  # errors and paths may have brackets
        if not sys.stdout.isatty() or console.width < WIDTH_MIN:
            console.size = ConsoleDimensions(WIDTH_MIN, console.height)
        return await Demo(directory, console).run()


class Demo:
    """The steps, in order, and their results."""

    def __init__(self, directory: Path, console: Console) -> None:
        self._directory = directory
        self._console = console
        self._step = 0
        self._started = time.monotonic()
        self._checks: list[tuple[bool, str]] = []

    async def run(self) -> bool:
        """All steps; returns whether every check held."""
        self._say("starting three voters and two observers, a process each")
        plan = open_or_create(self._directory / "cluster", voters=VOTERS, observers=OBSERVERS, settings=SETTINGS)
        cluster = LocalCluster(plan)
        async with cluster.running(), AdminClient(cluster.bootstrap_servers) as client:
            await cluster.wait_for_leader()
            self._console.print(status_table(cluster, await describe_all(cluster)))
            self._say(f"{len(BROKER_IDS)} brokers register and send heartbeats")
            async with living_brokers(client, BROKER_IDS) as brokers:
                await self._create(client)
                async with self._listening(cluster) as counter:
                    await self._lose_a_broker(cluster, client, brokers[0])
                    writer = await self._kill_the_leader(cluster, client)
                    await self._see_nothing_lost(cluster, writer)
                    await self._write_and_read_records(cluster, client)
                    await self._see_every_commit(cluster, counter)
            export_directory = await self._export(cluster)
            counts = {node_id: node_counts(cluster.directory.data_path(node_id)) for node_id in cluster.node_ids}
        await self._ask_spark(export_directory, counts)
        await self._measure_latency()
        return self._summarize()

    # --- the steps --------------------------------------------------------------------------------------------------

    async def _create(self, client: AdminClient) -> None:
        self._say(f"creating {len(TOPICS)} topics through the admin API")
        await client.create_topics([NewTopic(name, PARTITIONS, len(BROKER_IDS)) for name in TOPICS])
        described = await client.describe_topics(TOPICS)
        for topic in described.topics:
            leaders = ", ".join(str(partition.leader) for partition in topic.partitions)
            self._console.print(f"  {topic.name}: {len(topic.partitions)} partitions, led by brokers {leaders}")
        self._check(len(described.topics) == len(TOPICS), f"{len(described.topics)} topics are there")

    @asynccontextmanager
    async def _listening(self, cluster: LocalCluster) -> AsyncIterator[CommitCounter]:
        self._say("a listener of our own follows the log from offset 0, in this process")
        counter = CommitCounter()
        following = asyncio.create_task(observe(cluster.bootstrap_servers, counter))
        try:
            yield counter
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _lose_a_broker(self, cluster: LocalCluster, client: AdminClient, broker: BrokerLifecycle) -> None:
        self._say(f"broker {broker.broker_id} falls silent, as if it hung; its session ends, and its partitions move")
        led_before = await _led_by(client, broker.broker_id)
        await broker.stop()
        observer = cluster.endpoint(max(cluster.node_ids))
        async with AdminClient([observer]) as reader:
            await reader.wait_for(client.last_end_offset)  # the observer may not have the topics yet
            started = time.monotonic()
            while led_now := await _led_by(reader, broker.broker_id):
                if time.monotonic() - started > FENCED_SECONDS_MAX:
                    break
                await asyncio.sleep(0.1)
            seconds = time.monotonic() - started
            followers = sum(broker.broker_id in partition.isr for partition in await _partitions(reader))
            leaderless = await _led_by(reader, NO_LEADER)
        self._check(
            not led_now and not followers and not leaderless,
            f"its {len(led_before)} partitions have other leaders {seconds:.1f} s later; it is in {followers} ISRs,"
            f" {len(leaderless)} have no leader (on an observer)",
        )
        broker.start()
        await broker.unfenced()

    async def _kill_the_leader(self, cluster: LocalCluster, client: AdminClient) -> failover.Writer:
        self._say("a client creates topics without a pause; the leader is killed with SIGKILL")
        writer = failover.Writer(client)
        async with writer.writing():
            await writer.wait_for_acknowledgements(100)
            before = len(writer.acknowledged)
            killed, seconds = await failover.kill_leader(cluster, writer)
            successor = await cluster.wait_for_leader()
            await writer.wait_for_acknowledgements(100)
        self._console.print(
            f"  {before} creations acknowledged by leader {killed}; {len(writer.acknowledged) - before} more since"
        )
        self._check(
            seconds <= FAILOVER_SECONDS_MAX,
            f"leader {successor} acknowledged {seconds * 1000:,.0f} ms after leader {killed} was killed",
        )
        self._say(f"node {killed} comes back and catches up")
        started = time.monotonic()
        await cluster.start([killed])
        await cluster.wait_until_applied(writer.end_offset)
        self._check(True, f"node {killed} was level again {time.monotonic() - started:.1f} s after its start")
        return writer

    async def _see_nothing_lost(self, cluster: LocalCluster, writer: failover.Writer) -> None:
        self._say("counting acknowledged topics on every node")
        lost = await failover.lost(cluster, writer)
        self._check(
            not any(lost.values()),
            f"{len(writer.acknowledged)} topics were acknowledged; {sum(lost.values())} are lost on {len(lost)} nodes",
        )
        self._console.print(status_table(cluster, await describe_all(cluster)))

    async def _see_every_commit(self, cluster: LocalCluster, counter: CommitCounter) -> None:
        self._say("the batches that the listener got")
        leader = await cluster.wait_for_leader()
        high_watermark = (await cluster.describe(leader, LEADER_TIMEOUT_SECONDS)).high_watermark
        await counter.wait_for(high_watermark)
        self._check(
            counter.gaps == 0 and counter.next_offset >= high_watermark,
            f"{counter.batches} batches, {counter.records} records up to offset {high_watermark}, gaps: {counter.gaps}",
        )

    async def _write_and_read_records(self, cluster: LocalCluster, client: AdminClient) -> None:
        self._say("three data brokers, a process each, and a topic with three replicas, of which two must be in sync")
        try:
            require_confluent_kafka()
        except ConfigurationError as error:
            self._console.print(f"  skipped: {error}", style="yellow")
            return
        brokers = records.DataBrokers(cluster, client)
        leader = brokers.leader
        try:
            await brokers.start()
            await brokers.create_topic()
            self._say(
                f"a Kafka client writes {records.RECORDS:,} records with acks=all; broker {leader} leads, and is killed"
                " with SIGKILL"
            )
            started = time.monotonic()
            written = await brokers.write_while_the_leader_is_killed()
            self._console.print(
                f"  {brokers.committed_before_kill:,} were committed when it was killed; all were acknowledged in"
                f" {time.monotonic() - started:.1f} s, on two disks at least"
            )
            self._check(
                brokers.leaderless_seconds <= SESSION_SECONDS / 2,
                f"its partitions had other leaders {brokers.leaderless_seconds * 1000:,.0f} ms after it was killed; its"
                f" session is {SESSION_SECONDS:g} s",
            )
            await brokers.wait_for_isr(brokers.followers)
            self._console.print(
                f"  the replicas of broker {leader}, which is gone, are not in sync: it is fenced, and has not fetched"
                " from the new leaders",
                highlight=False,
            )
            await self._show_replicas(brokers)
            read = await brokers.read()
            self._check_records(written, read, f"while broker {leader} is gone")
            self._say(f"broker {leader} is started again: it copies what it lacks, joins the ISRs, and leads again")
            await brokers.start()
            seconds = await brokers.wait_for_isr((leader, *brokers.followers))
            await brokers.lead_again()
            await self._show_replicas(brokers)
            self._check(True, f"three replicas are in sync again {seconds:.1f} s after it was back")
            self._check_records(written, await brokers.read(), f"from broker {leader}")
        finally:
            await brokers.stop()

    async def _show_replicas(self, brokers: records.DataBrokers) -> None:
        columns, rows = await brokers.replicas()
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*("" if row[column] is None else str(row[column]) for column in columns))
        self._console.print(table)

    def _check_records(self, written: records.Digest, read: records.Digest, where: str) -> None:
        self._check(
            written == read and written.records == records.RECORDS,
            f"{written.records:,} records were acknowledged, {read.records:,} are read {where}, with"
            f" {'the same' if written.checksum == read.checksum else 'another'} checksum",
        )

    async def _export(self, cluster: LocalCluster) -> Path:
        self._say("exporting the committed log as Parquet")
        directory = self._directory / "export"
        await cluster.wait_until_level()  # the export has the records known to the node that answers first
        summary = await export_from(cluster.bootstrap_servers, directory)
        await cluster.wait_until_applied(summary.end_offset)
        self._console.print(f"  offsets {summary.start_offset} to {summary.end_offset} in {summary.files} files")
        return directory

    async def _ask_spark(self, directory: Path, counts: dict[Any, Counts]) -> None:
        self._say("Spark answers from the export, and must agree with the SQLite of every node")
        try:
            require_pyspark()
            require_java()
        except ConfigurationError as error:
            self._console.print(f"  skipped: {error}", style="yellow")
            return
        report = await run_command("report", "--from", str(directory), "--output", "json")  # gRPC dislikes forks
        for broker in report["brokers"]:
            self._console.print(
                f"  broker {broker['broker_id']}: {broker['topics']} topics, {broker['partitions']} partitions,"
                f" leads {broker['led']}"
            )
        by_spark = Counts(**report["counts"])
        agreeing = [node_id for node_id, of_node in counts.items() if of_node == by_spark]
        self._check(
            len(agreeing) == len(counts),
            f"Spark counts {by_spark.topics} topics, {by_spark.partitions} partitions, {by_spark.brokers} brokers,"
            f" {by_spark.configs} configs; {len(agreeing)} of {len(counts)} nodes' SQLite say the same",
        )

    async def _measure_latency(self) -> None:
        # Fetch 17 as with a leader before Kafka 4.1; one of Kafka 4.3 also releases fetches of old versions early.
        self._say("admin latency with Fetch 17, as before Kafka 4.1, and Fetch 18 (KIP-1166), on clusters of their own")
        figures = {}
        failed = 0
        for version, operations in LATENCY_OPERATIONS.items():
            measured = await latency.measure(version, operations, self._directory / "latency", warm_up=5)
            figures[version] = measured.figures()
            failed += len(measured.errors)
        self._console.print(latency.latency_table(figures))
        if failed:
            self._check(False, f"{failed} operations failed")
            return
        visible = {version: of_version["ack_to_visible_ms"]["mean"] for version, of_version in figures.items()}
        self._check(
            visible[18] < visible[17],
            f"acknowledged to visible, mean: {visible[17]:.0f} ms with Fetch 17, {visible[18]:.1f} ms with Fetch 18",
        )

    # --- output ----------------------------------------------------------------------------------------------

    def _say(self, what: str) -> None:
        self._step += 1
        elapsed = time.monotonic() - self._started
        heading = (f"\n{self._step}. {what[0].upper()}{what[1:]}", "bold")
        self._console.print(Text.assemble(heading, " ", (f"({elapsed:.0f} s)", "dim")))

    def _check(self, holds: bool, what: str) -> None:
        self._checks.append((holds, what))
        self._console.print(_checked(what, holds=holds))

    def _summarize(self) -> bool:
        failed = [what for holds, what in self._checks if not holds]
        took = time.monotonic() - self._started
        self._console.print(
            f"\n{len(self._checks) - len(failed)} of {len(self._checks)} checks held, in {took:.0f} s.", style="bold"
        )
        for what in failed:
            self._console.print(_checked(what, holds=False))
        return not failed


def _checked(what: str, *, holds: bool) -> Text:
    return Text.assemble("  ", ("✓", "green") if holds else ("✗", "bold red"), f" {what}")


async def _partitions(client: AdminClient) -> list[PartitionDescription]:
    return [partition for topic in (await client.describe_topics(TOPICS)).topics for partition in topic.partitions]


async def _led_by(client: AdminClient, broker_id: int) -> list[PartitionDescription]:
    return [partition for partition in await _partitions(client) if partition.leader == broker_id]
