"""Readers in a closed loop, in a separate process: `python -m kraftlog.bench.readers HOST:PORT COUNT`.

It prints a line when each reader has read once, and then reads until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.observe import parse_endpoint
from raft.rpc.channels import channel_to
from raft.rpc.options import CHANNEL_OPTIONS

UNDER_WAY: Final = "under way"

REFUSED_WAIT_SECONDS: Final = 0.01


async def main(endpoint: Endpoint, count: int) -> None:
    """Read with `count` connections, until the process is killed."""
    have_read = [asyncio.Event() for _ in range(count)]
    tasks = [asyncio.create_task(_read(endpoint, number, event)) for number, event in enumerate(have_read)]
    await asyncio.gather(*(event.wait() for event in have_read))
    sys.stdout.write(UNDER_WAY + "\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)


async def _read(endpoint: Endpoint, number: int, has_read: asyncio.Event) -> None:
    # gRPC shares one connection among channels with the same options.
    async with channel_to(endpoint, (*CHANNEL_OPTIONS, ("kraftlog.reader", number))) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        while True:
            try:
                await stub.ListTopics(admin_pb2.ListTopicsRequest())
                has_read.set()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(REFUSED_WAIT_SECONDS)  # before the next try


if __name__ == "__main__":
    asyncio.run(main(parse_endpoint(sys.argv[1]), int(sys.argv[2])))
