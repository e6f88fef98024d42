"""A state machine of your own on an embedded quorum: three nodes in one process, each with its own counter.

    python -m examples.counter

Every node gives its counter the same committed records in the same order, so all counters end at the same value.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path

from kraftbase.uuids import random_cluster_id
from kraftlog import (
    ApiError,
    BatchReader,
    DataDirectory,
    Endpoint,
    ErrorCode,
    LeaderAndEpoch,
    Listener,
    NodeId,
    PosixFileSystem,
    RaftClient,
    ReplicaKey,
    Voter,
    VoterSet,
    hosted_node,
)


class Counter(Listener):
    """Adds up the numbers in the log."""

    def __init__(self) -> None:
        self.value = 0
        self.changed = asyncio.Event()
        self.leads = asyncio.Event()
        self._node_id: NodeId | None = None

    def on_node(self, node_id: NodeId) -> None:
        """Set the node of this counter, so that the counter can tell whether its node leads."""
        self._node_id = node_id

    async def handle_commit(self, reader: BatchReader) -> None:
        """Add each committed record once, in order."""
        with reader:
            for batch in reader:
                self.value += sum(int(record) for record in batch.records)
        self.changed.set()

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Note whether this node leads. The leader itself is called only after it got all records of earlier epochs."""
        if leader_and_epoch.leader_id == self._node_id:
            self.leads.set()
        else:
            self.leads.clear()

    async def wait_for(self, value: int) -> None:
        """Return when the counter has reached `value`."""
        while self.value < value:
            self.changed.clear()
            await self.changed.wait()


def free_port() -> int:
    """Return a port that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def count(base: Path, numbers: list[int]) -> list[int]:
    """Append `numbers` to a log of three voters below `base`; return the final values of the nodes' counters."""
    cluster_id = random_cluster_id()
    voters = VoterSet(Voter(ReplicaKey(NodeId(node_id)), Endpoint("127.0.0.1", free_port())) for node_id in (1, 2, 3))
    counters = [Counter() for _ in voters.voters()]
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for voter, counter in zip(voters.voters(), counters, strict=True):
            node_id = voter.key.node_id
            path = str(base / f"node-{node_id}")
            DataDirectory.format(PosixFileSystem(), path, cluster_id=cluster_id, node_id=node_id)
            directory = stack.enter_context(contextlib.closing(DataDirectory.open(PosixFileSystem(), path)))
            node = await stack.enter_async_context(hosted_node(directory, endpoint=voter.endpoint, voters=voters))
            counter.on_node(node_id)
            clients.append(RaftClient(node))
            clients[-1].register(counter)
        for number in numbers:
            await append_at_leader(clients, counters, str(number).encode())
        async with asyncio.timeout(30):
            await asyncio.gather(*(counter.wait_for(sum(numbers)) for counter in counters))
    return [counter.value for counter in counters]


async def append_at_leader(clients: list[RaftClient], counters: list[Counter], record: bytes) -> None:
    """Append one record at the node that leads; wait for an election if no node leads."""
    async with asyncio.timeout(30):
        while True:
            waits = [asyncio.ensure_future(counter.leads.wait()) for counter in counters]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            leader = next(index for index, wait in enumerate(waits) if wait.done())
            for wait in waits:
                wait.cancel()
            try:
                await clients[leader].append([record])
            except ApiError as error:
                if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise
            else:
                return


def main() -> None:
    """Count to 5050 on three nodes."""
    with tempfile.TemporaryDirectory() as base:
        values = asyncio.run(count(Path(base), list(range(1, 101))))
    print(f"1 + 2 + ... + 100, on every node: {values}")


if __name__ == "__main__":
    main()
