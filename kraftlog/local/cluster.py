"""A cluster on this machine: one process per node, started, watched, killed and stopped by this one.

`up`, the demo, the benchmarks and the tests of whole processes use it. It belongs to no event loop: its processes
live on when the loop that started them has ended.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.connection import describe_node
from kraftlog.local.child import ChildProcess, ends
from kraftlog.local.cluster_directory import ClusterDirectory
from kraftpb.v1 import log_pb2

START_TIMEOUT_SECONDS: Final = 90.0
"""A node needs two seconds of a processor to start, and shares one with other starting nodes. A node that ends is
reported.
"""
STOP_GRACE_SECONDS: Final = 10.0
LEADER_TIMEOUT_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.05
LOG_LINES: Final = 5
_ERROR_LINE: Final = re.compile(r"error: (?P<name>[A-Z_]+): (?P<message>.*)")

Result = TypeVar("Result")
Command = Callable[[Path], list[str]]


class NodeDied(ApiError):
    """A node's process ended by itself. The message has its last output, the code its error if it named one."""


def start_command(config_path: Path) -> list[str]:
    """Runs a node in this Python until it is stopped or its parent dies."""
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, would be imported instead of our
    # module.
    return [sys.executable, "-P", "-m", "kraftlog", "start", "--config", str(config_path), "--stop-at-eof"]


