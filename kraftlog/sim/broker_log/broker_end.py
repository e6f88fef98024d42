"""The broker's end of a simulated connection: the production `Conversation`, in virtual time.

What `kraftlog.network.connection` does with a socket is done here with bytes that a world brings: requests are handled
in their order, work in slices lets others go on in between, and who waits is told when the client sends nothing more.
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
"""A slice has so many steps at most: fewer than one of the large requests takes."""


class BrokerEnd:
    """Of one connection, in one process. It is `kraftlog.network.requests.Slices` for its requests."""

    answer_room_bytes: Final = 2**63 - 1

    def __init__(
        self, process: BrokerProcess, context: RequestContext, offered: Mapping[int, Versions], handler: Handler,
        random: Random, send: Callable[[bytes], None], on_closed: Callable[[], None],
    ) -> None:  # fmt: skip
        """`send` takes bytes for the client; `on_closed` is called once, when there will be none any more."""
        self.is_closed = False
        self.expected: deque[bytes] = deque()
        """The answers to requests in their order, as far as that has come, as they should leave."""
        self.slices = 0
        """How many slices have left something to do."""
        self.kept_early = 0
        """How many answers had to wait for those to earlier requests."""
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
        """The requests that are not answered, or whose answers wait for others, with their answers; in their order."""
        self._parked: set[Exchange] = set()
        """The requests that wait for more, such as a Fetch."""

    # --- what comes ---------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes of the client have come."""
        if not self.is_closed:
            self._conversation.receive_data(data)
            self._go_on()

    def ended(self) -> None:
        """The client sends nothing more."""
        self._is_at_end = True
        self._tell_waiting()
        self._go_on()

    def lost(self) -> None:
        """The client is gone: nobody takes answers."""
        if not self.is_closed:
            self._close()

    def _tell_waiting(self) -> None:
        for told in self._conversation.waiting():
            self._process.call_soon(told)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Work for a slice, then handle what is there."""
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
        asked = exchange.request
        request = ClientRequest(
            asked.api, asked.version, asked.body, self._context.with_client_id(asked.client_id or ""),
            asked.size_bytes, exchange.on_client_done, self, is_large,
        )  # fmt: skip
        self._handler(request, lambda response, throttle_ms=0: self._answer(exchange, response))
        if exchange.on_client_done and not exchange.is_answered:
            self._parked.add(exchange)
        if self._is_at_end:
            self._tell_waiting()

    def run(self, steps: Steps) -> None:
        """Work in slices (`kraftlog.network.requests.Slices`)."""
        if not self.is_closed:
            self._steps.append(steps)
            self._process.call_soon(self._go_on)

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def parked(self) -> int:
        """How many requests wait for more, such as a Fetch."""
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
        """Note what the client is to get, by the order of the requests alone."""
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
        self._tell_waiting()
        self._conversation.forget()
        self._on_closed()
