"""The broker's way to the controller: operations of clients and of the broker itself, while others go on.

At most `IN_FLIGHT_MAX` are with the controller at a time, and `WAITING_MAX` wait for their turn. Each has a deadline,
the wait included. Who leads, and that another does meanwhile, is the channel's business: clients of Kafka's protocol
see REQUEST_TIMED_OUT when the controller has not answered in time, as in Kafka, whose brokers pass requests on the same
way (KIP-590).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.admin.client.operation_stream import NotSent, OutcomeUnknown
from kraftpb.v1 import admin_pb2, quorum_pb2
from raft.rpc import codec

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

Answer = TypeVar("Answer")
OnAnswer = Callable[[Answer | ApiError], None]
"""Called once: with the answer, or why there is none."""
Ask = Callable[[int], Awaitable[Answer]]
"""Asks for the answer, for so many milliseconds."""

logger = structlog.get_logger(__name__)


class ControllerChannel:
    """For one event loop. Close it."""

    def __init__(
        self,
        client: AdminClient,
        endpoints: Sequence[Endpoint],
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """`client` stays the caller's; `endpoints` are nodes of the cluster."""
        self._client = client
        self._endpoints = endpoints
        self._pending_max = in_flight_max + waiting_max
        self._turns = asyncio.Semaphore(in_flight_max)
        self._pending: dict[asyncio.Task[None], Callable[[ApiError], None]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """How many are not answered."""
        return len(self._pending)

    async def close(self) -> None:
        """Answer what is pending with REQUEST_TIMED_OUT, and give it up. What comes later is answered the same way."""
        self._is_closed = True
        tasks = list(self._pending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for give_up in [self._pending.pop(task) for task in list(self._pending)]:
            give_up(_stopping())

    def submit(
        self,
        operation: admin_pb2.Operation,
        timeout_ms: int,
        on_result: OnAnswer[admin_pb2.OperationResult],
        *,
        retry_unknown: bool = False,
    ) -> None:
        """Have the controller carry out an operation; its result is without an error as a whole.

        `on_result` may be called at once. `retry_unknown` is for operations that do no harm when done twice. The errors
        are the controller's, and REQUEST_TIMED_OUT: the time is up, too many are pending, or the connection broke when
        the operation may or may not have been carried out.
        """

        async def carry_out(remaining_ms: int) -> admin_pb2.OperationResult:
            result = await self._client.execute(operation, timeout_ms=remaining_ms, retry_unknown=retry_unknown)
            if result.error_code:
                raise ApiError(codec.error_from_proto(result.error_code), result.error_message)
            return result

        self._begin(carry_out, timeout_ms, on_result)

    def describe_quorum(self, on_described: OnAnswer[quorum_pb2.DescribeQuorumResponse]) -> None:
        """Ask the leader for the state of the quorum."""

        async def describe(remaining_ms: int) -> quorum_pb2.DescribeQuorumResponse:
            async with asyncio.timeout(remaining_ms / 1000):
                return await describe_quorum(self._endpoints)

        self._begin(describe, TIMEOUT_MS_DEFAULT, on_described)

    def _begin(self, ask: Ask[Answer], timeout_ms: int, on_answer: OnAnswer[Answer]) -> None:
        if self._is_closed:
            on_answer(_stopping())
        elif timeout_ms <= 0:
            on_answer(_timed_out(f"the request gives the controller {timeout_ms} ms; nothing was sent"))
        elif len(self._pending) >= self._pending_max:
            on_answer(_timed_out(f"{self._pending_max} requests to the controller are pending; nothing was sent"))
        else:
            task = asyncio.create_task(self._settle(ask, min(timeout_ms, TIMEOUT_MS_MAX), on_answer))
            self._pending[task] = on_answer

    async def _settle(self, ask: Ask[Answer], timeout_ms: int, on_answer: OnAnswer[Answer]) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
        except TimeoutError:
            self._answer(on_answer, _timed_out(f"others were first for {timeout_ms} ms; nothing was sent"))
            return
        try:
            remaining_ms = int((deadline - asyncio.get_running_loop().time()) * 1000)
            answer = await _asked(ask, max(1, remaining_ms))
        finally:
            self._turns.release()
        self._answer(on_answer, answer)

    def _answer(self, on_answer: OnAnswer[Answer], answer: Answer | ApiError) -> None:
        """Call back, once: a task that is answered is not pending any more."""
        task = asyncio.current_task()
        if task is None or self._pending.pop(task, None) is None:
            return
        try:
            on_answer(answer)
        except Exception as error:  # without an answer its client would wait for ever
            on_answer(_failed(error))


async def _asked(ask: Ask[Answer], timeout_ms: int) -> Answer | ApiError:
    """The answer, or the error as clients of Kafka's protocol are to see it."""
    try:
        return await ask(timeout_ms)
    except (NotSent, OutcomeUnknown) as error:
        return _timed_out(error.args[0])
    except TimeoutError:
        return _timed_out(f"the controller has not answered within {timeout_ms} ms")
    except ApiError as error:
        if error.code in _NO_LEADER:
            return _timed_out(error.args[0])
        if error.code is ErrorCode.RECORD_LIST_TOO_LARGE:  # to clients that is about batches that they produce
            return ApiError(ErrorCode.POLICY_VIOLATION, error.args[0])
        return error
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> ApiError:
    """A mistake of ours, which ends one request and not the broker."""
    logger.error("a request to the controller failed", exc_info=error)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says why")


def _timed_out(reason: str) -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, reason)


def _stopping() -> ApiError:
    return _timed_out("the broker stops; ask another one whether it was carried out")
