"""CT-65: a broker that is killed is fenced at once, although its session lasts ten minutes; one that lives is not."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from kraftbase.endpoint import Reply
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from kraftpb.v1.admin_pb2 import BrokerHeartbeatResponse
from raft.rpc.closed_ports import reply_of
from statemachine.query.descriptions import BrokerDescription
from tests.process.broker_process import BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

SESSION_TIMEOUT_MS: Final = 600_000
WITHIN_SECONDS: Final = 60.0
"""However loaded the machine is: a tenth of a session."""
IDS: Final = (91, 92, 93)
ESTABLISHED: Final = "01"


@pytest.fixture(scope="module")
def voters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three voters, for which a silent broker lives for ten minutes."""
    settings = {"broker.session.timeout.ms": SESSION_TIMEOUT_MS}
    cluster = LocalCluster(open_or_create(tmp_path_factory.mktemp("voters"), voters=3, observers=0, settings=settings))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def brokers(voters: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BrokerProcess]]:
    """Three brokers, by id."""
    base = tmp_path_factory.mktemp("brokers")
    found = {broker_id: BrokerProcess(addresses(voters), broker_id, base / str(broker_id)) for broker_id in IDS}
    with found[91].running(), found[92].running(), found[93].running():
        yield found


async def listed(client: AdminClient) -> dict[int, BrokerDescription]:
    return {broker.broker_id: broker for broker in (await client.list_brokers()).brokers}


async def until(
    client: AdminClient, holds: Callable[[dict[int, BrokerDescription]], bool]
) -> dict[int, BrokerDescription]:
    """The brokers as soon as it holds."""
    async with asyncio.timeout(WITHIN_SECONDS):
        while not holds(found := await listed(client)):
            await asyncio.sleep(0.02)
    return found


async def leaders(client: AdminClient, topic: str) -> set[int]:
    described = await client.describe_topics([topic])
    return {partition.leader for partition in described.topics[0].partitions}


async def until_fenced(client: AdminClient, broker_id: int) -> dict[int, BrokerDescription]:
    return await until(client, lambda found: found[broker_id].fenced)


async def test_a_killed_broker_is_fenced_and_its_partitions_get_other_leaders_long_before_its_session_ends(
    voters: LocalCluster, brokers: dict[int, BrokerProcess]
) -> None:
    async with AdminClient(voters.bootstrap_servers) as client:
        await client.create_topics([NewTopic("led", assignments=dict.fromkeys(range(5), IDS))])
        assert await leaders(client, "led") == {91}
        brokers[91].kill()
        found = await until_fenced(client, 91)
        assert [broker_id for broker_id in IDS if found[broker_id].fenced] == [91]
        async with asyncio.timeout(WITHIN_SECONDS):
            while 91 in await leaders(client, "led"):
                await asyncio.sleep(0.02)
        before = found[91].broker_epoch
        brokers[91].start()  # without waiting for a session
        found = await until(client, lambda found: found[91].broker_epoch > before and not found[91].fenced)
        assert not any(found[broker_id].fenced for broker_id in IDS)


async def test_a_paused_broker_keeps_its_session_also_when_its_connection_is_given_up(
    voters: LocalCluster, brokers: dict[int, BrokerProcess]
) -> None:
    """The kernel accepts connections for it. Its peers notice after 15 s that it does not answer their pings."""
    async with AdminClient(voters.bootstrap_servers) as client:
        brokers[92].signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while connected(brokers[92], voters):
                    await asyncio.sleep(0.1)
            brokers[93].kill()  # what follows from the end of the first one's streams has followed when this is fenced
            found = await until_fenced(client, 93)
            assert not found[92].fenced
            assert await listeners_accept(brokers[92])
        finally:
            brokers[92].signal(signal.SIGCONT)
        brokers[93].start()
        await until(client, lambda found: not any(found[broker_id].fenced for broker_id in IDS))


