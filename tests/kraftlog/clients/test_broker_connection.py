"""A client that asks, and peers that are no brokers, or bad ones."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.time_limit import limits_end, set_limit
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.clients.cluster import check_partitions, describe_cluster
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kraftlog.kafka.notation import Versions
from tests.kraftlog.clients.peers import broker, metadata, peer
from tests.raft.nodes import free_port

METADATA = 3
ALL = {METADATA: Versions(0, 13)}


def refusal(talk: Callable[[socket.socket], object]) -> ApiError:
    with peer(talk) as endpoint, pytest.raises(ApiError) as refused:
        describe_cluster([endpoint], ["t"])
    return refused.value


def read_and(then: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(then)

    return talk


def test_a_cluster_is_described() -> None:
    there = {1: Endpoint("a", 1), 2: Endpoint("b", 2)}
    with peer(broker(ALL, lambda request: metadata(there, {"t": 3, "u": 1}))) as endpoint:
        found = describe_cluster([endpoint], ["t", "u"])
    assert found.brokers == there
    assert found.partitions == {"t": (0, 1, 2), "u": (0,)}


def test_the_newest_version_that_both_know_is_asked_in() -> None:
    asked = []

    def answer(request: object) -> MetadataResponse:
        asked.append(request.version)
        return metadata({})

    for theirs in (Versions(0, 4), Versions(2, 99)):
        with peer(broker({METADATA: theirs}, answer)) as endpoint, BrokerConnection(endpoint) as connection:
            connection.call(MetadataRequest(), MetadataResponse)
    assert asked == [4, MetadataRequest.VERSIONS.highest]


@pytest.mark.parametrize(
    ("offered", "words"),
    [({}, "does not answer Metadata"), ({METADATA: Versions(98, 99)}, "knows versions 98-99 of Metadata")],
)
def test_a_broker_without_a_version_that_we_know(offered: dict[int, Versions], words: str) -> None:
    refused = refusal(broker(offered, lambda request: metadata({})))
    assert refused.code is ErrorCode.UNSUPPORTED_VERSION
    assert words in str(refused)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"", ErrorCode.BROKER_NOT_AVAILABLE),
        (b"\x00\x00\x06\x04\x00\x00", ErrorCode.BROKER_NOT_AVAILABLE),  # as a gRPC server begins, and then closes
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorCode.CORRUPT_MESSAGE),
        (b"\x00\x00\x00\x04\x00\x00\x00\x63", ErrorCode.CORRUPT_MESSAGE),  # it answers something else
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x00", ErrorCode.CORRUPT_MESSAGE),
        (b"\xff\xff\xff\xff", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_is_no_broker(said: bytes, code: ErrorCode) -> None:
    refused = refusal(read_and(said))
    assert refused.code is code
    assert "give the address of a broker" in str(refused)


def test_a_peer_that_says_nothing_is_given_up() -> None:
    with limits_end():
        set_limit(0.2)
        refused = refusal(lambda connection: [connection.recv(65_536), connection.recv(1)])
    assert refused.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert "no answer in time" in str(refused)


@pytest.mark.parametrize("endpoint", [Endpoint("127.0.0.1", 70_000), Endpoint("a" * 300, 1), Endpoint("..", 1)])
def test_an_address_that_is_none_as_a_broker_may_advertise(endpoint: Endpoint) -> None:
    with pytest.raises(ApiError) as refused:
        BrokerConnection(endpoint)
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_the_first_that_answers_is_asked_and_none_names_all() -> None:
    closed, other = Endpoint("127.0.0.1", free_port()), Endpoint("127.0.0.1", free_port())
    with peer(broker(ALL, lambda request: metadata({7: closed}))) as endpoint:
        assert describe_cluster([closed, endpoint], []).brokers == {7: closed}
    with pytest.raises(ApiError) as refused:
        describe_cluster([closed, other], [])
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert all(str(endpoint) in str(refused.value) for endpoint in (closed, other))


@pytest.mark.parametrize(
    ("error_code", "code", "words"),
    [
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 't'"),
        (17, ErrorCode.INVALID_TOPIC_EXCEPTION, "does not describe the topic 't'"),
        (29, ErrorCode.UNKNOWN_SERVER_ERROR, "error 29"),
    ],
)
def test_a_topic_with_an_error(error_code: int, code: ErrorCode, words: str) -> None:
    topic = MetadataResponseTopic(name="t", error_code=error_code)
    refused = refusal(broker(ALL, lambda request: MetadataResponse(topics=(topic,))))
    assert refused.code is code
    assert words in str(refused)


def test_a_broker_that_does_not_describe_its_cluster() -> None:
    refused = refusal(broker(ALL, lambda request: MetadataResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)))
    assert refused.code is ErrorCode.REQUEST_TIMED_OUT


def test_an_answer_without_the_topic() -> None:
    assert refusal(broker(ALL, lambda request: metadata({}))).code is ErrorCode.CORRUPT_MESSAGE


def test_partitions_that_a_topic_does_not_have() -> None:
    check_partitions("t", [0, 2], (0, 1, 2))
    with pytest.raises(ApiError, match="no partition 3; it has 3"):
        check_partitions("t", [0, 3], (0, 1, 2))
