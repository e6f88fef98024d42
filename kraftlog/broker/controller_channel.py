"""The broker's way to the controller: operations of clients and of the broker itself, while others go on.

At most `IN_FLIGHT_MAX` are with the controller at a time, and `WAITING_MAX` wait for their turn. Each has a deadline,
the wait included. Who leads, and that the leader changes, is the channel's business: clients of Kafka's protocol see
REQUEST_TIMED_OUT when the controller has not answered in time, as in Kafka, whose brokers pass requests on the same way
(KIP-590).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import OnDone, Runtime, Timer
from kraftlog.admin.client.operation_stream import NotSent, OutcomeUnknown
from kraftlog.broker.shell.ports import OnAnswer, OnResult
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.quorum_pb2 import DescribeQuorumResponse

IN_FLIGHT_MAX: Final = 100
WAITING_MAX: Final = 1_000

TIMEOUT_MS_DEFAULT: Final = 30_000
"""Kafka's `request.timeout.ms`: for requests that name no time."""

TIMEOUT_MS_MAX: Final = 60_000
"""As long as a Kafka broker tries to pass a request on."""

_NO_LEADER: Final = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""What is no business of clients: the controller was not found in time."""

Send = Callable[[int, OnAnswer[Any]], None]
"""Sends a request, with the milliseconds that it may take, and what is called with the answer."""

logger = structlog.get_logger(__name__)


class ChannelPort(Protocol):
    """What a channel sends by. What is asked is answered once, within its time, but never within the call."""

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation."""
        ...

    def describe_quorum(self, timeout_ms: int, on_described: OnAnswer[DescribeQuorumResponse]) -> None:
        """Ask the leader for the state of the quorum."""
        ...

    def close(self, on_closed: OnDone) -> None:
        """Give up what is asked, and answer none of it."""
        ...


class _Request:
    """One that is not answered yet."""

    def __init__(
        self, send: Callable[[int, OnAnswer[Any]], None], on_answer: OnAnswer[Any], deadline_ms: float
    ) -> None:
        self.send = send
        self.on_answer = on_answer
        self.deadline_ms = deadline_ms
        self.timer: Timer | None = None
        """While it waits for its turn."""


class ControllerChannel:
    """Of one broker, or of its clients. Close it."""

    def __init__(
        self,
        port: ChannelPort,
        runtime: Runtime,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """`port` is closed with it."""
        self._port = port
        self._runtime = runtime
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max
        self._in_flight: set[_Request] = set()
        self._waiting: deque[_Request] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        """How many are not answered."""
        return len(self._in_flight) + len(self._waiting)

    def close(self, on_closed: OnDone) -> None:
        """Answer what is pending with REQUEST_TIMED_OUT, and give it up. What comes later is answered the same way."""
        self._is_closed = True
        pending = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for request in pending:
            _answer(request, _stopping())
        self._port.close(on_closed)

    def submit(
        self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False
    ) -> None:
        """Have the controller carry out an operation; its result is without an error as a whole.

        `on_result` may be called at once. `retry_unknown` is for operations that do no harm when done twice. The errors
        are the controller's, and REQUEST_TIMED_OUT: the time is up, too many are pending, or the connection broke when
        the operation may or may not have been carried out.
        """

        def send(remaining_ms: int, on_answer: OnResult) -> None:
            self._port.ask(operation, remaining_ms, on_answer, retry_unknown=retry_unknown)

        self._begin(send, timeout_ms, on_result)

    def describe_quorum(self, on_described: OnAnswer[DescribeQuorumResponse]) -> None:
        """Ask the leader for the state of the quorum."""
        self._begin(self._port.describe_quorum, TIMEOUT_MS_DEFAULT, on_described)

    def _begin(self, send: Send, timeout_ms: int, on_answer: OnAnswer[Any]) -> None:
        if self._is_closed:
            on_answer(_stopping())
            return
        if timeout_ms <= 0:
            on_answer(_timed_out(f"the request gives the controller {timeout_ms} ms; nothing was sent"))
            return
        if len(self._waiting) >= self._waiting_max:
            on_answer(_timed_out(f"{len(self)} requests to the controller are pending; nothing was sent"))
            return
        timeout_ms = min(timeout_ms, TIMEOUT_MS_MAX)
        request = _Request(send, on_answer, self._runtime.now_ms() + timeout_ms)
        if len(self._in_flight) < self._in_flight_max:
            self._send(request)
        else:
            request.timer = self._runtime.call_later(timeout_ms, lambda: self._waited_too_long(request, timeout_ms))
            self._waiting.append(request)

    def _send(self, request: _Request) -> None:
        self._in_flight.add(request)
        remaining_ms = int(request.deadline_ms - self._runtime.now_ms())
        request.send(max(1, remaining_ms), lambda answer: self._answered(request, answer))

    def _answered(self, request: _Request, answer: Any) -> None:
        if request not in self._in_flight:
            return  # closed
        self._in_flight.discard(request)
        if self._waiting:
            self._send(self._next())
        _answer(request, _for_clients(answer) if isinstance(answer, ApiError) else answer)

    def _next(self) -> _Request:
        request = self._waiting.popleft()
        if request.timer is not None:
            request.timer.cancel()
        return request

    def _waited_too_long(self, request: _Request, timeout_ms: int) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            _answer(request, _timed_out(f"timed out after {timeout_ms} ms in the broker's queue; nothing was sent"))


def _answer(request: _Request, answer: Any) -> None:
    if request.timer is not None:
        request.timer.cancel()
    try:
        request.on_answer(answer)
    except Exception as error:  # without an answer its client would wait for ever
        request.on_answer(failed(error))


def _for_clients(error: ApiError) -> ApiError:
    """The error as clients of Kafka's protocol are to see it."""
    if isinstance(error, NotSent | OutcomeUnknown) or error.code in _NO_LEADER:
        return _timed_out(error.args[0])
    if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:  # to clients that is about batches that they produce
        return ApiError(ErrorCode.POLICY_VIOLATION, error.args[0])
    return error


def failed(error: Exception) -> ApiError:
    """A mistake of ours, which ends one request and not the broker."""
    logger.error("a request to the controller failed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")


def _timed_out(reason: str) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, reason)


def _stopping() -> ApiError:
    return _timed_out("the broker stops; ask another one whether it was carried out")
