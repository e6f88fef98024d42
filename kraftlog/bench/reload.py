"""Compares two policies of the log start, eager and replicated, for replicas and listeners that are slow for a while
(KAFKA-14932).

Admin operations run at a steady rate, nodes take a snapshot every few seconds, and retention always asks for a log that
starts at the newest snapshot. One observer is paused again and again (SIGSTOP), and a listener of the other observer
stops reading for the same time: longer than until the next snapshots, but shorter than until they count as dead. A
policy that moves the log start past them makes them load a snapshot when they continue.

Measured are:

- reloads: of the slow observer, from its log lines; of the slow listener, from its calls of `handle_load_snapshot`; of
  the state machines of all other nodes, from their log lines.
- bytes shipped: the size of each snapshot that replaced a node's log and was not taken by that node, from the nodes'
  log lines. Interrupted downloads are not counted.
- time to catch up: from the signal to continue until the state machine, or the listener, has everything below the
  leader's current high watermark.
- the largest log: the segments of the leader, and the records from its start to its end.
- how long the leader's log start did not advance although there was a snapshot, and no replica or listener to wait for.
  The leader checks this once a second; if it takes much longer, the log grows beyond what the policy allows.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.status import Status
from rich.table import Table

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.filling import fill
from kraftlog.bench.machine import machine
from kraftlog.bench.observation import NodeLog, Observation, snapshot_sizes
from kraftlog.bench.slow_listener import GO_ON, STOP, Tally, slow_listener_command
from kraftlog.bench.workload import (
    BROKER_IDS,
    OBSERVERS,
    TOPIC,
    VOTERS,
    alter_configs_operation,
    bench_cluster,
    execute_once,
    new_topic,
    set_config,
)
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.local.cluster import LocalCluster, start_command
from snapshot.log_start_policy import LogStartPolicy

POLICIES: Final = (LogStartPolicy.EAGER, LogStartPolicy.REPLICATED)
SLOW_OBSERVER: Final = NodeId(VOTERS + 1)
SLOW_LISTENERS_NODE: Final = NodeId(VOTERS + OBSERVERS)

OPERATIONS_PER_SECOND: Final = 20
RECORDS_PER_OPERATION: Final = 100
RECORD_BYTES: Final = 45
"""The approximate size of a config's record in a log."""
SNAPSHOTS_PER_PAUSE: Final = 2
"""The least number of snapshots during a pause."""
LONGEST_PAUSE: Final = 3
"""The largest factor by which a pause is extended if snapshots take longer."""
SESSION_MARGIN_SECONDS: Final = 4.0
"""How much longer than a pause it takes until a paused replica or listener counts as dead."""
SETTLE_SECONDS: Final = 2.0
"""The time after the last pause: the log start advances about a second after a replica has caught up."""
SEGMENT_BYTES: Final = 128 * 1024
POLL_SECONDS: Final = 0.02
TIMEOUT_SECONDS: Final = 120.0


def settings(policy: LogStartPolicy, pause_seconds: float) -> dict[str, object]:
    """Return the settings of every node, with about two snapshots in a pause."""
    bytes_per_second = OPERATIONS_PER_SECOND * RECORDS_PER_OPERATION * RECORD_BYTES
    session_seconds = LONGEST_PAUSE * pause_seconds + SESSION_MARGIN_SECONDS
    return {
        "metadata.log.start.policy": policy.value,
        "metadata.max.retention.bytes": 0,
        "metadata.log.max.record.bytes.between.snapshots": int(bytes_per_second * pause_seconds / SNAPSHOTS_PER_PAUSE),
        "metadata.log.max.snapshot.interval.ms": 0,
        "metadata.start.offset.replica.session.timeout.ms": int(session_seconds * 1000),
        "metadata.log.segment.bytes": SEGMENT_BYTES,
        "metadata.log.preallocate.bytes": SEGMENT_BYTES,
    }


