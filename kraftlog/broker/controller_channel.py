"""The broker's way to the controller for operations of its clients, or of the broker itself, many at a time.

At most `IN_FLIGHT_MAX` operations are with the controller at a time, and `WAITING_MAX` more wait in a queue. Each has a
deadline that includes the wait. The channel finds the controller, and finds it again when it changes. If the controller
has not answered in time, clients get REQUEST_TIMED_OUT, as from Kafka's brokers, which forward such requests, too
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
"""Kafka's `request.timeout.ms`: for requests without a timeout of their own."""

TIMEOUT_MS_MAX: Final = 60_000
"""The longest time for which a Kafka broker tries to forward a request."""

_NO_LEADER: Final = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Errors that clients get as REQUEST_TIMED_OUT: the controller was not found in time."""

Send = Callable[[int, OnAnswer[Any]], None]
"""Sends a request: takes the milliseconds that it may take, and the callback for the answer."""

logger = structlog.get_logger(__name__)


class ChannelPort(Protocol):
    """What a channel sends with. Each request gets one answer, within its time, but never before the call returns."""

    def ask(self, operation: Operation, timeout_ms: int, on_result: OnResult, *, retry_unknown: bool = False) -> None:
        """Have the controller carry out an operation."""
        ...

    def describe_quorum(self, timeout_ms: int, on_described: OnAnswer[DescribeQuorumResponse]) -> None:
        """Ask the leader for the state of the quorum."""
        ...

    def close(self, on_closed: OnDone) -> None:
        """Drop all requests; none of them is answered."""
        ...


class _Request:
    """A request that is not answered yet."""

    def __init__(
        self, send: Callable[[int, OnAnswer[Any]], None], on_answer: OnAnswer[Any], deadline_ms: float
    ) -> None:
        self.send = send
        self.on_answer = on_answer
        self.deadline_ms = deadline_ms
        self.timer: Timer | None = None
        """The timer while the request is in the queue."""


class ControllerChannel:
    """The channel of one broker, or of all its clients. Close it."""

    def __init__(
        self,
        port: ChannelPort,
        runtime: Runtime,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """The channel closes `port`."""
        self._port = port
        self._runtime = runtime
        self._in_flight_max = in_flight_max
        self._waiting_max = waiting_max
        self._in_flight: set[_Request] = set()
        self._waiting: deque[_Request] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        """The number of unanswered requests."""
        return len(self._in_flight) + len(self._waiting)

    def close(self, on_closed: OnDone) -> None:
        """Answer all pending and later requests with REQUEST_TIMED_OUT, and close the port."""
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
        """Have the controller carry out an operation. `on_result` gets a result without an error as a whole, or an
        ApiError.

        `on_result` may be called before this returns. `retry_unknown` is for operations that may safely be done twice.
        The errors are the controller's, and REQUEST_TIMED_OUT: the time is up, too many requests are pending, or the
        connection broke and the operation may or may not have been carried out.
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
            on_answer(_timed_out(f"the request's timeout is {timeout_ms} ms; nothing was sent"))
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
    except Exception as error:  # without an answer the client would wait for ever
        request.on_answer(failed(error))


def _for_clients(error: ApiError) -> ApiError:
    """Return the error that clients of Kafka's protocol get."""
    if isinstance(error, NotSent | OutcomeUnknown) or error.code in _NO_LEADER:
        return _timed_out(error.args[0])
    if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:  # clients take that for an error of a batch that they produced
        return ApiError(ErrorCode.POLICY_VIOLATION, error.args[0])
    return error


def failed(error: Exception) -> ApiError:
    """Log a bug, and return the error that ends one request instead of the broker."""
    logger.error("a request to the controller failed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")


def _timed_out(reason: str) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, reason)


def _stopping() -> ApiError:
    return _timed_out("the broker is stopping; ask another one whether the operation was carried out")
