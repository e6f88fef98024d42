"""What `kraftlog up` shows while it runs: the nodes, the leader, how far each is, and the brokers."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.stop_signals import on_stop_signals
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.local.brokers import FIRST_BROKER_ID, BrokerDied, BrokerState, LocalBrokers, add_broker_rows
from kraftlog.local.cluster import LocalCluster, NodeDied
from kraftpb.v1 import log_pb2

REFRESH_SECONDS: Final = 1.0
USUAL_REPLICAS: Final = 3
STOPPING: Final = "Stopping; the data stays, the same command resumes."
NONE_LEFT: Final = "no node is running, so everything is stopped; the same command starts it again"

Descriptions = Mapping[NodeId, log_pb2.DescribeNodeResponse | None]


async def watch_cluster(cluster: LocalCluster, broker_count: int, first_broker_port: int | None) -> None:
    """Run the cluster and brokers, and show them until Ctrl-C, SIGTERM or SIGHUP; a node that ends is reported.

    The brokers shut down before the nodes stop. Raises NodeDied when a node cannot start, or none is left, and
    BrokerDied when no broker can start.
    """
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    console = Console(markup=False, emoji=False)  # paths and addresses may have brackets
    beside = f" and {broker_count} broker{'' if broker_count == 1 else 's'}" if broker_count else ""
    nodes = "1 node" if len(cluster.node_ids) == 1 else f"{len(cluster.node_ids)} nodes"
    console.print(f"Starting {nodes}{beside} in {cluster.directory.path} ...", highlight=False, soft_wrap=True)
    try:
        if await _has_started(cluster, stop):
            await _watch(cluster, broker_count, first_broker_port, stop, console)
        else:
            console.print(STOPPING)
    finally:
        await cluster.stop()


async def _has_started(cluster: LocalCluster, stop: asyncio.Event) -> bool:
    """Start all nodes and wait for them; False if a signal stops it before they answer."""
    starting, stopping = asyncio.create_task(cluster.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return False
        await starting
        return True
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


async def _watch(
    cluster: LocalCluster,
    broker_count: int,
    first_broker_port: int | None,
    stop: asyncio.Event,
    console: Console,
) -> None:
    """Run the brokers, and show the nodes and brokers, until a signal stops it."""
    async with AdminClient(cluster.bootstrap_servers) as client:
        brokers = LocalBrokers(
            client, cluster.bootstrap_servers, cluster.directory.path, broker_count, first_broker_port
        )
        try:
            works = (
                stop.wait(),
                _show(cluster, brokers, console),
                _tell_of_deaths(cluster, console),
            )
            tasks = [asyncio.create_task(work) for work in works]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()
            console.print(STOPPING)
        finally:
            await brokers.stop()


async def _tell_of_deaths(cluster: LocalCluster, console: Console) -> None:
    async for death in cluster.deaths():
        console.print(str(death), style="red", highlight=False, soft_wrap=True)
        if not any(map(cluster.is_running, cluster.node_ids)):
            raise NodeDied(death.code, NONE_LEFT)


async def _show(cluster: LocalCluster, brokers: LocalBrokers, console: Console) -> None:
    await brokers.start(on_death=lambda death: _say_death(death, console))

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    say(f"Cluster {cluster.cluster_id} is up. Ctrl-C stops it. In another terminal:")
    states = await brokers.states() if brokers.broker_ids else {}
    states = {broker_id: state for broker_id, state in states.items() if not state.is_fenced}
    for line in lines_to_paste(cluster.bootstrap_servers, states):
        say(f"  {line}")
    if states:
        say(f"Kafka's clients, Spark's among them, take bootstrap.servers={servers_of(states)}")
    if brokers.left_out:
        ids = ", ".join(map(str, brokers.left_out))
        count = brokers.left_out[-1] - FIRST_BROKER_ID + 1
        say(f"Not started, though there are directories of them here: brokers {ids}. --brokers {count} runs them, too.")
    telling = asyncio.create_task(_tell_of_broker_deaths(brokers, console))
    try:
        await _show_table(cluster, brokers, console)
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def lines_to_paste(nodes: Sequence[Endpoint], brokers: Mapping[int, BrokerState]) -> list[str]:
    """What a user pastes into another terminal, line by line or as a whole: the addresses, and first commands."""
    exports = [f"export KRAFTLOG_BOOTSTRAP_SERVER={shlex.quote(','.join(map(str, nodes)))}"]
    if not brokers:
        return [*exports, "kraftlog quorum describe --status"]
    return [
        *exports,
        f"export KRAFTLOG_BROKERS={shlex.quote(servers_of(brokers))}",
        f"kraftlog topics create events --replication-factor {min(len(brokers), USUAL_REPLICAS)}",
        "seq 1 1000 | kraftlog produce events",
        "kraftlog consume events --until-end --count 3",
    ]


def servers_of(brokers: Mapping[int, BrokerState]) -> str:
    """Where clients reach the brokers, as `bootstrap.servers` names them."""
    return ",".join(str(state.endpoint) for state in brokers.values() if state.endpoint is not None)


async def _tell_of_broker_deaths(brokers: LocalBrokers, console: Console) -> None:
    async for death in brokers.deaths():
        _say_death(death, console)


def _say_death(death: BrokerDied, console: Console) -> None:
    console.print(str(death), style="red", highlight=False, soft_wrap=True)


async def _show_table(cluster: LocalCluster, brokers: LocalBrokers, console: Console) -> None:
    if not sys.stdout.isatty():
        await cluster.wait_for_leader()
        console.print(await _whole_table(cluster, brokers))
        await asyncio.get_running_loop().create_future()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(await _whole_table(cluster, brokers), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)


async def _whole_table(cluster: LocalCluster, brokers: LocalBrokers) -> Table:
    table = status_table(cluster, await describe_all(cluster))
    states: dict[int, BrokerState] = {}
    if brokers.broker_ids:
        with contextlib.suppress(ApiError):  # no node answers: the table of nodes says so
            states = await brokers.states()
    add_broker_rows(table, brokers, states)
    return table


async def describe_all(cluster: LocalCluster) -> Descriptions:
    """What every node reports about itself; None for one that does not answer."""

    async def describe(node_id: NodeId) -> log_pb2.DescribeNodeResponse | None:
        try:
            return await cluster.describe(node_id)
        except ApiError:
            return None

    answers = await asyncio.gather(*map(describe, cluster.node_ids))
    return dict(zip(cluster.node_ids, answers, strict=True))


def status_table(cluster: LocalCluster, nodes: Descriptions) -> Table:
    """One row per node, also for one that does not answer."""
    table = Table(
        "Node", "Address", "Role", "Epoch", "HighWatermark", "LogEndOffset", "Applied", box=None, pad_edge=False
    )
    for node_id, node in nodes.items():
        address = str(cluster.endpoint(node_id))
        if node is None:
            table.add_row(str(node_id), address, "does not answer", style="red")
            continue
        role = node.role if node.is_voter else "observer"
        offsets = (node.high_watermark, node.log_end_offset, node.applied_end_offset)
        style = "bold green" if role == "leader" else None
        table.add_row(
            str(node_id), address, role, str(node.current_leader.leader_epoch), *map(str, offsets), style=style
        )
    return table