class SteadyWriter:
    """Sets configs at a fixed rate, each to a new value, without retries."""

    def __init__(self, client: AdminClient) -> None:
        self.times_ms: list[float] = []
        self.errors: list[str] = []
        self._client = client

    async def prepare(self) -> None:
        """Create the topics."""
        await self._client.create_topics([new_topic(f"{TOPIC}-{number}") for number in range(RECORDS_PER_OPERATION)])

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write within the block."""
        task = asyncio.create_task(self._write())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _write(self) -> None:
        started = time.monotonic()
        for number in itertools.count(1):
            value = str(number)
            operation = alter_configs_operation(
                [set_config(f"{TOPIC}-{topic}", "retention.ms", value) for topic in range(RECORDS_PER_OPERATION)]
            )
            submitted = time.monotonic()
            try:
                await execute_once(self._client, operation)
            except ApiError as error:
                self.errors.append(str(error))
            else:
                self.times_ms.append((time.monotonic() - submitted) * 1000)
            await asyncio.sleep(max(0.0, started + number / OPERATIONS_PER_SECOND - time.monotonic()))


@dataclass(slots=True)
class Pauses:
    """The results of the pauses, one entry each."""

    snapshots_missed: list[int] = field(default_factory=list)
    """How many snapshots the leader took during the pause."""
    observer_seconds: list[float] = field(default_factory=list)
    """How long the observer took to catch up."""
    listener_seconds: list[float] = field(default_factory=list)


class Slowness:
    """Pauses the observer and the listener, and waits until they have caught up."""

    def __init__(self, cluster: LocalCluster, tally: Tally, leader: NodeId, pause_seconds: float) -> None:
        self.pauses = Pauses()
        self._cluster = cluster
        self._tally = tally
        self._leader = leader
        self._pause_seconds = pause_seconds

    async def pause_for_snapshots(self) -> None:
        """Pause both until the leader and the listener's node have taken two snapshots; then until both are level."""
        logs = [self._log(self._leader), self._log(SLOW_LISTENERS_NODE)]
        self._cluster.send_signal(SLOW_OBSERVER, signal.SIGSTOP)
        self._cluster.send_signal(SLOW_LISTENERS_NODE, STOP)
        deadline = time.monotonic() + LONGEST_PAUSE * self._pause_seconds
        try:
            await asyncio.sleep(self._pause_seconds)
            while time.monotonic() < deadline:
                if all(len(log.taken()) >= SNAPSHOTS_PER_PAUSE for log in logs):
                    break
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._cluster.send_signal(SLOW_OBSERVER, signal.SIGCONT)
            self._cluster.send_signal(SLOW_LISTENERS_NODE, GO_ON)
        self.pauses.snapshots_missed.append(len(logs[0].taken()))
        await self._wait_until_level(time.monotonic())

    def _log(self, node_id: NodeId) -> NodeLog:
        return NodeLog(self._cluster.directory.log_path(node_id))

    async def _wait_until_level(self, resumed: float) -> None:
        observer_seconds = listener_seconds = None
        while observer_seconds is None or listener_seconds is None:
            if time.monotonic() - resumed > TIMEOUT_SECONDS:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"after a pause, the observer or the listener is not level after {TIMEOUT_SECONDS:g} s;"
                    f" see {self._cluster.directory.path}",
                )
            high_watermark = (await self._cluster.describe(self._leader)).high_watermark
            if observer_seconds is None and await self._applied() >= high_watermark:
                observer_seconds = time.monotonic() - resumed
            if listener_seconds is None and self._tally.end_offset >= high_watermark:
                listener_seconds = time.monotonic() - resumed
            await asyncio.sleep(POLL_SECONDS)
        self.pauses.observer_seconds.append(round(observer_seconds, 3))
        self.pauses.listener_seconds.append(round(listener_seconds, 3))

    async def _applied(self) -> int:
        try:
            return (await self._cluster.describe(SLOW_OBSERVER, 1.0)).applied_end_offset
        except ApiError:
            return -1


async def measure(
    policy: LogStartPolicy,
    seconds: float,
    pause_seconds: float,
    partitions: int,
    directory: Path | None,
    console: Console,
) -> dict[str, Any]:
    """Measure one policy on a new cluster."""
    with Tally.listening() as tally:
        slow_command = slow_listener_command(tally.path)

        def command(config_path: Path) -> list[str]:
            is_slow = config_path.stem == f"node-{SLOW_LISTENERS_NODE}"
            return slow_command(config_path) if is_slow else start_command(config_path)

        async with (
            bench_cluster(
                directory, f"reload-{policy}", settings=settings(policy, pause_seconds), command=command
            ) as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
            living_brokers(client, BROKER_IDS),
        ):
            await fill(cluster, client, partitions, console)
            writer = SteadyWriter(client)
            await writer.prepare()
            with console.status(f"{policy}: until the log's start moves") as status:
                async with writer.writing():
                    return await _watch(cluster, policy, writer, tally, seconds, pause_seconds, status)


