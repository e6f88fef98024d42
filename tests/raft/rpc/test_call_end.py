"""How a call ended when the node ends it while it is being written to (grpc#36066)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import grpc.aio

from raft.rpc.call_end import CallEnd

Call = grpc.aio.StreamStreamCall[bytes, bytes]
CALLS = 30
"""Without CallEnd nine of ten end with INTERNAL."""


async def refuse(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room", trailing_metadata=(("why", "full"),))


async def test_the_error_is_the_peers_although_a_write_fails_afterwards() -> None:
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(refuse)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Refuse": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            errors = [await refused_while_it_writes(channel) for _ in range(CALLS)]
    finally:
        await server.stop(0)
    assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {error.details() for error in errors} == {"no room"}
    assert all(("why", "full") in tuple(error.trailing_metadata()) for error in errors)


async def refused_while_it_writes(channel: grpc.aio.Channel) -> grpc.aio.AioRpcError:
    call: Call = channel.stream_stream("/test/Refuse")()
    end = CallEnd(call)
    writing = asyncio.create_task(write_on(call))
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return end.error(error)
    finally:
        await writing
    raise AssertionError("every call is refused")


async def write_on(call: Call) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await call.write(b"request")
