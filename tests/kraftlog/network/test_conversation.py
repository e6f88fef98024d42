"""A conversation without a socket: the same requests however bytes are cut, answers in order, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.frames import LENGTH
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.kafka.messages.produce import ProduceRequest
from kraftlog.kafka.notation import Message
from kraftlog.network.conversation import AnsweredTwice, Conversation, Exchange
from tests.effort import examples
from tests.kraftlog.network.clients import KIB, METADATA, OFFERED, ask, name_of, named, produce

BYTES_MAX = 200 * KIB
SIZES = (0, 1, 100, 64 * KIB - 100, 64 * KIB, 150 * KIB)
MALFORMED = (
    bytes.fromhex("ffffffff"),  # a length below 0
    LENGTH.pack(BYTES_MAX + 1),
    LENGTH.pack(3),
    bytes.fromhex("0000000a 0063 0000 00000000 ffff"),  # an API that nobody knows
    bytes.fromhex("0000000a 0003 7fff 00000000 ffff"),  # a version that nobody knows
    bytes.fromhex("0000000e 0003 0001 00000000 ffff 7fffffff"),  # an array that ends too early
)


def _conversation() -> Conversation:
    return Conversation(OFFERED, BYTES_MAX)


def _events(conversation: Conversation) -> list[Any]:
    """What is there now: requests, and the error that is the last of all."""
    found: list[Any] = []
    try:
        while (exchange := conversation.next_exchange()) is not None:
            request = exchange.request
            found.append((request.api.name, request.correlation_id, request.size_bytes, request.body))
    except MalformedBytes as error:
        found.append(str(error))
    return found


def _asked(conversation: Conversation, *requests: Message) -> tuple[ClientConnection, list[Exchange]]:
    client = ClientConnection("me")
    for request in requests:
        is_answered = not isinstance(request, ProduceRequest)
        for piece in client.send(request, OFFERED[request.KEY].highest, is_answered):
            conversation.receive_data(piece)
    found = []
    while (exchange := conversation.next_exchange()) is not None:
        found.append(exchange)
    return client, found


def _sent(conversation: Conversation) -> bytes:
    return b"".join(conversation.take_outgoing())


def _names(client: ClientConnection, data: bytes) -> list[str | None]:
    client.receive_data(data)
    found = []
    while (response := client.next_event()) is not None:
        found.append(name_of(response.body))
    return found


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from(SIZES), max_size=4),
    st.sampled_from([b"", *MALFORMED]),
    st.sampled_from([b"", b"whatever follows"]),
    st.lists(st.integers(0, 600_000), max_size=8),
    st.booleans(),
)
def test_bytes_cut_at_any_place_give_the_same_events(
    sizes: Sequence[int], malformed: bytes, rest: bytes, cuts: Sequence[int], is_asked_between: bool
) -> None:
    client = ClientConnection("me")
    requests = [client.send(produce(size, acks=1), 9) for size in sizes]
    data = b"".join([*map(b"".join, requests), malformed, rest if malformed else b""])
    whole, cut = _conversation(), _conversation()
    whole.receive_data(data)
    expected = _events(whole)
    assert len(expected) == len(sizes) + bool(malformed)
    events: list[Any] = []
    for start, end in pairwise([0, *sorted(min(one, len(data)) for one in cuts), len(data)]):
        if not (events and isinstance(events[-1], str)):
            cut.receive_data(data[start:end])
            events += _events(cut) if is_asked_between else []
    events += [] if events and isinstance(events[-1], str) else _events(cut)
    assert events == expected
    assert whole.queued_bytes == cut.queued_bytes


@settings(deadline=None, derandomize=True, database=None, max_examples=examples(500))
@given(st.lists(st.binary(max_size=60)), st.booleans())
def test_any_bytes_are_requests_or_malformed(chunks: list[bytes], are_framed: bool) -> None:
    conversation = _conversation()
    for chunk in chunks:
        conversation.receive_data(LENGTH.pack(len(chunk)) + chunk if are_framed else chunk)
    _events(conversation)


@given(st.permutations(range(6)))
@settings(deadline=None, derandomize=True, database=None)
def test_answers_go_out_in_the_order_of_their_requests(order: Sequence[int]) -> None:
    conversation = _conversation()
    client, exchanges = _asked(conversation, *[ask(str(number)) for number in range(6)])
    names: list[str | None] = []
    for done, number in enumerate(order, start=1):
        conversation.answer(exchanges[number], named(str(number)))
        names += _names(client, _sent(conversation))
        first_missing = min(set(range(7)) - set(order[:done]))
        assert names == [str(one) for one in range(first_missing)]
        assert conversation.unanswered == 6 - first_missing
    assert conversation.queued_bytes == 0


def test_a_request_without_an_answer_keeps_its_place() -> None:
    conversation = _conversation()
    client, (first, silent, last) = _asked(conversation, ask(), produce(1), ask())
    conversation.answer(last, named("last"))
    conversation.answer(silent, None)
    assert _sent(conversation) == b""
    conversation.answer(first, named("first"))
    assert _names(client, _sent(conversation)) == ["first", "last"]


def test_bytes_are_counted_from_the_length_of_a_large_request_to_its_answer() -> None:
    conversation = _conversation()
    data = b"".join(ClientConnection("me").send(produce(150 * KIB, acks=1), 9))
    conversation.receive_data(data[:100])
    assert (conversation.queued_bytes, conversation.is_in_large_request) == (len(data) - 4, True)
    conversation.receive_data(data[100:])
    assert (conversation.queued_bytes, conversation.is_in_large_request) == (len(data) - 4, False)
    exchange = conversation.next_exchange()
    assert exchange is not None
    assert conversation.queued_bytes == exchange.request.size_bytes == len(data)
    conversation.answer(exchange, None)
    assert _sent(conversation) == b""
    assert conversation.queued_bytes == 0


def test_small_requests_are_counted_when_they_are_whole() -> None:
    conversation = _conversation()
    data = b"".join(ClientConnection("me").send(ask(), 12))
    conversation.receive_data(data[:-1])
    assert (conversation.queued_bytes, conversation.has_next) == (0, False)
    conversation.receive_data(data[-1:] + data)
    assert (conversation.queued_bytes, conversation.has_next) == (2 * (len(data) - 4), True)
    conversation.next_exchange()
    assert conversation.queued_bytes == 2 * len(data) - 4


def test_an_error_stays_and_nothing_follows_it() -> None:
    conversation = _conversation()
    good = b"".join(ClientConnection("me").send(MetadataRequest(), 12))
    conversation.receive_data(MALFORMED[3] + good)
    for _ in range(2):
        assert conversation.has_next
        with pytest.raises(UnknownFormat, match="its API is 99"):
            conversation.next_exchange()
    conversation.receive_data(good)
    with pytest.raises(UnknownFormat, match="its API is 99"):
        conversation.next_exchange()


def test_answers_before_one_that_cannot_be_written_are_sent() -> None:
    conversation = _conversation()
    client, (first, second) = _asked(conversation, ask(), ask())
    conversation.answer(second, MetadataResponse(controller_id=2**40))
    with pytest.raises(UnwritableValue, match=r"MetadataResponse\.controller_id"):
        conversation.answer(first, named("first"))
    assert _names(client, _sent(conversation)) == ["first"]


def test_a_request_is_answered_once() -> None:
    conversation = _conversation()
    _, (exchange,) = _asked(conversation, ask())
    conversation.answer(exchange, named(""))
    with pytest.raises(AnsweredTwice, match="Metadata: a request was answered twice"):
        conversation.answer(exchange, named(""))


def test_one_that_is_forgotten_holds_nothing() -> None:
    conversation = _conversation()
    _asked(conversation, ask(), ask())
    conversation.receive_data(b"".join(ClientConnection("me").send(ask(), OFFERED[METADATA].highest)))
    conversation.clear()
    assert (conversation.queued_bytes, conversation.unanswered, conversation.next_exchange()) == (0, 0, None)
