"""Clients with real sockets, and a handler whose requests a test answers itself."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.requests import ClientRequest, Reply
from kraftlog.network.serving import Limits, Listener, Network, serving

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
OFFERED: Final[Mapping[int, Versions]] = {
    PRODUCE: Versions(3, 9), FETCH: Versions(4, 12), METADATA: Versions(0, 12), API_VERSIONS: Versions(0, 3),
}  # fmt: skip
PLAINTEXT: Final = "PLAINTEXT"
KIB: Final = 1024
MIB: Final = 1024 * 1024


def never(error: BaseException) -> None:
    """Called with what must end the process."""
    raise AssertionError("nothing fatal was expected") from error


@asynccontextmanager
async def network(
    handler: Callable[[ClientRequest, Reply], None],
    on_fatal: Callable[[BaseException], None] = never,
    **limits: int,
) -> AsyncIterator[Network]:
    """One listener on a free port."""
    listeners = [Listener(PLAINTEXT, "127.0.0.1", 0)]
    async with serving(handler, listeners, Limits(**limits), OFFERED, on_fatal=on_fatal) as made:
        yield made


class Asked:
    """A handler that keeps its requests for the test to answer."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[tuple[ClientRequest, Reply]] = asyncio.Queue()

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        """Keep it."""
        self.waiting.put_nowait((request, reply))

    async def next(self) -> tuple[ClientRequest, Reply]:
        """The next request."""
        return await self.waiting.get()

    async def reply(self) -> Reply:
        """What answers the next request."""
        return (await self.next())[1]


def answer_at_once(request: ClientRequest, reply: Reply) -> None:
    """A handler: the answer to Metadata has the names of the topics that were asked for; to Fetch, so many bytes."""
    match request.body:
        case MetadataRequest(topics=topics):
            reply(named(",".join(str(topic.name) for topic in topics or ())))
        case FetchRequest(max_bytes=max_bytes):
            reply(large(max_bytes))
        case _:
            reply(None)


def ask(name: str = "") -> MetadataRequest:
    """A small request."""
    return MetadataRequest(topics=(MetadataRequestTopic(name=name),))


def named(name: str) -> MetadataResponse:
    """An answer to it."""
    return MetadataResponse(cluster_id=name)


def name_of(response: Message) -> str | None:
    """The name in an answer."""
    assert isinstance(response, MetadataResponse)
    return response.cluster_id


def produce(records_bytes: int, acks: int = 0) -> ProduceRequest:
    """A request as large as that, and a little larger."""
    data = PartitionProduceData(records=bytes(records_bytes))
    return ProduceRequest(acks=acks, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))


def fetch(records_bytes: int) -> FetchRequest:
    """A request for as much as that."""
    return FetchRequest(max_bytes=records_bytes)


def large(records_bytes: int) -> FetchResponse:
    """An answer to a Fetch, as large as that, and a little larger."""
    return FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(records=bytes(records_bytes)),)),)
    )


class RawClient:
    """A connection over which a test writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._connection = ClientConnection("a client")

    @classmethod
    async def connect(cls, to: Network, host: str = "127.0.0.1") -> Self:
        """Connect to the listener."""
        return cls(*await asyncio.open_connection(host, to.ports[PLAINTEXT]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def bytes_of(self, request: Message, version: int | None = None) -> bytes:
        """The bytes of the next request. A Produce with acks=0 gets no answer."""
        is_answered = getattr(request, "acks", 1) != 0
        version = OFFERED[request.KEY].highest if version is None else version
        return b"".join(self._connection.send(request, version, is_answered))

    def send(self, *requests: Message) -> None:
        """Ask, all in one write."""
        self.writer.write(b"".join(map(self.bytes_of, requests)))

    async def receive(self) -> Message:
        """The next answer."""
        while (response := self._connection.next_event()) is None:
            data = await self.reader.read(MIB)
            if not data:
                raise EOFError("the broker has closed the connection")
            self._connection.receive_data(data)
        return response.body

    async def ask(self, name: str) -> str | None:
        """Ask for a name, and return the one that was answered."""
        self.send(ask(name))
        return name_of(await self.receive())

    async def is_closed(self) -> bool:
        """Wait for the end; whether nothing came before."""
        try:
            return not await self.reader.read()
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """End as a client whose machine was switched off and on: nobody is there any more."""
        bare: Any = self.writer.get_extra_info("socket")
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