class LocalCluster:
    """The processes of the nodes in one cluster directory."""

    def __init__(self, directory: ClusterDirectory, command: Command = start_command) -> None:
        """Starts nothing. `command` makes the command line of a node from the path of its configuration."""
        self.directory = directory
        self._command = command
        self._endpoints = {node_id: config.client_endpoint for node_id, config in directory.load_configs().items()}
        self._children: dict[NodeId, ChildProcess] = {}

    # --- its parts --------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self.directory.cluster_id

    @property
    def node_ids(self) -> list[NodeId]:
        """All nodes: voters, then observers."""
        return self.voter_ids + sorted(self.directory.observer_ids)

    @property
    def voter_ids(self) -> list[NodeId]:
        """The nodes that vote."""
        return sorted(self.directory.voter_ids)

    def log_path(self, node_id: NodeId) -> Path:
        """The file with a node's log lines."""
        return self.directory.log_path(node_id)

    def endpoint(self, node_id: NodeId) -> Endpoint:
        """Where a node listens."""
        return self._endpoints[node_id]

    @property
    def bootstrap_servers(self) -> tuple[Endpoint, ...]:
        """Where the voters listen: the bootstrap servers for clients."""
        return tuple(self._endpoints[node_id] for node_id in self.voter_ids)

    def is_running(self, node_id: NodeId) -> bool:
        """Whether the node's process runs."""
        child = self._children.get(node_id)
        return child is not None and child.is_running

    def pid(self, node_id: NodeId) -> int:
        """The process id of a node that was started."""
        return self._children[node_id].pid

    # --- its life ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LocalCluster]:
        """All nodes run and answer within the block, and each voter takes part; they are stopped after it."""
        try:
            await self.start()
            await self.wait_until_voters_take_part()
            yield self
        finally:
            await self.stop()

    async def start(self, node_ids: Iterable[NodeId] | None = None) -> None:
        """Start nodes (all, if None) that do not run, and wait until each answers.

        Raises NodeDied if one ends instead, ApiError REQUEST_TIMED_OUT if one does not answer.
        """
        wanted = [node_id for node_id in (node_ids or self.node_ids) if not self.is_running(node_id)]
        for node_id in wanted:
            command = self._command(self.directory.config_path(node_id))
            self._children[node_id] = ChildProcess(command, self.directory.log_path(node_id), own_environment())
        await asyncio.gather(*(self._await_answer(node_id) for node_id in wanted))

    async def kill(self, node_id: NodeId, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a node's process a signal that ends it, and wait for its end."""
        await self._children[node_id].end(number)

    def send_signal(self, node_id: NodeId, number: signal.Signals) -> None:
        """Send a node's process a signal, such as SIGSTOP and SIGCONT."""
        self._children[node_id].send_signal(number)

    async def stop(self, node_ids: Iterable[NodeId] | None = None) -> None:
        """Stop nodes (all, if None): each gets SIGTERM, and is killed if it has not ended after 10 seconds."""
        wanted = [node_id for node_id in (node_ids or self.node_ids) if self.is_running(node_id)]
        await asyncio.gather(*(self._children[node_id].stop(STOP_GRACE_SECONDS) for node_id in wanted))

    async def deaths(self) -> AsyncIterator[NodeDied]:
        """A message for each node that ends from now on, until all have ended."""
        async with aclosing(ends(self._children)) as ended:
            async for node_id in ended:
                yield self._death(node_id)

    # --- what it does ------------------------------------------------------------------------------------------------

    async def describe(self, node_id: NodeId, timeout_seconds: float = 2.0) -> log_pb2.DescribeNodeResponse:
        """What a node reports about itself. Raises ApiError if it does not answer."""
        return await describe_node(self.endpoint(node_id), timeout_seconds=timeout_seconds)

    async def answers(self, node_id: NodeId) -> bool:
        """Whether a node answers."""
        with suppress(ApiError):
            await self.describe(node_id)
            return True
        return False

    async def wait_for_leader(self, timeout_seconds: float = LEADER_TIMEOUT_SECONDS) -> NodeId:
        """The leader, as soon as a node reports that it leads and has committed its epoch's first record.

        Raises ApiError LEADER_NOT_AVAILABLE if there is none within the time.
        """

        async def leader() -> NodeId | None:
            found = [node for node in await self._descriptions(self.voter_ids) if node.role == "leader"]
            newest = max(found, key=lambda node: node.current_leader.leader_epoch, default=None)
            if newest is None or newest.high_watermark < 0:
                return None
            return NodeId(newest.replica_key.node_id)

        return await _poll(leader, timeout_seconds, ErrorCode.LEADER_NOT_AVAILABLE, "no voter leads")

    async def wait_until_voters_take_part(self) -> None:
        """Return when no running voter is new or recovers: such a voter cannot replace another one that stops. Raises
        ApiError LEADER_NOT_AVAILABLE if one is still new or recovers after some time (RF-110, RF-112).
        """

        async def all_take_part() -> bool | None:
            running = [node_id for node_id in self.voter_ids if self.is_running(node_id)]
            voters = await self._descriptions(running)
            takes_part = len(voters) == len(running) and not any(node.recovering for node in voters)
            return takes_part or None

        message = "a voter has not become level with a leader"
        await _poll(all_take_part, LEADER_TIMEOUT_SECONDS, ErrorCode.LEADER_NOT_AVAILABLE, message)

    async def newest_epoch(self, timeout_seconds: float = LEADER_TIMEOUT_SECONDS) -> int:
        """The newest epoch that a voter reports. Raises ApiError if no voter answers in time."""

        async def newest() -> int | None:
            voters = await self._descriptions(self.voter_ids)
            return max((node.current_leader.leader_epoch for node in voters), default=None)

        return await _poll(newest, timeout_seconds, ErrorCode.BROKER_NOT_AVAILABLE, "no voter answers")

    async def wait_until_applied(self, end_offset: int, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Return when every running node's state machine has applied everything below `end_offset`."""
        node_ids = [node_id for node_id in self.node_ids if self.is_running(node_id)]

        async def applied() -> bool | None:
            nodes = await self._descriptions(node_ids)
            return (
                len(nodes) == len(node_ids) and all(node.applied_end_offset >= end_offset for node in nodes)
            ) or None

        message = f"not every node has applied offset {end_offset - 1}"
        await _poll(applied, timeout_seconds, ErrorCode.REQUEST_TIMED_OUT, message)

    async def wait_until_level(self) -> None:
        """Return when every running node's state machine has applied all that the leader has committed so far."""
        leader = await self.wait_for_leader()
        await self.wait_until_applied((await self.describe(leader, LEADER_TIMEOUT_SECONDS)).high_watermark)

    async def _descriptions(self, node_ids: Iterable[NodeId]) -> list[log_pb2.DescribeNodeResponse]:
        calls = (self.describe(node_id, 1.0) for node_id in node_ids if self.is_running(node_id))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return [answer for answer in answers if isinstance(answer, log_pb2.DescribeNodeResponse)]

    async def _await_answer(self, node_id: NodeId) -> None:
        child = self._children[node_id]
        answer = asyncio.create_task(
            describe_node(self.endpoint(node_id), timeout_seconds=START_TIMEOUT_SECONDS, wait_for_ready=True)
        )
        death = asyncio.create_task(child.wait())
        try:
            await asyncio.wait((answer, death), return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                raise self._death(node_id)
            node = await answer
        finally:
            answer.cancel()
            death.cancel()
        if (node.cluster_id, node.replica_key.node_id) != (self.cluster_id, node_id):
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"node {node.replica_key.node_id} of cluster {node.cluster_id} answers at {self.endpoint(node_id)};"
                f" stop it, or give node {node_id} another port in {self.directory.config_path(node_id)}",
            )

    def command_by_hand(self, node_id: NodeId) -> str:
        """The command line that runs the node again from any terminal."""
        return shlex.join(["kraftlog", "start", "--config", str(self.directory.config_path(node_id).absolute())])

    def _death(self, node_id: NodeId) -> NodeDied:
        child = self._children[node_id]
        if child.exit_code is not None and child.exit_code < 0:
            return NodeDied(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"node {node_id} was ended by {signal.Signals(-child.exit_code).name};"
                f" start it again: {self.command_by_hand(node_id)}",
            )
        lines = child.last_lines(LOG_LINES)
        told = _ERROR_LINE.fullmatch(lines[-1]) if lines else None
        if told is not None and told["name"] in ErrorCode.__members__:
            return NodeDied(ErrorCode[told["name"]], f"node {node_id} ended: {told['message']}")
        words = " / ".join(lines) or "none"
        return NodeDied(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"node {node_id} ended with code {child.exit_code}, its last words: {words}; see {child.log_path}",
        )


def own_environment() -> dict[str, str]:
    """This process's environment, in which children import the same packages as it does."""
    root = str(Path(__file__).resolve().parents[2])
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not others else os.pathsep.join((root, others))}


async def _poll(
    attempt: Callable[[], Awaitable[Result | None]], timeout_seconds: float, code: ErrorCode, message: str
) -> Result:
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    while asyncio.get_running_loop().time() < deadline:
        result = await attempt()
        if result is not None:
            return result
        await asyncio.sleep(POLL_SECONDS)
    raise ApiError(code, f"{message} after {timeout_seconds:g} s; see the nodes' logs")