def connected(broker: BrokerProcess, voters: LocalCluster) -> bool:
    """Whether some voter still has a connection of the broker, as the kernel knows it."""
    ports = {endpoint.port for endpoint in voters.bootstrap_servers}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{broker.process.pid}/net/{name}").read_text().splitlines()[1:]:
            _, _, remote, state, *_, inode = line.split()[:10]
            if int(remote.rpartition(":")[2], 16) in ports and state == ESTABLISHED and inode in inodes(broker):
                return True
    return False


def inodes(broker: BrokerProcess) -> set[str]:
    """Of the broker's sockets."""
    found = (str(path.readlink()) for path in Path(f"/proc/{broker.process.pid}/fd").iterdir())
    return {link[len("socket:[") : -1] for link in found if link.startswith("socket:[")}


async def listeners_accept(broker: BrokerProcess) -> bool:
    return await reply_of(broker.endpoint) is Reply.ACCEPTED


class Stranger:
    """A program that lives as a broker does, with a listener and heartbeats of its own."""

    def __init__(self, voters: LocalCluster, broker_id: int) -> None:
        self._voters = voters
        self._broker_id = broker_id
        self._epoch = -1
        self._stack = AsyncExitStack()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._stack.callback(self.listener.close)

    async def connection(self) -> AdminClient:
        return await self._stack.enter_async_context(AdminClient(self._voters.bootstrap_servers))

    async def unfence(self, client: AdminClient) -> None:
        """Register, and send heartbeats until the listener has been looked at, and then one more."""
        port = self.listener.getsockname()[1]
        listeners = [("PLAINTEXT", "127.0.0.1", port)]
        self._epoch = await client.register_broker(self._broker_id, listeners)
        assert not (await self.beat(client)).is_fenced
        self.listener.settimeout(WITHIN_SECONDS)
        looking, _ = await asyncio.to_thread(self.listener.accept)
        with looking:
            assert await asyncio.to_thread(looking.recv, 1) == b""  # it is closed: the controller knows the reply
        await self.beat(client)

    async def beat(self, client: AdminClient) -> BrokerHeartbeatResponse:
        return await client.broker_heartbeat(self._broker_id, self._epoch, self._epoch + 1)

    async def close(self) -> None:
        await self._stack.aclose()


async def test_a_listener_that_refuses_while_a_connection_is_there_costs_nothing(voters: LocalCluster) -> None:
    """One broker's listener is closed, and its stream stays; of the other both end. Only that one is fenced."""
    alive, dead = Stranger(voters, 94), Stranger(voters, 95)
    try:
        async with AdminClient(voters.bootstrap_servers) as client:
            streams = [await alive.connection(), await alive.connection()]
            await alive.unfence(streams[0])
            await alive.beat(streams[1])
            of_dead = await dead.connection()
            await dead.unfence(of_dead)
            for listener in (alive.listener, dead.listener):
                listener.close()
            await streams[0].close()
            await of_dead.close()
            found = await until_fenced(client, 95)
            assert not found[94].fenced
            await streams[1].close()
            assert (await until_fenced(client, 94))[94].fenced
    finally:
        await alive.close()
        await dead.close()


async def test_a_broker_that_connects_again_is_alive_whatever_its_listener_says(voters: LocalCluster) -> None:
    alive, dead = Stranger(voters, 96), Stranger(voters, 97)
    try:
        async with AdminClient(voters.bootstrap_servers) as client:
            first, second, of_dead = await alive.connection(), await alive.connection(), await dead.connection()
            await second.cluster_id()  # it has found the leader
            await alive.unfence(first)
            await dead.unfence(of_dead)
            for listener in (alive.listener, dead.listener):
                listener.close()
            await first.close()
            assert not (await alive.beat(second)).is_fenced
            await of_dead.close()
            assert not (await until_fenced(client, 97))[96].fenced
    finally:
        await alive.close()
        await dead.close()
