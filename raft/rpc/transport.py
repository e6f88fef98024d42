"""Sends a replica's requests: one channel per peer, one stream for fetches, unary calls for the rest.

`PeerTransport.send` executes the core's Send actions and delivers ResponseReceived or RequestFailed, at most once for
each. It promises nothing else: no order between peers, no delivery. The core has the request timeout and the back-off.

Fetches go over one long-lived stream, to the peer of the last fetch. A stream with an unanswered fetch is abandoned
when the next fetch is sent: the answer was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftpb.v1 import quorum_pb2, quorum_pb2_grpc
from raft.core.actions import Send
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Response,
    VoteRequest,
)
from raft.rpc import codec
from raft.rpc.channels import channel_to
from raft.rpc.closed_ports import refuses_connections

Message = TypeVar("Message")
Outcome: TypeAlias = ResponseReceived | RequestFailed
FetchCall: TypeAlias = grpc.aio.StreamStreamCall[quorum_pb2.FetchRequest, quorum_pb2.FetchResponse]

CHANNELS_MAX: Final = 64
"""How many channels are kept open. Peers are few; unreachable addresses that peers named must not accumulate."""

FAILURES_MAX: Final = 5
FAILING_SECONDS_MAX: Final = 3.0
"""A channel is replaced before the next request if this many requests in a row, over this long, failed to reach the
peer.

gRPC waits up to two minutes before it resolves an unresolved name again, and no option changes that; a new channel
resolves the name at once. In this time the channel has tried at least once more to connect.
"""


class PeerTransport:
    """Carries requests to peers. Lives on one event loop; `deliver` is called there."""

    def __init__(self, deliver: Callable[[Outcome], None], *, request_timeout_ms: int) -> None:
        self._deliver = deliver
        self._timeout_seconds = request_timeout_ms / 1000
        self._peers: dict[Endpoint, _Peer] = {}
        self._fetch_stream: _FetchStream | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._is_probing = False

    def send(self, send: Send) -> None:
        """Send one request; its outcome is delivered later, never within this call."""
        if self._closed:
            return
        peer = self._peer(send.destination)
        stub = peer.stub
        match send.request:
            case FetchRequest():
                self._fetch(peer, send)
            case FetchSnapshotRequest():
                snapshot_message = codec.fetch_snapshot_request_to_proto(send.request)
                fetch_snapshot = stub.FetchSnapshot(snapshot_message, timeout=self._timeout_seconds)
                self._start(self._finish(send, peer, fetch_snapshot, codec.fetch_snapshot_response_from_proto))
            case VoteRequest():
                call = stub.Vote(codec.vote_request_to_proto(send.request), timeout=self._timeout_seconds)
                self._start(self._finish(send, peer, call, codec.vote_response_from_proto))
            case BeginQuorumEpochRequest():
                message = codec.begin_quorum_epoch_request_to_proto(send.request)
                begin = stub.BeginQuorumEpoch(message, timeout=self._timeout_seconds)
                self._start(self._finish(send, peer, begin, codec.begin_quorum_epoch_response_from_proto))
            case EndQuorumEpochRequest():
                end_message = codec.end_quorum_epoch_request_to_proto(send.request)
                end = stub.EndQuorumEpoch(end_message, timeout=self._timeout_seconds)
                self._start(self._finish(send, peer, end, codec.end_quorum_epoch_response_from_proto))
            case _:
                raise TypeError(f"a replica does not send {type(send.request).__name__}")

    async def close(self) -> None:
        """Abandon all requests in progress and close every channel."""
        self._closed = True
        if self._fetch_stream is not None:
            self._fetch_stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._peers.values():
            await peer.channel.close()

    def _peer(self, destination: Endpoint) -> _Peer:
        peer = self._peers.get(destination)
        if peer is not None and peer.is_out_of_reach:
            self._forget(destination)
            peer = None
        if peer is None:
            if len(self._peers) >= CHANNELS_MAX:
                self._forget(next(iter(self._peers)))
            peer = self._peers[destination] = _Peer(channel_to(destination))
        return peer

    def _forget(self, destination: Endpoint) -> None:
        self._start(self._peers.pop(destination).channel.close())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, send: Send, peer: _Peer, call: Awaitable[Message], decode: Callable[[Message], Response]
    ) -> None:
        try:
            response = decode(await call)
        except (grpc.RpcError, ApiError) as error:
            self._failed(send, peer, error)
        else:
            peer.answered()
            self._deliver(ResponseReceived(send.correlation_id, response))

    def _fetch(self, peer: _Peer, send: Send) -> None:
        stream = self._fetch_stream
        if stream is None or not stream.is_idle or stream.peer is not peer:
            if stream is not None:
                stream.close()
            stream = self._fetch_stream = _FetchStream(
                peer, peer.stub.Fetch(), self._deliver, self._failed, self._start
            )
            self._start(stream.run())
        stream.send(send)

    def _failed(self, send: Send, peer: _Peer, error: Exception | None) -> None:
        """Report a failure; for a fetch also whether the peer's port is closed: then its leader may be abandoned."""
        peer.failed(error)
        is_fetch = isinstance(send.request, FetchRequest | FetchSnapshotRequest)
        if is_fetch and _is_unavailable(error) and not self._is_probing:
            self._is_probing = True
            self._start(self._report_with_evidence(send))
        else:
            self._deliver(RequestFailed(send.correlation_id))

    async def _report_with_evidence(self, send: Send) -> None:
        # gRPC reports UNAVAILABLE for a closed port, a broken connection and a silent machine alike. At most one probe
        # runs at a time, so that a name service that hangs does not accumulate them.
        is_refused = False
        try:
            is_refused = await refuses_connections(send.destination)
        finally:
            self._is_probing = False
            if not self._closed:
                self._deliver(RequestFailed(send.correlation_id, is_refused))


