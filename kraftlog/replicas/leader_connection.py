"""Connections to other brokers, to fetch from leaders: the asyncio edge of `kraftlog.replicas.replication`.

A connection begins with ApiVersions; requests wait until it is answered. After that each request is sent at once, in
the newest version that both brokers know, and responses come in the same order. Bytes are read directly into the buffer
of their frame. Any failure ends the connection: a refused connection, a broker that is silent for too long, bytes that
are not a response. Then every pending request gets an ApiError; the caller decides when to connect again. A request
that the broker does not offer is refused alone, and the connection remains in use.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.line_rate import LineRate
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.messages.api_versions import ApiVersionsResponse
from kraftlog.kafka.notation import Message, Versions
from kraftlog.replicas.broker_versions import QUESTION, BrokerVersions
from kraftlog.replicas.replication.ports import OnAnswer

logger = structlog.get_logger(__name__)

CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""Kafka's `socket.connection.setup.timeout.ms`."""


class Address(Protocol):
    """The address of a broker."""

    @property
    def host(self) -> str:
        """The host name or IP address."""
        ...

    @property
    def port(self) -> int:
        """The port."""
        ...


class _SentRequest(NamedTuple):
    on_answer: OnAnswer
    timer: asyncio.TimerHandle


class _Waiting(NamedTuple):
    """A request that waits for the broker's answer to ApiVersions."""

    request: Message
    versions: Versions
    sent: _SentRequest


