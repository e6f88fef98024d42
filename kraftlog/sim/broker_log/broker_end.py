"""The broker's end of a simulated connection: the production `Conversation`, in virtual time.

It does with bytes from a world what `kraftlog.network.connection` does with a socket: it handles requests in order,
works in slices so that other work can run in between, and notifies waiting requests when the client sends nothing more.
Bounds, quotas and turns are not simulated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from kraftlog.kafka.connections import response_frame
from kraftlog.kafka.frames import FRAME_BYTES_MAX
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.conversation import Conversation, Exchange
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, RequestContext, Steps
from kraftlog.network.turns import go_through
from kraftlog.sim.broker_log.process import BrokerProcess

STEPS_MAX: Final = 120
"""The maximum number of steps in a slice: fewer than one of the large requests takes."""


class BrokerEnd:
    """The broker's end of one connection, in one process; `kraftlog.network.requests.Slices` for its requests."""

    answer_room_bytes: Final = 2**63 - 1

    def __init__(
        self, process: BrokerProcess, context: RequestContext, offered: Mapping[int, Versions], handler: Handler,
        random: Random, send: Callable[[bytes], None], on_closed: Callable[[], None],
    ) -> None:  # fmt: skip
        """`send` sends bytes to the client; `on_closed` is called once, after the last bytes."""
        self.is_closed = False
        self.expected: deque[bytes] = deque()
        """The responses in the order of their requests, as the client must receive them."""
        self.slices = 0
        """The number of slices after which work was left."""
        self.kept_early = 0
        """The number of responses that had to wait for those to earlier requests."""
        self._process = process
        self._context = context
        self._handler = handler
        self._random = random
        self._send = send
        self._on_closed = on_closed
        self._is_at_end = False
        self._steps: deque[Steps] = deque()
        self._conversation = Conversation(offered, FRAME_BYTES_MAX)
        self._waiting: dict[Exchange, bytes | None] = {}
        """In order: the requests without a response, or whose response waits for others, each with its response."""
        self._parked: set[Exchange] = set()
        """The requests that wait for more data, such as a Fetch."""

    # --- input --------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Handle bytes from the client."""
        if not self.is_closed:
            self._conversation.receive_data(data)
            self._go_on()

    def ended(self) -> None:
        """Handle the end of the client's input."""
        self._is_at_end = True
        self._call_waiting()
        self._go_on()

    def lost(self) -> None:
        """Handle the loss of the client, which receives no more responses."""
        if not self.is_closed:
            self._close()

    def _call_waiting(self) -> None:
        for on_client_done in self._conversation.waiting():
            self._process.call_soon(on_client_done)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Work for one slice, then handle the requests that have arrived."""
        left = self._random.randint(1, STEPS_MAX)

        def may_go_on() -> bool:
            nonlocal left
            left -= 1
            return left > 0

        try:
            while not self.is_closed:
                go_through(self._steps, may_go_on)
                if self._steps:
                    self.slices += 1
                    self._process.call_soon(self._go_on)
                    break
                if not self._handle_next():
                    break
        except ConnectionRefused:
            self._write()
            self.lost()
        if not self.is_closed:
            self._write()

    def _handle_next(self) -> bool:
        exchange = self._conversation.next_exchange()
        if exchange is None:
            return False
        self._waiting[exchange] = None
        if exchange.request.unread is None:
            self._hand_over(exchange, is_large=False)
        else:
            self._steps.append(self._read(exchange))
        return True

    def _read(self, exchange: Exchange) -> Steps:
        while exchange.request.unread is not None:
            yield from exchange.request.unread
        self._hand_over(exchange, is_large=True)

    def _hand_over(self, exchange: Exchange, *, is_large: bool) -> None:
        received = exchange.request
        request = ClientRequest(
            received.api, received.version, received.body, self._context.with_client_id(received.client_id or ""),
            received.size_bytes, exchange.on_client_done, self, is_large,
        )  # fmt: skip
        self._handler(request, lambda response, throttle_ms=0: self._answer(exchange, response))
        if exchange.on_client_done and not exchange.is_answered:
            self._parked.add(exchange)
        if self._is_at_end:
            self._call_waiting()

    def run(self, steps: Steps) -> None:
        """Run steps in slices (`kraftlog.network.requests.Slices`)."""
        if not self.is_closed:
            self._steps.append(steps)
            self._process.call_soon(self._go_on)

    # --- responses ----------------------------------------------------------------------------------------------------

    @property
    def parked(self) -> int:
        """The number of requests that wait for more data, such as a Fetch."""
        return len(self._parked)

    def _answer(self, exchange: Exchange, response: Message | None) -> None:
        if self._process.has_ended:
            return
        self._parked.discard(exchange)
        if self.is_closed:
            return
        self._expect(exchange, response)
        self._conversation.answer(exchange, response)
        if self._conversation.unwritten is not None:
            self.run(self._conversation.take_unwritten())
        self._write()

    def _expect(self, exchange: Exchange, response: Message | None) -> None:
        """Record what the client must receive, by the order of the requests alone."""
        frame = b"" if response is None else b"".join(response_frame(exchange.request, response))
        self._waiting[exchange] = frame
        self.kept_early += exchange is not next(iter(self._waiting))
        while self._waiting:
            first, answer = next(iter(self._waiting.items()))
            if answer is None:
                break
            del self._waiting[first]
            if answer:
                self.expected.append(answer)

    def _write(self) -> None:
        if self._conversation.outgoing_bytes:
            self._send(b"".join(self._conversation.take_outgoing()))
        if self._is_at_end and not self._conversation.unanswered and not self._conversation.has_next:
            self._close()

    def _close(self) -> None:
        self.is_closed = True
        self._steps.clear()
        self._call_waiting()
        self._conversation.clear()
        self._on_closed()
