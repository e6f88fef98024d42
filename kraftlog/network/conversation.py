"""One connection without its socket: bytes in, requests out; answers in, in any order, bytes out, in order.

    conversation.receive_data(bytes from the client)
    while (exchange := conversation.next_exchange()) is not None:
        ...  now, or later:  conversation.answer(exchange, response)
    for piece in conversation.take_outgoing(): ...  to the client

A request or an answer with many elements takes long to read or to write, and is read or written in slices: the caller
goes through `exchange.request.unread` before it looks at the body, and through `conversation.take_unwritten()` if
something is `unwritten` after an answer.

No clock and no I/O, so tests cut the bytes at any place. One client of the simulator's world of a broker's log talks
through it (`kraftlog.sim.broker_log.byte_client`); others call the handlers of requests. After an error the connection
is to be closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from kraftbase.errors import KraftlogError
from kraftlog.kafka.connections import (
    FEW_ELEMENTS,
    REQUEST_HEADER_BYTES_MIN,
    Request,
    read_request,
    response_frame,
    response_frame_in_slices,
)
from kraftlog.kafka.errors import MalformedBytes, ManyElements, UnwritableValue
from kraftlog.kafka.frames import FrameReader
from kraftlog.kafka.messages.fetch import FetchResponse
from kraftlog.kafka.notation import Buffer, Message, Versions


class AnsweredTwice(KraftlogError):
    """A handler has answered a request that it had answered before."""


class Held(Protocol):
    """The memory of a large request."""

    def written(self) -> None:
        """The answer is outgoing, or there is none."""
        ...


class Exchange:
    """A request and its answer."""

    __slots__ = (
        "began_seconds",
        "early_bytes",
        "frame",
        "held",
        "is_answered",
        "on_client_done",
        "on_memory_wanted",
        "request",
        "response",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Message | None = None
        self.frame: Sequence[Buffer] = ()
        """The answer's bytes, if they were written in slices, or before their turn."""
        self.early_bytes = 0
        """How much of its answer is there before its turn."""
        self.is_answered = False
        self.began_seconds = 0.0
        """When the caller has taken it up, by the caller's clock."""
        self.on_client_done: list[Callable[[], None]] = []
        """For `ClientRequest.on_client_done`."""
        self.on_memory_wanted: list[Callable[[], None]] = []
        """For `ClientRequest.on_memory_wanted`."""
        self.held: Held | None = None