class BrokerConnections:
    """Opens connections to brokers, for one event loop; a `LeaderConnector`."""

    def __init__(
        self,
        address_of: Callable[[int], Address | None],
        client_id: str,
        timeout_ms: int,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`address_of` returns a broker's present address for other brokers, or None.

        A request without a response for `timeout_ms` ends its connection. `on_fatal` is called with an exception that
        must end the process, such as an InvariantViolation in a callback.
        """
        self._address_of = address_of
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._on_fatal = on_fatal
        self._lines = LineRate(time.monotonic)

    def connect(self, broker_id: int) -> BrokerConnection:
        """Begin to connect. On failure every pending request gets an ApiError."""
        connection = BrokerConnection(
            f"broker {broker_id}",
            ClientConnection(self._client_id, keeps_memory=True),
            self._timeout_ms / 1000,
            self._on_fatal,
            self._lines,
        )
        connection.connect(self._address_of(broker_id))
        return connection


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection; a `LeaderConnection`."""

    def __init__(
        self, name: str, messages: ClientConnection, timeout_seconds: float, on_fatal: Callable[[BaseException], None],
        lines: LineRate,
    ) -> None:  # fmt: skip
        """Call `BrokerConnections.connect` instead."""
        self._name = name
        self._messages = messages
        self._timeout_seconds = timeout_seconds
        self._on_fatal = on_fatal
        self._lines = lines
        self._versions = BrokerVersions()
        self._waiting: list[_Waiting] | None = []  # None: ApiVersions is answered
        self._lacking: set[int] = set()  # keys of APIs that the broker does not offer
        self._loop = asyncio.get_running_loop()
        self._sent: deque[_SentRequest] = deque()
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._broken: ApiError | None = None
        self._is_closed = False

    def connect(self, address: Address | None) -> None:
        """Begin to connect."""
        if address is None:
            self._break(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._name} is not registered, or has no such listener")
            return
        self._name = f"{self._name} at {address.host}:{address.port}"
        self._connecting = self._loop.create_task(self._connect(address))

    async def _connect(self, address: Address) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._loop.create_connection(lambda: self, address.host, address.port)
        except TimeoutError:
            self._break(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._name} did not accept a connection in time")
        except (OSError, OverflowError, UnicodeError) as error:  # a broker may advertise any host and any port
            self._break(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._name} is not reachable: {error}")

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, request: Message, versions: Versions, on_answer: OnAnswer) -> None:
        """Send a request, in the newest of `versions` that the broker offers."""
        if self._broken is not None:
            self._loop.call_soon(self._answer, on_answer, self._broken)
            return
        if self._waiting is not None:
            self._waiting.append(_Waiting(request, versions, self._answered_by(on_answer)))
            return
        version = self._versions.chosen.get(request.KEY)
        if version is None:
            try:
                version = self._versions.choose(type(request), versions)
            except ApiError as error:
                self._refuse(request.KEY, on_answer, error)
                return
        self._send(request, version, self._answered_by(on_answer))

    def _answered_by(self, on_answer: OnAnswer) -> _SentRequest:
        """Start the timer of a request."""
        return _SentRequest(on_answer, self._loop.call_later(self._timeout_seconds, self._timed_out))

    def _send(self, request: Message, version: int, sent: _SentRequest) -> None:
        pieces = self._messages.send(request, version)
        self._sent.append(sent)
        if self._transport is not None:  # always the case by now: earlier requests wait
            self._transport.writelines(pieces)

    def _refuse(self, key: int, on_answer: OnAnswer, error: ApiError) -> None:
        """Refuse a request that the broker does not offer, and log that once per API."""
        refusal = ApiError(error.code, f"{self._name} does not support the request: {error}")
        if key not in self._lacking:
            self._lacking.add(key)
            if self._lines.left_out(key) is not None:
                logger.warning("a broker does not support a request", reason=str(refusal))
        self._loop.call_soon(self._answer, on_answer, refusal)

    def _ask_versions(self) -> None:
        if self._versions.question_version is not None:
            self._send(QUESTION, self._versions.question_version, self._answered_by(self._versions_answered))

    def _versions_answered(self, answer: Message | ApiError) -> None:
        if isinstance(answer, ApiError):
            return
        try:
            self._versions.answered(cast(ApiVersionsResponse, answer))
        except ApiError as error:
            self._break(ErrorCode.CORRUPT_MESSAGE, f"cannot negotiate versions with {self._name}: {error}")
            return
        if self._versions.question_version is not None:
            self._ask_versions()
            return
        waiting, self._waiting = self._waiting or [], None
        for request, versions, sent in waiting:
            try:
                version = self._versions.choose(type(request), versions)
            except ApiError as error:
                sent.timer.cancel()
                self._refuse(request.KEY, sent.on_answer, error)
            else:
                self._send(request, version, sent)

    def close(self) -> None:
        """Close the connection; pending requests get no answer."""
        self._is_closed = True
        self._break(ErrorCode.BROKER_NOT_AVAILABLE, f"the connection to {self._name} is closed")

    # --- callbacks of the event loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send ApiVersions."""
        self._transport = cast(asyncio.Transport, transport)
        if self._broken is not None:
            self._transport.abort()
            return
        self._ask_versions()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._messages.frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Process new bytes in the buffer: deliver the complete responses."""
        if self._broken is not None:
            return
        try:
            self._messages.frames.received(nbytes)
            while self._broken is None and (response := self._messages.next_event()) is not None:
                sent = self._sent.popleft()
                sent.timer.cancel()
                self._answer(sent.on_answer, response.body)
        except MalformedBytes as error:
            self._break(ErrorCode.CORRUPT_MESSAGE, f"{self._name} does not answer in Kafka's protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending requests: the connection is closed."""
        reason = "" if exc is None else f": {exc}"
        self._break(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._name} has closed the connection{reason}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        self._break(
            ErrorCode.REQUEST_TIMED_OUT, f"{self._name} has not answered within {self._timeout_seconds:g} seconds"
        )

    def _break(self, code: ErrorCode, reason: str) -> None:
        """Close the connection, and answer every pending request with the error."""
        if self._broken is not None:
            return
        self._broken = ApiError(code, reason)
        if self._connecting is not None and self._connecting is not asyncio.current_task(self._loop):
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        sent = [*self._sent, *(waiting.sent for waiting in self._waiting or ())]
        self._sent.clear()
        self._waiting = None
        for waiting in sent:
            waiting.timer.cancel()
            self._loop.call_soon(self._answer, waiting.on_answer, self._broken)

    def _answer(self, on_answer: OnAnswer, answer: Message | ApiError) -> None:
        if self._is_closed:
            return
        try:
            on_answer(answer)
        except BaseException as error:
            self._on_fatal(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