def _is_unavailable(error: Exception | None) -> bool:
    return isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.UNAVAILABLE


class _Peer:
    """A channel with its stub, and for how long the peer has not been reached over it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub = quorum_pb2_grpc.QuorumServiceStub(channel)
        self._failures = 0
        self._failing_since = 0.0

    @property
    def is_out_of_reach(self) -> bool:
        """Whether the channel must be replaced."""
        failing_seconds = asyncio.get_running_loop().time() - self._failing_since
        return self._failures >= FAILURES_MAX and failing_seconds >= FAILING_SECONDS_MAX

    def answered(self) -> None:
        """Record that the peer was reached."""
        self._failures = 0

    def failed(self, error: Exception | None) -> None:
        """Record a failed request. A late or refused one does not count: the peer was reached, or may still be."""
        if _is_unavailable(error):
            if self._failures == 0:
                self._failing_since = asyncio.get_running_loop().time()
            self._failures += 1


class _FetchStream:
    """One Fetch stream: at most one fetch is unanswered."""

    def __init__(
        self,
        peer: _Peer,
        call: FetchCall,
        deliver: Callable[[Outcome], None],
        failed: Callable[[Send, _Peer, Exception | None], None],
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`start` runs a coroutine, and keeps its task: a loop that ends before the task would destroy it."""
        self.peer = peer
        self._call = call
        self._deliver = deliver
        self._failed = failed
        self._unanswered: Send | None = None
        self._ended = False
        self._start = start

    @property
    def is_idle(self) -> bool:
        """Whether the next fetch may go over this stream."""
        return not self._ended and self._unanswered is None

    def send(self, send: Send) -> None:
        """Write one fetch; `is_idle` must hold."""
        self._unanswered = send
        message = codec.fetch_request_to_proto(send.correlation_id, send.request)  # type: ignore[arg-type]
        self._start(self._write_one(message))

    async def _write_one(self, message: quorum_pb2.FetchRequest) -> None:
        try:
            await self._call.write(message)
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            self._fail(error)  # `run` notices the stream's end as well, but maybe later

    async def run(self) -> None:
        """Read answers until the stream ends, then fail the unanswered fetch."""
        try:
            while True:
                message = await self._call.read()
                if message is grpc.aio.EOF:
                    return
                self._answer(message)  # type: ignore[arg-type]
        except (grpc.RpcError, ApiError) as error:
            self._fail(error)
        finally:
            self._fail()
            self.close()

    def close(self) -> None:
        """End the stream without an outcome for the unanswered fetch, which the core has abandoned."""
        self._ended = True
        self._unanswered = None
        self._call.cancel()

    def _answer(self, message: quorum_pb2.FetchResponse) -> None:
        if self._unanswered is None or message.correlation_id != self._unanswered.correlation_id:
            return
        response = codec.fetch_response_from_proto(message)
        self._unanswered = None
        self.peer.answered()
        self._deliver(ResponseReceived(message.correlation_id, response))

    def _fail(self, error: Exception | None = None) -> None:
        self._ended = True
        if self._unanswered is not None:
            send, self._unanswered = self._unanswered, None
            self._failed(send, self.peer, error)
