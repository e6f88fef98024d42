"""Operations that are larger than a request may be, and what is kept of those that arrive."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import grpc
import grpc.aio
import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.server.operation_stream_server import LARGE_BATCHES_MAX, OperationStreamServer
from kraftpb.v1 import admin_pb2
from raft.rpc.errors import ERROR_KEY
from tests.kraftlog.admin.server.served import Served, execute, numbered, read
from tests.statemachine.builders import (
    create,
    delete,
)
from tests.statemachine.conftest import errors
from tests.statemachine.waiting import until


def in_pieces(batch: admin_pb2.OperationBatch) -> list[admin_pb2.OperationBatch]:
    data = batch.SerializeToString()
    pieces = [data[start : start + 60_000] for start in range(0, len(data), 60_000)]
    return [admin_pb2.OperationBatch(piece=piece, is_last_piece=piece is pieces[-1]) for piece in pieces]


async def test_operations_that_are_larger_than_a_request_may_be_come_in_pieces(served: Served) -> None:
    names = [f"{number}-" + "x" * 200 for number in range(1_000)]
    call = served.stub.Execute()
    for message in in_pieces(numbered(create(*names))):
        await call.write(message)
    assert errors((await read(call)).results[0]) == []
    assert errors(await execute(served, delete(*names))) == []  # a client does the same


async def test_a_message_that_is_larger_than_a_request_may_be_ends_its_stream_only(served: Served) -> None:
    call = served.stub.Execute()
    await call.write(numbered(create("x" * 70_000)))
    assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert errors(await execute(served, create("a"))) == []


@pytest.mark.parametrize(
    ("messages", "code", "words"),
    [
        ([admin_pb2.OperationBatch(piece=b"x")], ErrorCode.INVALID_REQUEST, "lacks its last piece"),
        ([admin_pb2.OperationBatch(piece=b"x"), numbered(create("a"))], ErrorCode.INVALID_REQUEST, "its last piece"),
        ([admin_pb2.OperationBatch(piece=b"\xff", is_last_piece=True)], ErrorCode.INVALID_REQUEST, "not a batch"),
        ([admin_pb2.OperationBatch(piece=b"x" * 60_000)] * 280, ErrorCode.RECORD_LIST_TOO_LARGE, "16777216 bytes"),
    ],
)
async def test_pieces_that_are_no_batch_end_their_stream_with_the_reason(
    served: Served, messages: list[admin_pb2.OperationBatch], code: ErrorCode, words: str
) -> None:
    call = served.stub.Execute()
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for message in messages:
            await call.write(message)
        await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
        await call.read()
    assert (ERROR_KEY, str(int(code))) in tuple(refused.value.trailing_metadata() or ())


async def test_a_batch_in_pieces_that_does_not_end_gives_its_place_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More streams than places: each place is free after the time for one batch, and the last ones have their turn."""
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.LARGE_BATCH_SECONDS_MAX", 0.3)
    calls = [served.stub.Execute() for _ in range(3 * LARGE_BATCHES_MAX)]
    for call in calls:
        await call.write(admin_pb2.OperationBatch(piece=b"x"))
    timed_out = (ERROR_KEY, str(int(ErrorCode.REQUEST_TIMED_OUT)))
    assert all([timed_out in tuple(await call.trailing_metadata()) for call in calls])


async def test_what_is_decoded_is_not_kept_while_the_next_message_or_room_for_answers_is_awaited(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoded, 64 KiB of empty operations are 2 MiB: too much for each of 2,000 streams."""
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.UNREAD_RESULTS_MAX", 10)
    monkeypatch.setattr("kraftlog.admin.server.operation_stream_server.UNREAD_BYTES_MAX", 1_000)
    decoded: list[admin_pb2.OperationBatch] = []
    take_all = OperationStreamServer._take_all

    async def noted(stream: OperationStreamServer, held: list[admin_pb2.OperationBatch]) -> None:
        decoded.append(held[0])
        await take_all(stream, held)

    monkeypatch.setattr(OperationStreamServer, "_take_all", noted)

    def only_here() -> bool:
        return [sys.getrefcount(batch) for batch in decoded] == [3] * len(decoded)  # the list, `batch`, the argument

    call = served.stub.Execute()
    await call.write(numbered(create("a")))
    await read(call)
    await until(lambda: len(decoded) == 1 and only_here())
    waiting = asyncio.Event()

    async def noted_wait(stream: OperationStreamServer) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(OperationStreamServer, "_wait_for_room", noted_wait)
    await call.write(numbered(*(admin_pb2.Operation() for _ in range(3_000))))
    await asyncio.wait_for(waiting.wait(), 60)
    await until(lambda: len(decoded) == 2 and only_here())
    call.cancel()
