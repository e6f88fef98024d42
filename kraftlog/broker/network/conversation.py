"""One connection without its socket: bytes in, requests out; answers in, in any order, bytes out, in order.

    conversation.receive_data(bytes from the client)
    while (exchange := conversation.next_exchange()) is not None:
        ...  now, or later:  conversation.answer(exchange, response)
    for piece in conversation.take_outgoing(): ...  to the client

No clock and no I/O, so that the simulator runs it, too. After an error the connection is to be closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from kraftbase.errors import KraftlogError
from kraftlog.kafka.connections import REQUEST_HEADER_BYTES_MIN, Request, read_request, response_frame
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.frames import FrameReader
from kraftlog.kafka.notation import Buffer, Message, Versions


class AnsweredTwice(KraftlogError):
    """A handler has answered a request that it had answered before."""


class Exchange:
    """A request and its answer."""

    __slots__ = ("is_answered", "on_client_done", "request", "response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Message | None = None
        self.is_answered = False
        self.on_client_done: list[Callable[[], None]] = []
        """For `ClientRequest.on_client_done`."""


class Conversation:
    """What a client asks over one connection, and what it is answered."""

    def __init__(self, offered: Mapping[int, Versions], request_bytes_max: int) -> None:
        self.outgoing_bytes = 0
        """How much `take_outgoing` would give."""
        self._offered = offered
        self._frames = FrameReader(request_bytes_max, REQUEST_HEADER_BYTES_MIN)
        self._outgoing: list[Buffer] = []
        self._exchanges: deque[Exchange] = deque()
        self._unanswered_bytes = 0
        self._malformed: MalformedBytes | None = None

    # --- requests -----------------------------------------------------------------------------------------------------

    def space(self) -> memoryview:
        """Where the next bytes of the client are to be put."""
        return self._frames.space()

    def received(self, count: int) -> None:
        """`count` bytes were put there. Bytes that no frame can begin with show in `next_exchange`, in their turn."""
        if self._malformed is None:
            try:
                self._frames.received(count)
            except MalformedBytes as error:
                self._malformed = error

    def receive_data(self, data: Buffer) -> None:
        """Take bytes of the client, as `received`."""
        view = memoryview(data)
        while view and self._malformed is None:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_exchange(self) -> Exchange | None:
        """The next request, or None until there are more bytes.

        Raises MalformedBytes, and UnknownFormat for an API or a version that is not offered: now and ever after.
        """
        frame = self._frames.next_frame()
        if frame is None:
            if self._malformed is not None:
                raise self._malformed
            return None
        try:
            request = read_request(frame, self._offered)
        except MalformedBytes as error:
            self._malformed = error
            while self._frames.next_frame() is not None:
                pass
            raise
        exchange = Exchange(request)
        self._exchanges.append(exchange)
        self._unanswered_bytes += request.size_bytes
        return exchange

    @property
    def has_next(self) -> bool:
        """Whether `next_exchange` gives a request, or raises."""
        return bool(self._frames.whole) or self._malformed is not None

    @property
    def is_idle(self) -> bool:
        """Whether there is no request: none to be given, to be answered, or so large that its rest is waited for."""
        return not (self._exchanges or self._frames.waiting_bytes or self._malformed)

    @property
    def is_in_large_request(self) -> bool:
        """Whether memory is held for the rest of a request that is not there yet."""
        return self._frames.is_in_large_frame

    @property
    def large_request_bytes(self) -> int:
        """The size of the request whose rest is not there yet, if memory is held for it."""
        return self._frames.large_frame_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes of requests that are being read, wait, or are not answered yet. A small part is not counted."""
        return self._frames.waiting_bytes + self._unanswered_bytes

    def waiting(self) -> list[Callable[[], None]]:
        """Those who keep a request waiting, and are to be told when the client is done."""
        return [told for exchange in self._exchanges if not exchange.is_answered for told in exchange.on_client_done]

    def forget(self) -> None:
        """Hold no request any more: the connection is closed, and handlers may hold on to this."""
        while self._frames.next_frame() is not None:
            pass
        self._exchanges.clear()
        self._unanswered_bytes = 0
        self.take_outgoing()

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """How many requests were given and not answered, or wait for the answers to earlier ones."""
        return len(self._exchanges)

    def answer(self, exchange: Exchange, response: Message | None) -> None:
        """Answer a request; None sends nothing, for a Produce with acks=0.

        If its turn has come, its bytes are outgoing now, with those of the answers that waited for it. Raises
        AnsweredTwice, and UnwritableValue for one of them: those before it are outgoing.
        """
        if exchange.is_answered:
            raise AnsweredTwice(f"{exchange.request.api.name}: a request was answered twice; answer it once")
        exchange.response = response
        exchange.is_answered = True
        while self._exchanges and self._exchanges[0].is_answered:
            exchange = self._exchanges.popleft()
            self._unanswered_bytes -= exchange.request.size_bytes
            if exchange.response is not None:
                for piece in response_frame(exchange.request, exchange.response):
                    self._outgoing.append(piece)
                    self.outgoing_bytes += len(piece)

    def take_outgoing(self) -> list[Buffer]:
        """The bytes of answers whose turn has come, in pieces, each once."""
        outgoing, self._outgoing = self._outgoing, []
        self.outgoing_bytes = 0
        return outgoing
