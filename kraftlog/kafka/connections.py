"""The two ends of a connection, without the connection: bytes in, events out; messages in, bytes out. As h11 does it.

    server = ServerConnection(offered)                     client = ClientConnection("client-1")
    server.receive_data(bytes from the socket)             data = client.send(FetchRequest(...), 17)   to the socket
    while (request := server.next_event()) is not None:    client.receive_data(bytes from the socket)
        data = server.send(request, response)              while (response := client.next_event()) is not None: ...

Requests of a connection are answered in their order; both ends check that. After an error the caller must close the
connection, since the bytes that follow cannot be trusted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct as Packing
from typing import Final

from kraftbase.checks import check
from kraftbase.errors import ErrorCode
from kraftlog.kafka.apis import API_VERSIONS, NAMES, Api, api_of, elements_max
from kraftlog.kafka.codec import ANY_NUMBER, decode_from, decode_in_slices, write, write_in_slices
from kraftlog.kafka.errors import MalformedBytes, ManyElements, UnknownFormat
from kraftlog.kafka.frames import FRAME_BYTES_MAX, LENGTH, LENGTH_BYTES, FrameReader
from kraftlog.kafka.headers import RequestHeader, ResponseHeader
from kraftlog.kafka.messages.api_versions import ApiVersionsResponse
from kraftlog.kafka.notation import Buffer, Message, Versions

REQUEST_HEADER_BYTES_MIN: Final = 10
RESPONSE_HEADER_BYTES_MIN: Final = 4
FEW_ELEMENTS: Final = 256
"""A message with more array elements is read, or written, in slices."""

PIECES_PER_JOIN: Final = 1024
"""When a message is written in slices, its pieces are joined whenever there are this many."""

COPIED_BYTES_MAX: Final = 1024
"""Records up to this size are copied into the piece around them, since a piece of their own costs more. Consider the
response to a Fetch of 100,000 partitions, most of which have no records."""

CORRELATION_IDS: Final = 2**31
"""Correlation ids run from 0 to 2^31 - 1, and then start again at 0."""

_KEY_AND_VERSION: Final = Packing(">hh")
_ERROR_CODE: Final = Packing(">h")
_RESPONSE_HEADERS: Final = (Packing(">i"), Packing(">ix"))
"""The two versions of ResponseHeader: a correlation id, in version 1 followed by a zero byte: no tagged fields."""


@dataclass(slots=True, eq=False)
class Request:
    """A request that arrived. `body` is None for a version of ApiVersions that is not offered.

    Such a request is answered with UNSUPPORTED_VERSION, and `response_frame` writes the response in version 0, which
    every client can read (KIP-511). For speed the class is not frozen; only `unread` changes a request.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Message | None
    size_bytes: int
    """Its size on the wire, with its length."""
    unread: Iterator[None] | None = None
    """For a request with many elements: an iterator that reads the body in slices. Raises MalformedBytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A response that arrived. `version` is the version of the body."""

    api: Api
    version: int
    correlation_id: int
    body: Message


def read_request(frame: Buffer, offered: Mapping[int, Versions], few_elements: int = ANY_NUMBER) -> Request:
    """Return the request in a frame. `offered` has the versions that are offered, by API key.

    If the request has more than `few_elements` elements, its body is left to `unread`. Raises MalformedBytes, and
    UnknownFormat for an API or a version that is not offered.
    """
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    versions = offered.get(key)
    if versions is None:
        raise UnknownFormat("request", f"its API is {NAMES.get(key, key)}, which is not offered")
    api = api_of(key)
    body: Message | None = None
    if versions.lowest <= version <= versions.highest:
        header, at = decode_from(RequestHeader, _header_versions(key, version)[0], frame, 0)
        # Bytes after the body are ignored, as in Kafka: librdkafka sends three extra ones when it asks for all topics.
        try:
            body, _ = decode_from(api.request, version, frame, at, few_elements)
        except ManyElements:
            large = Request(api, version, header.correlation_id, header.client_id, None, LENGTH_BYTES + len(frame))
            large.unread = _read_body(large, frame, at)
            return large
    elif key == API_VERSIONS:
        header, _ = decode_from(RequestHeader, api.request_header_version(version), frame, 0)
    else:
        raise UnknownFormat(f"{api.name}Request", f"its version is {version}; offered are {versions}")
    return Request(api, version, header.correlation_id, header.client_id, body, LENGTH_BYTES + len(frame))


def _read_body(request: Request, frame: Buffer, at: int) -> Iterator[None]:
    bound = elements_max(request.api.name, len(frame))
    body, _ = yield from decode_in_slices(request.api.request, request.version, frame, at, bound)
    request.body = body
    request.unread = None


def response_frame(request: Request, response: Message, few_elements: int = ANY_NUMBER) -> list[Buffer]:
    """Return the frame of the response to a request, in pieces. Raises UnwritableValue, and ManyElements."""
    api = request.api
    if type(response) is not api.response:
        check(False, "not this API's response", api=api.name)
    version = 0 if request.body is None else request.version
    pieces: list[Buffer] = [_RESPONSE_HEADERS[_header_versions(api.key, version)[1]].pack(request.correlation_id)]
    write(response, version, pieces, few_elements)
    return _framed(pieces)


def response_frame_in_slices(request: Request, response: Message, frame: list[Buffer]) -> Iterator[None]:
    """As `response_frame`, in slices; the pieces are complete in `frame` at the end. Raises UnwritableValue."""
    version = 0 if request.body is None else request.version
    header = _RESPONSE_HEADERS[_header_versions(request.api.key, version)[1]].pack(request.correlation_id)
    pieces: list[Buffer] = []
    for _ in write_in_slices(response, version, pieces):
        if len(pieces) >= PIECES_PER_JOIN:
            frame += _joined(pieces)
            pieces.clear()
        yield
    frame += _joined(pieces)
    size_bytes = len(header) + sum(map(len, frame))
    frame.insert(0, LENGTH.pack(size_bytes) + header)


