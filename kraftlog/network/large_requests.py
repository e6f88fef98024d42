"""Large requests: each waits for memory, is handled in slices, and is dropped when its client is gone.

The memory of all large requests together is bounded. A request holds its share from its reading until its answer is
written. If its client is gone, it holds the share until its handler has finished with it: until its steps in progress
are closed, or until the controller answers, which has the request already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from kraftbase.shared_bytes import SharedBytes
from kraftlog.kafka.apis import CHANGING_LOGS, elements_max
from kraftlog.kafka.connections import Request
from kraftlog.kafka.notation import Message, Struct
from kraftlog.network.conversation import Exchange
from kraftlog.network.release import release
from kraftlog.network.requests import ClientRequest, Handler, RequestContext, Steps
from kraftlog.network.turns import SLICE_SECONDS, SliceEnd, Turns, go_through

HELD_BYTES_PER_ELEMENT: Final = 800
"""The memory per array element of a request: the element, its part of the answer, and the bytes of that part. It is the
largest of all APIs, measured with their smallest elements (tests/process/shared_voter/test_large_requests.py)."""

HELD_BYTES_PER_BYTE: Final = 3
"""The memory per byte: names exist as received, as strings, and in the answer."""


def held_bytes(request: Request) -> int:
    """The most memory that a large request may need, in bytes."""
    size_bytes = request.size_bytes
    return HELD_BYTES_PER_BYTE * size_bytes + HELD_BYTES_PER_ELEMENT * elements_max(request.api.name, size_bytes)


class LargeRequests:
    """The large requests of all connections of one event loop."""

    def __init__(
        self, handler: Handler, bytes_max: int, turns: Turns, call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self.memory = SharedBytes(bytes_max)
        self.handler = handler
        self._turns = turns
        self._call_soon = call_soon
        self._in_hand: dict[LargeRequest, None] = {}
        self._releases: deque[Steps] = deque()
        """The requests whose memory is being freed, in slices."""
        self._is_releasing = False

    def begin(self, request: LargeRequest) -> None:
        """A large request has got its memory."""
        self._in_hand[request] = None

    def end(self, request: LargeRequest, size_bytes: int, messages: list[Struct]) -> None:
        """A large request is finished: free its messages in slices, then give back its `size_bytes` of memory."""
        del self._in_hand[request]
        self._releases.append(self._release(size_bytes, messages))
        if not self._is_releasing:
            self._is_releasing = True
            self._turns.wait(self, is_fresh=True)

    def _release(self, size_bytes: int, messages: list[Struct]) -> Steps:
        yield from release(messages)
        self.memory.give_back(size_bytes)

    def take_turn(self) -> None:
        """Free some memory of finished requests, for one slice."""
        ends_at = monotonic() + SLICE_SECONDS
        self._is_releasing = go_through(self._releases, lambda: monotonic() < ends_at) is not SliceEnd.DONE
        if self._is_releasing:
            self._turns.wait(self, is_fresh=False)

    def hurry(self, request: LargeRequest | None = None) -> None:
        """Other requests wait for memory: have `request`, or all, answered early if they only wait for time to pass."""
        for large in self._in_hand if request is None else (request,):
            for callback in large.exchange.on_memory_wanted:
                self._call_soon(callback)


class Asking(Protocol):
    """The connection that a large request came over."""

    def run(self, steps: Steps) -> None:
        """Go through `steps`, in slices."""
        ...

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers there is room for now."""
        ...

    def answer(self, exchange: Exchange, response: Message | None, throttle_ms: int = 0) -> None:
        """Answer the request."""
        ...


