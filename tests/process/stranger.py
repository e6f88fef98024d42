"""A program that is no member of a cluster and takes what it can get: `stranger.py KIND HOST:PORT COUNT`.

It says "under way" when everything is open, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import grpc.aio

from kraftpb.v1 import admin_pb2, admin_pb2_grpc, common_pb2, log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc

STREAMS_PER_CONNECTION = 20


def channel(address: str, number: int) -> grpc.aio.Channel:
    """A connection of its own: gRPC shares one among channels with the same options."""
    return grpc.aio.insecure_channel(
        address, options=(("kraftlog.test", number), ("grpc.max_receive_message_length", -1))
    )


async def empty_streams(address: str, count: int, method: str) -> list[Any]:
    """Streams without a message, as many as one connection takes, then the next."""
    kept: list[Any] = []
    for number in range(0, count, 1_000):
        shared = channel(address, number)
        calls = [shared.stream_stream(method)() for _ in range(min(1_000, count - number))]
        kept += [shared, calls]
        await asyncio.gather(*(call.wait_for_connection() for call in calls), return_exceptions=True)
    return kept


async def unread(address: str, count: int, kind: str) -> list[Any]:
    """Streams that are asked for much and not read."""
    calls: list[Any] = []
    for number in range(count):
        if number % STREAMS_PER_CONNECTION == 0:
            shared = channel(address, number)
        if kind == "unread-watches":
            calls.append(log_pb2_grpc.LogServiceStub(shared).Watch(log_pb2.WatchRequest()))
            continue
        call = quorum_pb2_grpc.QuorumServiceStub(shared).Fetch()
        calls.append(call)
        node = await log_pb2_grpc.LogServiceStub(shared).DescribeNode(log_pb2.DescribeNodeRequest())
        key = common_pb2.ReplicaKey(node_id=1_000 + number, directory_id=bytes(15) + b"\1")
        request = quorum_pb2.FetchRequest(
            correlation_id=1,
            replica_key=key,
            current_leader_epoch=node.current_leader.leader_epoch,
            max_bytes=8 * 1024 * 1024,
        )
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it may be refused
            for _ in range(4):
                await call.write(request)
    return calls


async def read(address: str, number: int) -> None:
    """Read in a closed loop; what is refused is asked for again."""
    stub = admin_pb2_grpc.AdminServiceStub(channel(address, number))
    while True:
        try:
            await stub.ListTopics(admin_pb2.ListTopicsRequest())
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.01)


async def main(kind: str, address: str, count: int) -> None:
    """Do it."""
    if kind == "reads":
        tasks: list[Any] = [asyncio.create_task(read(address, number)) for number in range(count)]
    elif kind.startswith("unread"):
        tasks = await unread(address, count, kind)
    else:
        method = {
            "empty-fetches": "/kraftpb.v1.QuorumService/Fetch",
            "empty-executes": "/kraftpb.v1.AdminService/Execute",
        }[kind]
        tasks = await empty_streams(address, count, method)
    print("under way", flush=True)  # noqa: T201
    await asyncio.Event().wait()
    del tasks


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