async def _watch(
    cluster: LocalCluster,
    policy: LogStartPolicy,
    writer: SteadyWriter,
    tally: Tally,
    seconds: float,
    pause_seconds: float,
    status: Status,
) -> dict[str, Any]:
    leader = await cluster.wait_for_leader()
    await _wait_until_log_start_moves(cluster)
    logs = {node_id: NodeLog(cluster.directory.log_path(node_id)) for node_id in cluster.node_ids}
    snapshots_before, operations_before = tally.snapshots, len(writer.times_ms)
    observation = Observation(cluster, policy)
    slowness = Slowness(cluster, tally, leader, pause_seconds)
    started = time.monotonic()
    async with observation.watching():
        while not slowness.pauses.observer_seconds or time.monotonic() - started < seconds - pause_seconds:
            status.update(f"{policy}: pause {len(slowness.pauses.observer_seconds) + 1}")
            await asyncio.sleep(pause_seconds / 2)
            await slowness.pause_for_snapshots()
        await asyncio.sleep(SETTLE_SECONDS)
    reloads = {node_id: len(log.loaded()) for node_id, log in logs.items()}
    downloaded = [offset for log in logs.values() for offset in log.downloaded()]
    newest = max(snapshot_sizes(cluster, leader).items())[1]
    return {
        "seconds": round(time.monotonic() - started, 2),
        "pauses": len(slowness.pauses.observer_seconds),
        "snapshots_taken_in_pauses": slowness.pauses.snapshots_missed,
        "snapshots_taken_by_leader": len(logs[leader].taken()),
        "snapshot_bytes": newest,
        "reloads_slow_observer": reloads[SLOW_OBSERVER],
        "reloads_slow_listener": tally.snapshots - snapshots_before,
        "reloads_other_nodes": sum(reloads.values()) - reloads[SLOW_OBSERVER],
        "snapshots_shipped": len(downloaded),
        "snapshot_bytes_shipped": sum(observation.snapshot_bytes.get(offset, newest) for offset in downloaded),
        "observer_catch_up_seconds": slowness.pauses.observer_seconds,
        "listener_catch_up_seconds": slowness.pauses.listener_seconds,
        "log_bytes_max": {str(node_id): size for node_id, size in observation.log_bytes_max.items()},
        "log_records_max": {str(node_id): count for node_id, count in observation.log_records_max.items()},
        "leader": leader,
        "leaders": len(observation.leaders),
        "log_start_overdue_seconds_max": round(observation.overdue_seconds_max, 2),
        "operations": len(writer.times_ms) - operations_before,
        "failed": len(writer.errors),
        "errors": writer.errors[:3],
        "submit_to_ack_ms": summary(writer.times_ms[operations_before:]),
    }


async def _wait_until_log_start_moves(cluster: LocalCluster) -> None:
    """Wait until every log start has advanced. A new leader waits a while for replicas that it does not know yet."""
    started = time.monotonic()
    while time.monotonic() - started < TIMEOUT_SECONDS:
        nodes = [await cluster.describe(node_id) for node_id in cluster.node_ids]
        if all(node.log_start_offset > 0 for node in nodes):
            return
        await asyncio.sleep(POLL_SECONDS)
    raise ApiError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not every node's log start has advanced after {TIMEOUT_SECONDS:g} s; see the nodes' logs",
    )


async def run(
    seconds: float,
    pause_seconds: float,
    partitions: int,
    directory: Path | None,
    json_path: Path | None,
    console: Console,
) -> bool:
    """Measure both policies, print and write the result.

    Return whether every operation succeeded, and no node or listener had to reload with the policy `replicated`.
    """
    found = {
        policy.value: await measure(policy, seconds, pause_seconds, partitions, directory, console)
        for policy in POLICIES
    }
    write_json(json_path, {"policies": found, "machine": await machine(directory)})
    console.print(_table(found))
    console.print(
        times_table(
            f"Submit to acknowledged, {RECORDS_PER_OPERATION} records an operation, milliseconds",
            [(policy, result["submit_to_ack_ms"]) for policy, result in found.items()],
        )
    )
    for policy, result in found.items():
        if result["failed"]:
            console.print(f"{policy}: {result['failed']} operations failed, the first: {result['errors'][0]}")
    spared = found[LogStartPolicy.REPLICATED.value]
    reloads = spared["reloads_slow_observer"] + spared["reloads_slow_listener"] + spared["reloads_other_nodes"]
    return not reloads and not any(result["failed"] for result in found.values())


def _table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table("", *found, title="Slow for a while, by policy", title_justify="left", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "pauses (snapshots during each)": lambda of: f"{of['pauses']} ({_range(of['snapshots_taken_in_pauses'])})",
        "snapshots taken by the leader": lambda of: f"{of['snapshots_taken_by_leader']} in {of['seconds']:.0f} s",
        "reloads, slow observer": lambda of: str(of["reloads_slow_observer"]),
        "reloads, slow listener": lambda of: str(of["reloads_slow_listener"]),
        "reloads, other nodes": lambda of: str(of["reloads_other_nodes"]),
        "snapshots shipped": lambda of: f"{of['snapshots_shipped']} ({of['snapshot_bytes_shipped'] / 1e6:.1f} MB)",
        "observer catches up, s": lambda of: _range(of["observer_catch_up_seconds"]),
        "listener catches up, s": lambda of: _range(of["listener_catch_up_seconds"]),
        "leader's log at most": lambda of: _log_size(of, str(of["leader"])),
        "slow listener's node's log at most": lambda of: _log_size(of, str(SLOW_LISTENERS_NODE)),
        "log start overdue at most, s": lambda of: f"{of['log_start_overdue_seconds_max']:.1f}",
    }
    for label, show in rows.items():
        table.add_row(label, *(show(result) for result in found.values()))
    return table


def _range(values: list[float]) -> str:
    return f"{min(values):g} to {max(values):g}"


def _log_size(of: dict[str, Any], node_id: str) -> str:
    return f"{of['log_bytes_max'][node_id] / 1e6:.2f} MB, {of['log_records_max'][node_id]:,} records"
