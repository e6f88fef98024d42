"""Admission: every call of a node's server passes through here, and holds a place until it ends.

Calls of replicas (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot) have places that clients cannot take.
The key in a call's first message shows its sender. Until that message the sender is unknown, and if there are too many
such calls, the oldest is ended. So 4,000 empty Fetch streams do not affect a voter's stream: the voter sends its key at
once, in its first message. Without TLS a key is only a claim; raft.core checks it where votes and fetches are counted.
If too many calls claim to be one voter's, the oldest is ended: the voter may have reconnected.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from raft.core.types import ReplicaKey
from raft.core.voters import VoterSet
from raft.rpc import codec
from raft.rpc.calls import CURRENT_CALL, AnswerBudget, Call
from raft.rpc.errors import abort
from raft.rpc.limits import ServiceLimits, over_limit, setting_of
from raft.rpc.read_lane import BYTES_PER_SECOND, CALL_SECONDS, MESSAGE_SECONDS, ReadLane

UNNAMED_CALLS_MAX: Final = 256
"""The limit on calls of replicas whose first message has not arrived."""

VOTER_CALLS_MAX: Final = 64
"""The limit on calls that name the same voter: it has one stream; dead connections are noticed within 15 s."""

TELL_SECONDS: Final = 10.0
"""The shortest time between two log messages about refusals."""

REPLICAS: Final = "replica_streams_max"
OPERATIONS: Final = "operation_streams_max"
READS: Final = "reads_max"

_LIMIT_OF_METHOD: Final = {
    **dict.fromkeys(("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot"), REPLICAS),
    "Execute": OPERATIONS,
    **dict.fromkeys(("Watch", "ServerReflectionInfo"), "watch_streams_max"),
}
"""Every other method is a read."""

_GAVE_WAY: Final = ApiError(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many calls of replicas are open; the oldest was ended"
)

_ELSEWHERE: Final = ApiError(
    ErrorCode.INVALID_REQUEST,
    "replicas are served at this node's controller.listener; take its address from controller.quorum.voters",
)

logger = structlog.get_logger(__name__)


class Admission(grpc.aio.ServerInterceptor):
    """See the module. Use it on one event loop only."""

    def __init__(
        self, limits: ServiceLimits, voters: VoterSet | None = None, written: Callable[[], int] = lambda: 0
    ) -> None:
        """`written` returns the number of records written: while it grows, reads get a share of the time."""
        self.limits: Final = limits
        self._voters = voters
        self.lane: Final = ReadLane(limits.read_share_percent / 100, written)
        names = ("answer_bytes_max", "connection_answer_bytes_max")
        self.answers: Final = AnswerBudget({name: getattr(limits, name) for name in names}, self._note)
        name = "replica_answer_bytes_max"
        self._replica_answers = AnswerBudget({name: getattr(limits, name)}, self._note)
        self._calls: Counter[tuple[str, str]] = Counter()
        """By limit and connection; the totals are under an empty name."""
        self._unnamed: dict[Call, None] = {}
        """Calls of replicas without a message yet, the oldest first."""
        self._named: dict[int, dict[Call, None]] = {}
        """Calls that name a voter, by its id, the oldest first."""
        self.refused: Final[Counter[str]] = Counter()
        """How many calls were refused, by limit."""
        self._told_at = -TELL_SECONDS

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's own handler, behind admission."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        limit = _LIMIT_OF_METHOD.get(handler_call_details.method.rpartition("/")[2], READS)
        budget = self._replica_answers if limit == REPLICAS else self.answers
        call = Call(limit, asyncio.current_task(), budget, self.lane)
        CURRENT_CALL.set(call)
        refusal = self._enter(call)
        return _handler(_Refused(refusal) if refusal is not None else _Served(self, call, handler), handler)

    def _enter(self, call: Call) -> ApiError | None:
        """Admit a call of which only the method is known. Return the error if it is refused."""
        if call.task is not None:
            call.task.add_done_callback(lambda _: self._leave(call))
        if call.limit == REPLICAS:
            self._unnamed[call] = None
            if len(self._unnamed) > UNNAMED_CALLS_MAX:
                self._give_way(next(iter(self._unnamed)))
            return None
        self._calls["calls_max", ""] += 1
        return self._refusal("calls_max") if self._calls["calls_max", ""] > self.limits.calls_max else None

    def _leave(self, call: Call) -> None:
        """Record that the call has ended, for any reason."""
        self._forget(call)
        if call.limit != REPLICAS:
            self._calls["calls_max", ""] -= 1
        if call.is_counted:
            self._count(call, -1)
        call.give_back()

    def seat(self, call: Call) -> None:
        """Count a call whose connection is known against its limits. Raises ApiError."""
        if self._calls[call.limit, ""] >= getattr(self.limits, call.limit):
            raise self._refusal(call.limit)
        of_connection = self._calls[call.limit, call.connection]
        if call.limit == READS and of_connection >= self.limits.connection_reads_max:
            raise self._refusal("connection_reads_max")
        call.is_counted = True
        self._count(call, 1)

    def name(self, call: Call, key: ReplicaKey | None) -> None:
        """Process the first message of a replica's call, which names that key. Raises ApiError."""
        self._unnamed.pop(call, None)
        if key is None or self._voters is None or not _has_a_voters_place(self._voters, key):
            self.seat(call)
            return
        call.voter_id = key.node_id
        calls = self._named.setdefault(key.node_id, {})
        calls[call] = None
        if len(calls) > VOTER_CALLS_MAX:
            self._give_way(next(iter(calls)))

    def _give_way(self, call: Call) -> None:
        self._forget(call)
        call.gives_way = True
        self._note(REPLICAS)
        if call.task is not None:
            call.task.cancel()

    def _forget(self, call: Call) -> None:
        self._unnamed.pop(call, None)
        if call.voter_id is not None:
            self._named[call.voter_id].pop(call, None)

    def _count(self, call: Call, change: int) -> None:
        for name in ("", call.connection):
            self._calls[call.limit, name] += change
            if not self._calls[call.limit, name]:
                del self._calls[call.limit, name]

    def _refusal(self, limit: str) -> ApiError:
        self._note(limit)
        return over_limit(limit, getattr(self.limits, limit))

    def _note(self, limit: str) -> None:
        """Count a refusal, and log all counts at intervals."""
        self.refused[limit] += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            counts = {setting_of(name): count for name, count in self.refused.items()}
            logger.warning("calls are refused; counts since the start of the process", **counts)


