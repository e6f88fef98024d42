"""One connection without its socket: bytes in, requests out; answers in, in any order; bytes out, in order.

    conversation.receive_data(bytes from the client)
    while (exchange := conversation.next_exchange()) is not None:
        ...  now, or later:  conversation.answer(exchange, response)
    for piece in conversation.take_outgoing(): ...  to the client

A request or an answer with many elements takes long to read or to write, so it is read or written in slices: the caller
exhausts `exchange.request.unread` before it reads the body, and `conversation.take_unwritten()` if `unwritten` is not
None after an answer.

This module has no clock and does no I/O, so tests can cut the bytes at any place. One client of the simulated broker
log uses it (`kraftlog.sim.broker_log.byte_client`); the other simulated clients call the handlers directly. After an
error the connection must be closed.
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
    """A handler answered a request a second time."""


class Held(Protocol):
    """The owner of a large request's memory."""

    def written(self) -> None:
        """The answer is outgoing, or the request has none: the memory may be given back."""
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
        """The answer's bytes, if they were written in slices, or before the answer's turn."""
        self.early_bytes = 0
        """The size of the answer while it waits for the answers to earlier requests."""
        self.is_answered = False
        self.began_seconds = 0.0
        """When the caller began to handle the request, by the caller's clock."""
        self.on_client_done: list[Callable[[], None]] = []
        """Callbacks of `ClientRequest.on_client_done`."""
        self.on_memory_wanted: list[Callable[[], None]] = []
        """Callbacks of `ClientRequest.on_memory_wanted`."""
        self.held: Held | None = None


class Conversation:
    """The requests and answers of one connection."""

    def __init__(self, offered: Mapping[int, Versions], request_bytes_max: int) -> None:
        self.outgoing_bytes = 0
        """How many bytes `take_outgoing` would return."""
        self.unwritten: Exchange | None = None
        """The exchange whose answer is next, and too large to be written at once."""
        self._offered = offered
        self.frames = FrameReader(request_bytes_max, REQUEST_HEADER_BYTES_MIN)
        """Read-only for callers."""
        self._is_writing = False
        """Whether a large answer is being written: later answers wait for it."""
        self._outgoing: list[Buffer] = []
        self.early_bytes = 0
        """The bytes of answers that wait for the answers to earlier requests. Read-only for callers."""
        self.exchanges: deque[Exchange] = deque()
        """Requests handed out whose answers are not outgoing yet, in order. Read-only for callers."""
        self._unanswered_bytes = 0
        self.malformed: MalformedBytes | None = None
        """What `next_exchange` raises when it has returned all requests before the malformed bytes."""

    # --- requests -----------------------------------------------------------------------------------------------------

    def space(self) -> memoryview:
        """Return the space for the client's next bytes."""
        return self.frames.space()

    def received(self, count: int) -> None:
        """`count` bytes are in the space. Malformed bytes show in `next_exchange`, after the requests before them."""
        if self.malformed is None:
            try:
                self.frames.received(count)
            except MalformedBytes as error:
                self.malformed = error

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes of the client; like `space` and `received`, with a copy."""
        view = memoryview(data)
        while view and self.malformed is None:
            space = self.space()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.received(count)
            view = view[count:]

    def next_exchange(self) -> Exchange | None:
        """Return the next request, or None until there are more bytes.

        Raises MalformedBytes, and UnknownFormat for an API or a version that is not offered; each later call raises the
        same error.
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
        """Whether `next_exchange` returns a request or raises."""
        return bool(self.frames.whole) or self.malformed is not None

    @property
    def is_in_large_request(self) -> bool:
        """Whether memory is held for a large request that has not arrived completely."""
        return self.frames.is_in_large_frame

    @property
    def large_request_bytes(self) -> int:
        """The size of the large request that has not arrived completely, if memory is held for it; else 0."""
        return self.frames.large_frame_bytes

    @property
    def queued_bytes(self) -> int:
        """Bytes of requests that are being read, wait, or are not answered, without a small incomplete one."""
        return self.frames.waiting_bytes + self._unanswered_bytes

    def waiting(self) -> list[Callable[[], None]]:
        """Return the callbacks of unanswered requests that want to know when the client sends nothing more."""
        return [
            callback for exchange in self.exchanges if not exchange.is_answered for callback in exchange.on_client_done
        ]

    def clear(self) -> None:
        """Drop all requests and answers: the connection is closed. Handlers may still hold this object."""
        while self.frames.next_frame() is not None:
            pass
        self.exchanges.clear()
        self.unwritten = None
        self._unanswered_bytes = self.early_bytes = 0
        self.take_outgoing()

    def let_go(self, exchange: Exchange) -> None:
        """Drop the answer to a request, even if part of it is written: the client does not expect one."""
        exchange.response = None
        exchange.frame = ()
        self.early_bytes -= exchange.early_bytes
        exchange.early_bytes = 0
        if not exchange.is_answered:
            self.answer(exchange, None)

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """How many requests were handed out whose answers are not outgoing yet."""
        return len(self.exchanges)

    def answer(self, exchange: Exchange, response: Message | None) -> None:
        """Answer a request; None sends nothing, for a Produce with acks=0.

        If its turn has come, its bytes are outgoing now, with those of later answers that waited for it. Raises
        AnsweredTwice, and UnwritableValue if one of these answers cannot be written; the answers before that one are
        outgoing.
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
        """Keep an answer whose turn has not come, and count its bytes. One that cannot be written raises in its
        turn."""
        try:
            exchange.frame = response_frame(exchange.request, response, FEW_ELEMENTS)
            exchange.early_bytes = sum(len(piece) for piece in exchange.frame)
            exchange.response = None
        except ManyElements:  # large_requests.py counts the memory of the elements; count only the records here
            if isinstance(response, FetchResponse):
                exchange.early_bytes = sum(
                    len(partition.records or b"") for topic in response.responses for partition in topic.partitions
                )
        except UnwritableValue:
            return
        self.early_bytes += exchange.early_bytes

    def _write_answered(self) -> None:
        """Write the answers whose turn has come, up to a large one, which becomes `unwritten`."""
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
        """Write the large answer whose turn has come, then those that follow, in slices. Raises UnwritableValue."""
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
                        break  # `let_go` has dropped the answer
            exchange.frame = () if exchange.response is None else frame
            self._write_answered()
            exchange, self.unwritten = self.unwritten, None
        self._is_writing = False

    def take_outgoing(self) -> list[Buffer]:
        """Return the bytes of answers whose turn has come, in pieces, and forget them."""
        outgoing, self._outgoing = self._outgoing, []
        self.outgoing_bytes = 0
        return outgoing
