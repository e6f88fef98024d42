"""The effects of the channel options, over real sockets."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kraftlog.admin.client.connection import LOCAL_CHANNEL_OPTIONS
from raft.rpc.options import CHANNEL_OPTIONS, SERVER_OPTIONS
from tests.kraftlog.command_line import environment

GREETING_SECONDS: Final = 0.6
"""How late the first bytes arrive: over a slow link, or on a machine without processor time for a moment."""

SERVER: Final = """
import asyncio
import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc
from raft.rpc.options import SERVER_OPTIONS

async def serve():
    server = grpc.aio.server(options=SERVER_OPTIONS)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()

asyncio.run(serve())
"""


@pytest.mark.parametrize("options", [CHANNEL_OPTIONS, LOCAL_CHANNEL_OPTIONS], ids=["nodes", "command line"])
async def test_a_peer_that_is_late_to_greet_is_waited_for(options: tuple[tuple[str, int], ...]) -> None:
    async with late_server() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.process
@pytest.mark.parametrize("options", [CHANNEL_OPTIONS, LOCAL_CHANNEL_OPTIONS], ids=["nodes", "command line"])
async def test_a_stream_to_a_peer_that_stands_still_ends(options: tuple[tuple[str, int], ...]) -> None:
    quicker = {**dict(options), "grpc.keepalive_time_ms": 500}  # to the ping, not to its end
    async with (
        another_process_that_serves() as (process, port),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=tuple(quicker.items())) as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(grpc.aio.AioRpcError) as end:
            async with asyncio.timeout(30):  # half of what gRPC takes by default
                await watch.read()
    assert end.value.code() is grpc.StatusCode.UNAVAILABLE


@asynccontextmanager
async def another_process_that_serves() -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A server of health in a process of its own, and its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER), env=environment(), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process, int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def late_server() -> AsyncIterator[int]:
    """A server behind a relay that holds back the server's first bytes."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    target = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, to_server, 0.0), copy(from_server, writer, GREETING_SECONDS))

    relaying = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield relaying.sockets[0].getsockname()[1]
    finally:
        relaying.close()
        await server.stop(None)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_seconds: float) -> None:
    try:
        first = await reader.read(65_536)
        await asyncio.sleep(late_seconds)
        writer.write(first)
        while data := await reader.read(65_536):
            writer.write(data)
    except ConnectionError:  # the client is done
        pass
    finally:
        writer.close()
