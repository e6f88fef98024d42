"""A peer that can no longer be reached over a channel is resolved again over a new one."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from itertools import count

import grpc
import grpc.aio
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import quorum_pb2, quorum_pb2_grpc
from raft.core.actions import Send
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.messages import FetchRequest, Request, VoteRequest
from raft.core.types import ReplicaKey
from raft.rpc import transport
from raft.rpc.transport import FAILURES_MAX, Outcome, PeerTransport
from tests.raft.nodes import free_port

Context = grpc.aio.ServicerContext[quorum_pb2.FetchRequest, quorum_pb2.FetchResponse]

PEER = Endpoint("peer.test", 9093)
VOTE = VoteRequest(
    cluster_id=None,
    voter_key=None,
    replica_key=ReplicaKey(NodeId(1)),
    replica_epoch=Epoch(1),
    last_epoch=Epoch(0),
    last_offset=Offset(0),
    pre_vote=True,
)
FETCH = FetchRequest(
    cluster_id=None,
    replica_key=ReplicaKey(NodeId(1)),
    current_leader_epoch=Epoch(1),
    fetch_offset=Offset(0),
    last_fetched_epoch=Epoch(0),
    max_wait_ms=0,
    max_bytes=1024,
    high_watermark=Offset(0),
)
REQUESTS = pytest.mark.parametrize("request_", [VOTE, FETCH], ids=["unary calls", "the stream of fetches"])


@REQUESTS
async def test_a_transport_that_is_closed_leaves_no_task_behind(request_: Request) -> None:
    """Python logs an error about a task that its loop's end destroys: "Task was destroyed but it is pending"."""
    before = asyncio.all_tasks()
    peers = PeerTransport(lambda outcome: None, request_timeout_ms=60_000)
    peers.send(Send(1, Endpoint("127.0.0.1", free_port()), request_))
    await asyncio.sleep(0)
    await peers.close()
    assert {task for task in asyncio.all_tasks() if "grpc" not in repr(task.get_coro())} <= before


class Answering(quorum_pb2_grpc.QuorumServiceServicer):
    async def Vote(self, request: quorum_pb2.VoteRequest, context: object) -> quorum_pb2.VoteResponse:
        return quorum_pb2.VoteResponse()

    async def Fetch(
        self, request_iterator: AsyncIterator[quorum_pb2.FetchRequest], context: object
    ) -> AsyncIterator[quorum_pb2.FetchResponse]:
        async for request in request_iterator:
            yield quorum_pb2.FetchResponse(correlation_id=request.correlation_id)


class Names:
    """The addresses of PEER's name; a channel resolves it once, as gRPC does not resolve it again for a long time."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.asked = 0
        self._open = grpc.aio.insecure_channel

    def channel(self, target: str, options: tuple[tuple[str, int], ...]) -> grpc.aio.Channel:
        assert target == str(PEER)
        self.asked += 1
        return self._open(self.address, options=options)


class Sender:
    """Sends requests to PEER, one after the other."""

    def __init__(self) -> None:
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._ids: Iterator[int] = count(1)
        self.transport = PeerTransport(self._outcomes.put_nowait, request_timeout_ms=20_000)

    async def is_answered(self, request: Request) -> bool:
        correlation_id = next(self._ids)
        self.transport.send(Send(correlation_id, PEER, request))
        outcome = await self._outcomes.get()
        assert isinstance(outcome, ResponseReceived | RequestFailed)
        assert outcome.correlation_id == correlation_id
        return isinstance(outcome, ResponseReceived)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(grpc.aio, "insecure_channel", names.channel)
    return names


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    sender = Sender()
    yield sender
    await sender.transport.close()


@pytest.fixture
async def server() -> AsyncIterator[str]:
    server = grpc.aio.server()
    quorum_pb2_grpc.add_QuorumServiceServicer_to_server(Answering(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@REQUESTS
async def test_a_name_that_stands_for_something_again_is_asked_for_again(
    request_: Request, names: Names, sender: Sender, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FAILING_SECONDS_MAX", 0.0)
    for _ in range(FAILURES_MAX):
        assert not await sender.is_answered(request_)
    assert names.asked == 1
    names.address = server
    assert await sender.is_answered(request_)
    answers = 0
    while answers < 2 * FAILURES_MAX:  # one may be lost, as above
        answers += await sender.is_answered(request_)
    assert names.asked == 2


@REQUESTS
async def test_a_peer_is_not_looked_for_all_the_time(
    request_: Request, names: Names, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FAILING_SECONDS_MAX", 3_600.0)
    for _ in range(4 * FAILURES_MAX):
        assert not await sender.is_answered(request_)
    assert names.asked == 1


@REQUESTS
async def test_requests_to_one_peer_share_a_stub(
    request_: Request, names: Names, sender: Sender, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub makes an object for each method of the service: too much for each Fetch."""
    stubs = []

    class Counted(quorum_pb2_grpc.QuorumServiceStub):
        def __init__(self, channel: grpc.aio.Channel) -> None:
            super().__init__(channel)
            stubs.append(self)

    monkeypatch.setattr(quorum_pb2_grpc, "QuorumServiceStub", Counted)
    names.address = server
    answers = 0
    while answers < 5:  # the first connection fails where there is no processor time for it for two seconds
        answers += await sender.is_answered(request_)
    assert (names.asked, len(stubs)) == (1, 1)


@REQUESTS
async def test_a_request_that_is_given_up_before_it_begins_leaves_nothing_behind(request_: Request) -> None:
    """The transport closes in the turn of the loop in which the request is sent. Python warns of work never begun."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sender = Sender()
        sender.transport.send(Send(1, Endpoint("127.0.0.1", free_port()), request_))
        await sender.transport.close()
        del sender
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


async def test_a_fetch_that_fails_says_whether_the_port_is_closed() -> None:
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
    transport = PeerTransport(outcomes.put_nowait, request_timeout_ms=20_000)
    closed = Endpoint("127.0.0.1", free_port())
    transport.send(Send(1, closed, FETCH))
    assert await outcomes.get() == RequestFailed(1, connection_refused=True)
    transport.send(Send(2, closed, VOTE))
    assert await outcomes.get() == RequestFailed(2)
    await transport.close()


async def test_a_server_that_breaks_a_stream_and_listens_on_refuses_nothing() -> None:
    class Breaking(quorum_pb2_grpc.QuorumServiceServicer):
        async def Fetch(
            self, request_iterator: AsyncIterator[quorum_pb2.FetchRequest], context: Context
        ) -> AsyncIterator[quorum_pb2.FetchResponse]:
            await context.abort(grpc.StatusCode.UNAVAILABLE)
            yield quorum_pb2.FetchResponse()

    server = grpc.aio.server()
    quorum_pb2_grpc.add_QuorumServiceServicer_to_server(Breaking(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
    transport = PeerTransport(outcomes.put_nowait, request_timeout_ms=20_000)
    transport.send(Send(1, Endpoint("127.0.0.1", port), FETCH))
    assert await outcomes.get() == RequestFailed(1)
    await transport.close()
    await server.stop(None)