class ServerConnection:
    """The server's end. `offered` has the versions that it offers, by API key."""

    def __init__(self, offered: Mapping[int, Versions], request_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frames = FrameReader(request_bytes_max, REQUEST_HEADER_BYTES_MIN)
        self._offered = offered
        self._unanswered: deque[Request] = deque()

    @property
    def unanswered(self) -> int:
        """How many requests have no answer yet."""
        return len(self._unanswered)

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes from the peer. Raises MalformedBytes for a frame that is too long or too short."""
        self.frames.receive_data(data)

    def next_event(self) -> Request | None:
        """Return the next request, or None until more bytes arrive.

        Raises MalformedBytes, and UnknownFormat for an API or a version that is not offered.
        """
        frame = self.frames.next_frame()
        if frame is None:
            return None
        request = read_request(frame, self._offered)
        self._unanswered.append(request)
        return request

    def send(self, request: Request, response: Message) -> list[Buffer]:
        """Return the frame of the response to the oldest request, in pieces. Raises UnwritableValue."""
        self._answer(request)
        return response_frame(request, response)

    def leave_unanswered(self, request: Request) -> None:
        """Remove the oldest request, which gets no answer: a Produce with acks=0."""
        self._answer(request)

    def _answer(self, request: Request) -> None:
        check(bool(self._unanswered) and self._unanswered[0] is request, "answers go in the order of their requests")
        self._unanswered.popleft()


class ClientConnection:
    """The client's end."""

    def __init__(
        self, client_id: str | None, response_bytes_max: int = FRAME_BYTES_MAX, *, keeps_memory: bool = False
    ) -> None:
        """With `keeps_memory`, a large response reuses the memory of the previous one (`kraftlog.kafka.frames`)."""
        self.frames = FrameReader(response_bytes_max, RESPONSE_HEADER_BYTES_MIN, keeps_memory=keeps_memory)
        self._client_id = client_id
        self._next_correlation_id = 0
        self._in_flight: deque[tuple[int, Api, int]] = deque()

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._in_flight)

    def send(self, request: Message, version: int, is_answered: bool = True) -> list[Buffer]:
        """Return the frame of a request, in pieces. A Produce with acks=0 is not answered. Raises UnwritableValue."""
        api = api_of(request.KEY)
        correlation_id = self._next_correlation_id
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        pieces: list[Buffer] = []
        write(header, _header_versions(api.key, version)[0], pieces)
        write(request, version, pieces)
        framed = _framed(pieces)
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_IDS
        if is_answered:
            self._in_flight.append((correlation_id, api, version))
        return framed

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes from the peer. Raises MalformedBytes for a frame that is too long or too short."""
        self.frames.receive_data(data)

    def next_event(self) -> Response | None:
        """Return the next response, or None until more bytes arrive.

        Raises MalformedBytes, also for a response that does not belong to the oldest request in flight.
        """
        frame = self.frames.next_frame()
        if frame is None:
            return None
        if not self._in_flight:
            raise MalformedBytes("response", "no request is in flight")
        correlation_id, api, version = self._in_flight[0]
        header, at = decode_from(ResponseHeader, _header_versions(api.key, version)[1], frame, 0)
        if header.correlation_id != correlation_id:
            raise MalformedBytes(
                "ResponseHeader.correlation_id",
                f"is {header.correlation_id}, and the oldest request, {api.name}, has {correlation_id}",
            )
        if api.response is ApiVersionsResponse and _is_unsupported(frame, at):
            version = 0
        body = _whole(api.response, version, frame, at)
        self._in_flight.popleft()
        return Response(api, version, correlation_id, body)


@cache
def _header_versions(key: int, version: int) -> tuple[int, int]:
    """Return the header versions of a request and of its response, for a version that the API has."""
    api = api_of(key)
    return api.request_header_version(version), api.response_header_version(version)


def _is_unsupported(frame: Buffer, at: int) -> bool:
    """Whether a response to ApiVersions has UNSUPPORTED_VERSION: such a response is of version 0."""
    return (
        len(frame) >= at + _ERROR_CODE.size and _ERROR_CODE.unpack_from(frame, at)[0] == ErrorCode.UNSUPPORTED_VERSION
    )


def _whole(message: type[Message], version: int, frame: Buffer, at: int) -> Message:
    body, end = decode_from(message, version, frame, at)
    if end != len(frame):
        raise MalformedBytes(message.__name__, f"{len(frame) - end} extra bytes after version {version}")
    return body


def _framed(pieces: list[Buffer]) -> list[Buffer]:
    """Return the pieces of a frame, beginning with its length, joined as by `_joined`."""
    if memoryview not in map(type, pieces):
        whole = b"".join(pieces)
        return [LENGTH.pack(len(whole)) + whole]
    joined = _joined(pieces)
    joined[0] = b"".join((LENGTH.pack(sum(map(len, joined))), joined[0]))
    return joined


def _joined(pieces: list[Buffer]) -> list[Buffer]:
    """Join all pieces except long fields of type records, which stay pieces of their own."""
    if memoryview not in map(type, pieces):
        return [b"".join(pieces)]
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for piece in pieces:
        if isinstance(piece, memoryview) and len(piece) > COPIED_BYTES_MAX:
            joined += b"".join(run), piece
            run = []
        else:
            run.append(piece)
    joined.append(b"".join(run))
    return joined
