"""Peers for a client that asks: brokers that say what a test wants, and what is no broker at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kraftbase.endpoint import Endpoint
from kraftlog.kafka.apis import API_VERSIONS, OWN_NAMES
from kraftlog.kafka.connections import Request, ServerConnection
from kraftlog.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from kraftlog.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlog.kafka.notation import Message, Versions

Answers = Callable[[Request], Message]


@contextmanager
def peer(talk: Callable[[socket.socket], object]) -> Iterator[Endpoint]:
    """A listener that hands each connection, one after the other, to `talk`, and closes it then."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield Endpoint("127.0.0.1", listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


def broker(
    offered: Mapping[int, Versions], answers: Answers, *, is_naming: bool = False
) -> Callable[[socket.socket], None]:
    """Speaks Kafka's protocol, and answers what it is asked but for its versions with `answers`.

    With `is_naming` also who says who he is, when he asks for versions, is answered so. APIs of our own are answered,
    whether they are in `offered` or not.
    """

    def talk(connection: socket.socket) -> None:
        server = ServerConnection({**dict.fromkeys(OWN_NAMES, Versions(0, 0)), **offered, API_VERSIONS: Versions(0, 4)})
        while data := connection.recv(65_536):
            server.receive_data(data)
            while (request := server.next_event()) is not None:
                is_about_versions = request.api.key == API_VERSIONS and not (is_naming and request.version)
                answer = versions_of(offered) if is_about_versions else answers(request)
                connection.sendall(b"".join(server.send(request, answer)))

    return talk


def versions_of(offered: Mapping[int, Versions], error_code: int = 0) -> ApiVersionsResponse:
    keys = tuple(ApiVersion(api_key=key, min_version=of.lowest, max_version=of.highest) for key, of in offered.items())
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def metadata(brokers: Mapping[int, Endpoint], topics: Mapping[str, int] | None = None) -> MetadataResponse:
    """These brokers, and topics with that many partitions."""
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(node_id=of, host=at.host, port=at.port) for of, at in brokers.items()),
        topics=tuple(
            MetadataResponseTopic(
                name=name, partitions=tuple(MetadataResponsePartition(partition_index=of) for of in range(count))
            )
            for name, count in (topics or {}).items()
        ),
    )