class LargeRequest:
    """One large request. Its handler uses it as `ClientRequest.slices`."""

    def __init__(self, large: LargeRequests, connection: Asking, context: RequestContext, exchange: Exchange) -> None:
        self.exchange = exchange
        self._large = large
        self._connection = connection
        self._context = context
        self.is_waiting = True
        """Whether it waits for memory."""
        self._held_bytes = 0
        self._steps_in_hand = 0
        self._is_with_handler = False
        """Whether the handler may still hold on to the request."""
        self._is_let_go = False

    def begin(self) -> None:
        """Read and handle the request as soon as there is memory for it."""
        size_bytes = held_bytes(self.exchange.request)
        if self._large.memory.try_hold(self, size_bytes):
            self.has_room(self._large.memory, size_bytes)
        else:
            self._large.hurry()

    def has_room(self, bound: SharedBytes, size_bytes: int) -> None:
        """There is memory for it."""
        self.is_waiting = False
        self._held_bytes = size_bytes
        self._large.begin(self)
        self._is_with_handler = True
        self.run(self._read_and_handle())

    def _end_if_unused(self) -> None:
        if not self._is_with_handler and self._held_bytes:
            held_bytes, self._held_bytes = self._held_bytes, 0
            self._large.end(self, held_bytes, self._take_messages())
            self._leave_no_cycle()

    def _take_messages(self) -> list[Struct]:
        """Remove and return the request's messages, of which this must be the only reference."""
        exchange = self.exchange
        messages: list[Struct] = [message for message in (exchange.request.body, exchange.response) if message]
        exchange.request.body = exchange.response = None
        return messages

    def _leave_no_cycle(self) -> None:
        """Break reference cycles: objects in a cycle are freed only by the garbage collector, which runs seldom."""
        self.exchange.held = None
        self.exchange.on_client_done.clear()
        self.exchange.on_memory_wanted.clear()

    # --- handling -----------------------------------------------------------------------------------------------------

    def _read_and_handle(self) -> Steps:
        client_request = self.exchange.request
        if client_request.unread is not None:
            yield from client_request.unread
        request = ClientRequest(
            client_request.api, client_request.version, client_request.body, self._context, client_request.size_bytes,
            self.exchange.on_client_done, self, is_large=True, on_memory_wanted=self.exchange.on_memory_wanted,
        )  # fmt: skip
        self._large.handler(request, self._answer)

    def run(self, steps: Steps) -> None:
        """Go through `steps` on the connection, unless the request was dropped."""
        if self._is_let_go:
            self._is_with_handler = False
            self._end_if_unused()
            return
        self._steps_in_hand += 1
        self._connection.run(self._while_wanted(steps))

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers there is room for now."""
        return self._connection.answer_room_bytes

    def _while_wanted(self, steps: Steps) -> Steps:
        is_done = False
        try:
            for waits in steps:
                if self._is_let_go:
                    return
                yield waits
            is_done = True
        finally:
            del steps  # closes the step in progress
            self._steps_in_hand -= 1
            if not is_done:
                self._is_with_handler = False
            if self._is_let_go:
                self._end_if_unused()
            elif self._is_with_handler and self._large.memory.has_waiting:
                self._large.hurry(self)

    def _answer(self, response: Message | None, throttle_ms: int = 0) -> None:
        self._is_with_handler = False
        if self._is_let_go:
            self._end_if_unused()
        else:
            self._connection.answer(self.exchange, response, throttle_ms)

    def written(self) -> None:
        """The answer is outgoing, or there is none: give the memory back."""
        if not self._is_let_go:
            self._end_if_unused()

    # --- a client that is gone ----------------------------------------------------------------------------------------

    @property
    def is_let_go_at_end(self) -> bool:
        """Whether the request is dropped when its client sends nothing more: such a client expects no answer.

        Requests that change logs are carried out even then: a producer with acks=0 may close its connection right after
        a Produce. A change of metadata is dropped only before it is sent to the controller, so none of it was done.
        """
        return self.exchange.request.api.name not in CHANGING_LOGS

    def let_go(self, *, is_closed: bool = False) -> None:
        """Drop the request, because its client is gone: begin no more of its work, and close what was begun.
        `is_closed`: all steps of the connection are closed."""
        self._is_let_go = True
        self.is_waiting = False
        self._large.memory.remove(self)
        if is_closed and self._steps_in_hand:
            self._is_with_handler = False
        if self._held_bytes:
            self._end_if_unused()
        else:
            self._leave_no_cycle()