class ReplicasElsewhere(grpc.aio.ServerInterceptor):
    """Refuses calls of replicas on the listener for clients: replicas have a listener of their own."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The method's own handler, unless it is for replicas."""
        if _LIMIT_OF_METHOD.get(handler_call_details.method.rpartition("/")[2]) != REPLICAS:
            return await continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(_Refused(_ELSEWHERE).stream_stream)


def _has_a_voters_place(voters: VoterSet, key: ReplicaKey) -> bool:
    """Match by id and directory id; the leader of Begin- and EndQuorumEpoch has only the id."""
    return voters.is_voter(key) if key.directory_id is not None else voters.get(key.node_id) is not None


def _key_of(request: Any) -> ReplicaKey | None:
    """The sender's key, as far as the request has it."""
    try:
        if hasattr(request, "replica_key"):
            return codec.replica_key_from_proto(request.replica_key) if request.HasField("replica_key") else None
        return ReplicaKey(NodeId(request.leader_id)) if hasattr(request, "leader_id") else None
    except ApiError:
        return None


class _Served:
    """An admitted call, as gRPC calls it. Answers of streams are encoded here: only their bytes are kept."""

    def __init__(self, admission: Admission, call: Call, handler: Any) -> None:
        self._admission = admission
        self._call = call
        self._handler = handler
        self._waits_for_turn = call.limit not in (REPLICAS, OPERATIONS)

    async def unary_unary(self, request: Any, context: Any) -> Any:
        """One request, one answer."""
        try:
            self._let_in(request, context)
            if self._waits_for_turn:
                await self._admission.lane.turn(self._call.connection, CALL_SECONDS)
            response = await self._handler.unary_unary(request, context)
            self._take_room(response.ByteSize())  # until the call ends
            return response
        except ApiError as error:
            await abort(context, error)

    async def unary_stream(self, request: Any, context: Any) -> None:
        """One request, a stream of answers."""
        try:
            self._let_in(request, context)
            if self._waits_for_turn:
                await self._admission.lane.turn(self._call.connection, CALL_SECONDS)
            await self._send(self._handler.unary_stream(request, context), context)
        except ApiError as error:
            await abort(context, error)

    async def written_by_itself(self, request: Any, context: Any) -> None:
        """One request, and a method of gRPC's own that writes its answers itself; they are small."""
        try:
            self._let_in(request, context)
        except ApiError as error:
            await abort(context, error)
        await self._handler.unary_stream(request, context)

    async def stream_stream(self, requests: AsyncIterator[Any], context: Any) -> None:
        """A stream of requests and a stream of answers."""
        requests = _DecodedRequests(requests, self._handler.request_deserializer)
        try:
            if self._call.limit == REPLICAS:
                requests = self._named(requests, context)
            else:
                self._let_in(None, context)
            await self._send(self._handler.stream_stream(requests, context), context)
        except ApiError as error:
            await abort(context, error)
        except asyncio.CancelledError:
            if self._call.gives_way and self._call.task is not None:
                self._call.task.uncancel()
                await abort(context, _GAVE_WAY)
            raise

    async def _named(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        is_named = False
        async for request in requests:
            if not is_named:
                is_named = True
                self._let_in(request, context)
            yield request

    async def _send(self, responses: Any, context: Any) -> None:
        """Send each of `responses`; the next one is requested when it is written."""
        encode = self._handler.response_serializer
        async with aclosing(responses):
            async for response in responses:
                data = encode(response)
                del response  # while a response is sent, only its bytes are kept
                try:
                    taken = self._take_room(len(data))
                except ApiError:
                    del data  # its traceback must not keep them
                    raise
                if self._waits_for_turn:
                    await self._admission.lane.turn(self._call.connection, MESSAGE_SECONDS)
                await context.write(data)
                del data
                self._call.give_back(taken)

    def _take_room(self, size_bytes: int) -> int:
        if self._waits_for_turn:
            self._call.charge(size_bytes / BYTES_PER_SECOND)
        return 0 if self._call.limit == OPERATIONS else self._call.hold(size_bytes)

    def _let_in(self, request: Any, context: Any) -> None:
        self._call.connection = context.peer()
        if self._call.limit == REPLICAS:
            self._admission.name(self._call, _key_of(request))
        else:
            self._admission.seat(self._call)


class _DecodedRequests:
    """A stream of requests, decoded here: gRPC would keep a decoded request until the next one arrives.

    Decoded, a request may be thirty times as large.
    """

    def __init__(self, encoded: AsyncIterable[bytes], decode: Callable[[bytes], Any]) -> None:
        self._encoded = encoded
        self._iterator: AsyncIterator[bytes] | None = None
        """Created when it is needed: gRPC's begins to receive at once."""
        self._decode = decode

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self._iterator = self._iterator or aiter(self._encoded)
        return self._decode(await anext(self._iterator))


class _Refused:
    """A refused call."""

    def __init__(self, refusal: ApiError) -> None:
        self._refusal = refusal

    async def _refuse(self, request: Any, context: Any) -> None:
        await abort(context, self._refusal)

    unary_unary = unary_stream = written_by_itself = stream_stream = _refuse


def _handler(served: _Served | _Refused, handler: Any) -> Any:
    """Return gRPC's handler for `served`, with the messages of `handler`."""
    decode, encode = handler.request_deserializer, handler.response_serializer
    if handler.stream_stream is not None:
        return grpc.stream_stream_rpc_method_handler(served.stream_stream)
    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(served.unary_unary, decode, encode)
    if handler.unary_stream is None:
        return handler  # no method here reads a stream and sends one answer
    if inspect.isasyncgenfunction(handler.unary_stream):
        return grpc.unary_stream_rpc_method_handler(served.unary_stream, decode)
    return grpc.unary_stream_rpc_method_handler(served.written_by_itself, decode, encode)
