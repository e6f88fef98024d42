"""A client and a server, back to back, and what either does with bytes that are not the other's."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftlog.kafka.apis import API_VERSIONS, all_apis, api_of
from kraftlog.kafka.connections import (
    COPIED_BYTES_MAX,
    PIECES_PER_JOIN,
    ClientConnection,
    Request,
    Response,
    ServerConnection,
    response_frame,
    response_frame_in_slices,
)
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.frames import LENGTH
from kraftlog.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kraftlog.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.notation import Buffer, Versions

OFFERED = {0: Versions(3, 13), 3: Versions(0, 13), API_VERSIONS: Versions(0, 3)}


def _server() -> ServerConnection:
    return ServerConnection(OFFERED)


def _joined(pieces: Iterable[Buffer]) -> bytes:
    return b"".join(pieces)


def _asked(server: ServerConnection, data: Iterable[Buffer]) -> Request:
    server.receive_data(_joined(data))
    request = server.next_event()
    assert request is not None
    return request


def _answered(client: ClientConnection, data: Iterable[Buffer]) -> Response:
    client.receive_data(_joined(data))
    response = client.next_event()
    assert response is not None
    return response


@pytest.mark.parametrize("api", list(all_apis()), ids=lambda api: api.name)
def test_every_version_of_every_api_is_asked_and_answered(api: object) -> None:
    from kraftlog.kafka.apis import Api

    assert isinstance(api, Api)
    client, server = ClientConnection("me"), ServerConnection({api.key: api.versions})
    for version in api.versions:
        asked = api.request()
        request = _asked(server, client.send(asked, version))
        assert (request.api, request.version, request.client_id, request.body) == (api, version, "me", asked)
        answer = api.response()
        response = _answered(client, server.send(request, answer))
        assert (response.api, response.version, response.body) == (api, version, answer)
        assert response.correlation_id == request.correlation_id == version - api.versions.lowest
    assert (client.in_flight, server.unanswered, client.next_event(), server.next_event()) == (0, 0, None, None)


def test_requests_may_be_on_their_way_together_and_are_answered_in_order() -> None:
    client, server = ClientConnection(None), _server()
    data = _joined([*client.send(MetadataRequest(), 9), *client.send(ApiVersionsRequest(), 2)])
    server.receive_data(data)
    first, second = server.next_event(), server.next_event()
    assert first is not None and second is not None
    assert (server.unanswered, client.in_flight) == (2, 2)
    with pytest.raises(InvariantViolation, match="answers go in the order of their requests"):
        server.send(second, ApiVersionsResponse())
    with pytest.raises(InvariantViolation, match="not this API's response"):
        server.send(first, ApiVersionsResponse())


def test_a_produce_with_acks_0_is_not_answered() -> None:
    client, server = ClientConnection("me"), _server()
    request = _asked(server, client.send(ProduceRequest(acks=0), 9, is_answered=False))
    assert client.in_flight == 0
    server.leave_unanswered(request)
    following = _asked(server, client.send(MetadataRequest(), 9))
    assert _answered(client, server.send(following, MetadataResponse())).correlation_id == 1


@pytest.mark.parametrize("version", [4, 5, 300])
def test_a_version_of_api_versions_that_is_not_offered_is_answered_in_version_0(version: int) -> None:
    server = _server()
    header = bytes.fromhex("0012") + version.to_bytes(2) + bytes.fromhex("00000007 0002 6d65 00")
    rest = bytes.fromhex("02 61 02 31 00") if version == 4 else b"what nobody knows yet"
    request = _asked(server, [LENGTH.pack(len(header + rest)), header, rest])
    assert (request.version, request.correlation_id, request.client_id, request.body) == (version, 7, "me", None)
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),)
    )
    sent = _joined(server.send(request, answer))
    assert sent == bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0003")


def test_a_client_learns_which_versions_there_are_from_a_refusal() -> None:
    client, server = ClientConnection("me"), _server()
    request = _asked(server, client.send(ApiVersionsRequest(), 4))
    assert request.body is None
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(ApiVersion(api_key=18),))
    response = _answered(client, server.send(request, answer))
    assert (response.version, response.body) == (0, answer)


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        ("0063 0000 00000000 ffff", UnknownFormat, "request: its API is 99, which is not offered"),
        ("0001 0004 00000000 ffff", UnknownFormat, "request: its API is Fetch, which is not offered"),
        ("0003 000e 00000000 ffff", UnknownFormat, "MetadataRequest: its version is 14; offered are 0-13"),
        ("0003 ffff 00000000 ffff", UnknownFormat, "MetadataRequest: its version is -1; offered are 0-13"),
        (
            "0003 0001 00000000 0005",
            MalformedBytes,
            "RequestHeader.client_id: 5 bytes do not fit in the 0 that are left",
        ),
        ("0003 0001 00000000 ffff", MalformedBytes, "MetadataRequest.topics: the 10 bytes end here"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(frame: str, error: type[Exception], words: str) -> None:
    server = _server()
    data = bytes.fromhex(frame)
    server.receive_data(LENGTH.pack(len(data)) + data)
    with pytest.raises(error, match=f"^{words}"):
        server.next_event()


def test_what_follows_a_request_in_its_frame_is_ignored() -> None:
    server = _server()
    data = bytes.fromhex("0003 000d 00000000 ffff 00 00 00 00 00 010000")  # as librdkafka asks for all topics
    server.receive_data(LENGTH.pack(len(data)) + data)
    request = server.next_event()
    assert request is not None
    assert request.body == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("00000001 00000000", "ResponseHeader.correlation_id: is 1, and the oldest request, Metadata, has 0"),
        ("00000000", r"MetadataResponse.brokers: the 4 bytes end here"),
        ("00000000 00000000 00000000 00", "MetadataResponse: 1 extra bytes after version 0"),
    ],
)
def test_a_response_that_is_not_the_next_one_is_refused(frame: str, words: str) -> None:
    client = ClientConnection("me")
    client.send(MetadataRequest(), 0)
    data = bytes.fromhex(frame)
    client.receive_data(LENGTH.pack(len(data)) + data)
    with pytest.raises(MalformedBytes, match=f"^{words}"):
        client.next_event()


def test_a_response_to_nothing_is_refused() -> None:
    client = ClientConnection("me")
    client.receive_data(LENGTH.pack(4) + bytes(4))
    with pytest.raises(MalformedBytes, match=r"^response: no request is in flight"):
        client.next_event()


def test_a_request_that_cannot_be_written_is_not_in_flight() -> None:
    client = ClientConnection("me")
    with pytest.raises(UnwritableValue, match="MetadataRequest: has no version 99"):
        client.send(MetadataRequest(), 99)
    assert client.in_flight == 0
    assert _asked(_server(), client.send(MetadataRequest(), 1)).correlation_id == 0


def test_short_records_are_copied_and_an_answer_of_many_partitions_has_few_pieces() -> None:
    """Each piece costs as much as a thousand bytes where it is counted, and where it is written to a socket."""
    request = Request(api_of(FetchResponse.KEY), 12, 1, None, FetchRequest(), 0)
    short, long = bytes(COPIED_BYTES_MAX), bytes(COPIED_BYTES_MAX + 1)
    parts = tuple(PartitionData(partition_index=n, records=long if n == 7 else short[: n % 3]) for n in range(5_000))
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=parts),))
    at_once, frame = response_frame(request, response), list[Buffer]()
    for _ in response_frame_in_slices(request, response, frame):
        pass
    assert _joined(at_once) == _joined(frame)
    assert len(at_once) == 3
    assert len(frame) < 10 * 5_000 / PIECES_PER_JOIN
    assert [piece.obj for piece in at_once if isinstance(piece, memoryview)] == [long]


def test_records_go_from_the_frame_to_the_response_as_they_are() -> None:
    client, server = ClientConnection("me"), _server()
    records = bytes(300_000)
    topic = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=records),))
    sent = client.send(ProduceRequest(topic_data=(topic,)), 9)
    assert [piece.obj for piece in sent if isinstance(piece, memoryview)] == [records]
    assert len(sent) == 3
    request = _asked(server, sent)
    assert isinstance(request.body, ProduceRequest)
    read = request.body.topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert isinstance(read.obj, bytearray)
    assert read == records
    assert _answered(client, server.send(request, ProduceResponse())).body == ProduceResponse()


def test_kafka_python_reads_our_frames() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol.metadata import ApiVersionsRequest as TheirRequest
    request = TheirRequest(version=3, client_software_name="kafka-python", client_software_version="3")
    request.with_header(correlation_id=5, client_id="theirs")
    server = _server()
    server.receive_data(request.encode(header=True, framed=True))
    read = server.next_event()
    assert read is not None
    assert (read.correlation_id, read.client_id) == (5, "theirs")
    assert read.body == ApiVersionsRequest(client_software_name="kafka-python", client_software_version="3")
