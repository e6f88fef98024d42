"""Requests and responses between brokers, from clients to brokers, and from brokers to the controller.

A request gets one response, or one error of the connection: it timed out, no process listens, or the other process
ended. A message that was sent before may still arrive after the requester has stopped waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.notation import Message
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue, Timer
from kraftlog.sim.engine.virtual.network import Network
from kraftlog.sim.replication.controller_nodes import AskedNode
from kraftpb.v1.admin_pb2 import Operation, OperationResult

CONTROLLER: Final = 0
CLIENTS: Final = 100
"""Places in the network. A broker's place is its id."""

REQUEST_TIMEOUT_US: Final = 1_500 * MICROSECONDS_PER_MS

OnResponse = Callable[[Message | ApiError], None]


class Asker(Protocol):
    """The process that sends a request. Its callbacks are steps of the process."""

    def run(self, callback: Callable[[], None]) -> None:
        """Run `callback` as a step, unless the process has ended."""
        ...


class Listener(Protocol):
    """A broker's machine, as the wire sees it."""

    @property
    def is_listening(self) -> bool:
        """Whether a process accepts connections."""
        ...

    @property
    def refuses(self) -> bool:
        """Whether connections are refused at once: the machine is up, but no process listens."""
        ...

    def serve(self, body: Message, version: int, exchange: Exchange) -> None:
        """Handle a request that has arrived."""
        ...


class Line:
    """A connection: messages arrive in the order in which they were sent."""

    def __init__(self) -> None:
        self._queue: list[Callable[[], None]] = []

    def in_order(self, arrive: Callable[[], None]) -> Callable[[], None]:
        """Return the callback for an arrival, which runs the first message that has not arrived yet."""
        self._queue.append(arrive)
        return lambda: self._queue.pop(0)()


class Exchange:
    """One request and its outcome. The requester's callback is called once."""

    def __init__(self, wire: Wire, asker: Asker, source: int, destination: int, on_response: OnResponse) -> None:
        self._wire = wire
        self._asker = asker
        self.source = source
        self.destination = destination
        self._on_response = on_response
        self.timer: Timer | None = None
        self.is_over = False
        """Whether the requester has its answer or has stopped waiting."""
        self.on_answer_leaves: Callable[[Message], None] = lambda response: None
        """Called when the answer leaves the server, within its step."""
        self.on_client_gone: list[Callable[[], None]] = []
        """Called at the server, in a step of its own, when the requester has gone."""

    def end(self, result: Message | ApiError) -> None:
        """Call the requester with the result, in a step of its process."""
        if not self.is_over:
            self.close()
            self._asker.run(lambda: self._on_response(result))

    def close(self) -> None:
        """Stop waiting for an answer."""
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()

    def tell_server(self) -> None:
        """Notify the server that the requester has gone. The network may lose the message."""

        def tell() -> None:
            for gone in self.on_client_gone:
                gone()

        self._wire.network.send(self.source, self.destination, tell)

    def reply(self, response: Message, version: int) -> None:
        """Send the response."""
        response = self._wire.carried(response, version)
        self.on_answer_leaves(response)
        self._wire.network.send(self.destination, self.source, lambda: self.end(response))

    def broken(self) -> None:
        """Report a broken connection: the server's process has ended."""
        error = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the connection was closed")
        self._wire.network.send(self.destination, self.source, lambda: self.end(error))


class Wire:
    """The network between brokers, clients and the controller."""

    def __init__(self, event_queue: EventQueue, network: Network, *, has_codec: bool) -> None:
        self._queue = event_queue
        self.network = network
        self._has_codec = has_codec
        self.listeners: dict[int, Listener] = {}

    def ask(
        self, asker: Asker, source: int, destination: int, body: Message, version: int, on_response: OnResponse,
        line: Line | None = None,
    ) -> Exchange:  # fmt: skip
        """Send a request. `on_response` is called once, in a step of the requester, never within this call."""
        exchange = Exchange(self, asker, source, destination, on_response)
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"broker {destination} did not answer in time")
        exchange.timer = self._queue.after(REQUEST_TIMEOUT_US, lambda: exchange.end(late))
        body = self.carried(body, version)

        def arrive() -> None:
            listener = self.listeners[destination]
            if listener.is_listening:
                listener.serve(body, version, exchange)
            elif listener.refuses:
                exchange.broken()

        self.network.send(source, destination, arrive if line is None else line.in_order(arrive))
        return exchange

    def carried(self, message: Message, version: int) -> Message:
        """Return a message as it arrives."""
        return decode(type(message), version, encode(message, version)) if self._has_codec else message

    def ask_controller(
        self, controller: AskedNode, asker: Asker, source: int, operation: Operation, timeout_ms: int,
        on_result: Callable[[OperationResult | ApiError], None],
    ) -> None:  # fmt: skip
        """Send an operation to the controller; otherwise the same as `ask`."""
        is_over = False

        def end(result: OperationResult | ApiError) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                asker.run(lambda: on_result(result))

        def answered(result: OperationResult) -> None:
            self.network.send(CONTROLLER, source, lambda: end(_result(result)))

        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer in time")
        self._queue.after(timeout_ms * MICROSECONDS_PER_MS, lambda: end(late))
        self.network.send(source, CONTROLLER, lambda: controller.submit(operation, answered))


def _result(result: OperationResult) -> OperationResult | ApiError:
    if result.error_code:
        return ApiError(ErrorCode(result.error_code), result.error_message)
    return result
