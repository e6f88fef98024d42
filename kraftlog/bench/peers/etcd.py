"""A cluster of three etcd members, with etcd's defaults, and a client of its gRPC API.

Puts go to the leader, one call each; a follower is watched. `proto/kraftpb/etcd/rpc.proto` has the used part of its
API.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.connection import connection_error
from kraftlog.bench.peers.processes import servers
from kraftlog.bench.peers.system import System, Watch, WhenVisible
from kraftlog.local.cluster_directory import free_endpoints
from kraftpb.etcd import rpc_pb2, rpc_pb2_grpc
from raft.rpc.channels import channel_to

MEMBERS: Final = 3
KEY: Final = b"bench"
CREATED: Final = 0
"""The place that stands for the creation of a Watch, from which on it misses nothing. Revisions begin with 1."""
CALL_TIMEOUT_SECONDS: Final = 10.0
STATUS_TIMEOUT_SECONDS: Final = 1.0

_VALUES: Final = itertools.count(1)


class EtcdSystem(System):
    """The operation is Put of one key."""

    def __init__(
        self,
        leader: tuple[Endpoint, grpc.aio.Channel],
        follower: tuple[Endpoint, grpc.aio.Channel],
    ) -> None:
        self._leader, leader_channel = leader
        self._follower, follower_channel = follower
        self._put = rpc_pb2_grpc.KVStub(leader_channel).Put
        self._watch = rpc_pb2_grpc.WatchStub(follower_channel).Watch

    @classmethod
    @asynccontextmanager
    async def running(cls, program: Path, directory: Path) -> AsyncIterator[System]:
        """A new cluster in `directory`, running within the block. Raises ApiError if it does not start."""
        addresses = free_endpoints(2 * MEMBERS)
        clients, peers = addresses[:MEMBERS], addresses[MEMBERS:]
        commands = _commands(program, directory, clients, peers)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(servers("etcd", commands, directory, environment))
            channels = [await stack.enter_async_context(channel_to(endpoint)) for endpoint in clients]
            leader = await running.until(lambda: _leader(channels))
            members = list(zip(clients, channels, strict=True))
            yield cls(members[leader], members[(leader + 1) % MEMBERS])

    async def submit(self) -> int:
        """Put a value and return its revision."""
        request = rpc_pb2.PutRequest(key=KEY, value=str(next(_VALUES)).encode())
        try:
            response = await self._put(request, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise connection_error(self._leader, error) from None
        return response.header.revision

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[WhenVisible]:
        """Watch the key in this process within the block."""
        found = Watch()
        async with found.fed_by(self._follow(found)) as when_visible:
            await when_visible(CREATED)
            yield when_visible

    async def _follow(self, found: Watch) -> None:
        call = self._watch()
        try:
            await call.write(rpc_pb2.WatchRequest(create_request=rpc_pb2.WatchCreateRequest(key=KEY)))
            async for response in call:
                if response.created:
                    found.reached(CREATED)
                if response.events:
                    found.reached(response.events[-1].kv.mod_revision)
        except grpc.aio.AioRpcError as error:
            raise connection_error(self._follower, error) from None


async def _leader(channels: Sequence[grpc.aio.Channel]) -> int | None:
    """Return the index of the member that leads; None until all members agree."""
    stubs = [rpc_pb2_grpc.MaintenanceStub(channel) for channel in channels]
    try:
        answers = await asyncio.gather(
            *(stub.Status(rpc_pb2.StatusRequest(), timeout=STATUS_TIMEOUT_SECONDS) for stub in stubs)
        )
    except grpc.aio.AioRpcError:
        return None
    leaders = {answer.leader for answer in answers}
    member_ids = [answer.header.member_id for answer in answers]
    return member_ids.index(leaders.pop()) if len(leaders) == 1 and leaders <= set(member_ids) else None


def _commands(
    program: Path, directory: Path, clients: Sequence[Endpoint], peers: Sequence[Endpoint]
) -> dict[str, list[str]]:
    """Return the command line of each member. All settings except addresses and names are etcd's defaults."""
    names = [f"etcd-{number}" for number in range(1, MEMBERS + 1)]
    members = ",".join(f"{name}=http://{peer}" for name, peer in zip(names, peers, strict=True))
    return {
        name: [
            *(str(program), "--name", name, "--data-dir", str(directory / name)),
            *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
            *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", members, "--initial-cluster-state", "new"),
        ]
        for name, client, peer in zip(names, clients, peers, strict=True)
    }