class Conversation:
    """What a client asks over one connection, and what it is answered."""

    def __init__(self, offered: Mapping[int, Versions], request_bytes_max: int) -> None:
        self.outgoing_bytes = 0
        """How much `take_outgoing` would give."""
        self.unwritten: Exchange | None = None
        """Whose answer is large, and its turn has come."""
        self._offered = offered
        self.frames = FrameReader(request_bytes_max, REQUEST_HEADER_BYTES_MIN)
        """To be looked at only."""
        self._is_writing = False
        """Whether a large answer is being written: those that follow wait for it."""
        self._outgoing: list[Buffer] = []
        self.early_bytes = 0
        """The bytes of answers that wait for those to earlier requests: to be read only."""
        self.exchanges: deque[Exchange] = deque()
        """Requests that were given and not answered, or whose answers wait for others: to be read only."""
        self._unanswered_bytes = 0
        self.malformed: MalformedBytes | None = None
        """What `next_exchange` raises when all frames before it are handed out."""

    # --- requests -----------------------------------------------------------------------------------------------------

    def space(self) -> memoryview:
        """Where the next bytes of the client are to be put."""
        return self.frames.space()

    def received(self, count: int) -> None:
        """`count` bytes were put there. Bytes that no frame can begin with show in `next_exchange`, in their turn."""
        if self.malformed is None:
            try:
                self.frames.received(count)
            except MalformedBytes as error:
                self.malformed = error

    def receive_data(self, data: Buffer) -> None:
        """Take bytes of the client, as `received`."""
        view = memoryview(data)
        while view and self.malformed is None:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_exchange(self) -> Exchange | None:
        """The next request, or None until there are more bytes.

        Raises MalformedBytes, and UnknownFormat for an API or a version that is not offered: now and ever after.
        """
        frame = self.frames.next_frame()
        if frame is None:
            if self.malformed is not None:
                raise self.malformed
            return None
        try:
            request = read_request(frame, self._offered, FEW_ELEMENTS)
        except MalformedBytes as error:
            self.malformed = error
            while self.frames.next_frame() is not None:
                pass
            raise
        exchange = Exchange(request)
        self.exchanges.append(exchange)
        self._unanswered_bytes += request.size_bytes
        return exchange

    @property
    def has_next(self) -> bool:
        """Whether `next_exchange` gives a request, or raises."""
        return bool(self.frames.whole) or self.malformed is not None

    @property
    def is_in_large_request(self) -> bool:
        """Whether memory is held for the rest of a request that is not there yet."""
        return self.frames.is_in_large_frame

    @property
    def large_request_bytes(self) -> int:
        """The size of the request whose rest is not there yet, if memory is held for it."""
        return self.frames.large_frame_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes of requests that are being read, wait, or are not answered yet. A small part is not counted."""
        return self.frames.waiting_bytes + self._unanswered_bytes

    def waiting(self) -> list[Callable[[], None]]:
        """Those who keep a request waiting, and are to be told when the client is done."""
        return [told for exchange in self.exchanges if not exchange.is_answered for told in exchange.on_client_done]

    def forget(self) -> None:
        """Hold no request any more: the connection is closed, and handlers may hold on to this."""
        while self.frames.next_frame() is not None:
            pass
        self.exchanges.clear()
        self.unwritten = None
        self._unanswered_bytes = self.early_bytes = 0
        self.take_outgoing()

    def let_go(self, exchange: Exchange) -> None:
        """Nobody waits for the answer to a request: it has none, also if one is there and is not wholly written."""
        exchange.response = None
        exchange.frame = ()
        self.early_bytes -= exchange.early_bytes
        exchange.early_bytes = 0
        if not exchange.is_answered:
            self.answer(exchange, None)

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """How many requests were given and not answered, or wait for the answers to earlier ones."""
        return len(self.exchanges)

    def answer(self, exchange: Exchange, response: Message | None) -> None:
        """Answer a request; None sends nothing, for a Produce with acks=0.

        If its turn has come, its bytes are outgoing now, with those of the answers that waited for it. Raises
        AnsweredTwice, and UnwritableValue for one of them: those before it are outgoing.
        """
        if exchange.is_answered:
            raise AnsweredTwice(f"{exchange.request.api.name}: a request was answered twice; answer it once")
        exchange.response = response
        exchange.is_answered = True
        if self.exchanges and exchange is not self.exchanges[0]:
            if response is not None:
                self._keep_early(exchange, response)
        elif self.unwritten is None and not self._is_writing:
            self._write_answered()

    def _keep_early(self, exchange: Exchange, response: Message) -> None:
        """Its turn has not come: what it holds counts until then. What cannot be written shows in its turn."""
        try:
            exchange.frame = response_frame(exchange.request, response, FEW_ELEMENTS)
            exchange.early_bytes = sum(len(piece) for piece in exchange.frame)
            exchange.response = None
        except ManyElements:  # the memory of its elements is held; records are not among it
            if isinstance(response, FetchResponse):
                exchange.early_bytes = sum(
                    len(one.records or b"") for topic in response.responses for one in topic.partitions
                )
        except UnwritableValue:
            return
        self.early_bytes += exchange.early_bytes

    def _write_answered(self) -> None:
        """Write the answers whose turn has come, up to a large one that is not written yet."""
        while self.exchanges and self.exchanges[0].is_answered:
            exchange = self.exchanges[0]
            frame = exchange.frame
            if exchange.response is not None and not frame:
                try:
                    frame = response_frame(exchange.request, exchange.response, FEW_ELEMENTS)
                except ManyElements:
                    self.unwritten = exchange
                    return
                except BaseException:
                    self.exchanges.popleft()
                    raise
            self.exchanges.popleft()
            self._unanswered_bytes -= exchange.request.size_bytes
            self.early_bytes -= exchange.early_bytes
            for piece in frame:
                self._outgoing.append(piece)
                self.outgoing_bytes += len(piece)
            if exchange.held is not None:
                exchange.held.written()

    def take_unwritten(self) -> Iterator[None]:
        """Write the large answer whose turn has come, and the answers that follow it. Raises UnwritableValue."""
        exchange, self.unwritten = self.unwritten, None
        self._is_writing = True
        return self._write_large(exchange)

    def _write_large(self, exchange: Exchange | None) -> Iterator[None]:
        while exchange is not None:
            frame: list[Buffer] = []
            if exchange.response is not None:
                for _ in response_frame_in_slices(exchange.request, exchange.response, frame):
                    yield
                    if exchange.response is None:
                        break  # it was let go of
            exchange.frame = () if exchange.response is None else frame
            self._write_answered()
            exchange, self.unwritten = self.unwritten, None
        self._is_writing = False

    def take_outgoing(self) -> list[Buffer]:
        """The bytes of answers whose turn has come, in pieces, each once."""
        outgoing, self._outgoing = self._outgoing, []
        self.outgoing_bytes = 0
        return outgoing
