"""No request stops the others: connections take turns, and large requests are read, handled and answered in slices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from kraftlog.kafka.apis import BYTES_PER_ELEMENT, ELEMENTS_MAX, FREE_ELEMENTS
from kraftlog.kafka.connections import FEW_ELEMENTS
from kraftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlog.kafka.notation import Struct
from kraftlog.kafka.primitives import ELEMENTS_PER_STEP
from kraftlog.network import connection as connection_module
from kraftlog.network import large_requests as large_requests_module
from kraftlog.network import turns as turns_module
from kraftlog.network.connection import Connection
from kraftlog.network.counters import Closed
from kraftlog.network.large_requests import LargeRequests
from kraftlog.network.release import release
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.network.turns import TURN_SECONDS, SliceEnd, Turns, go_through
from tests.kraftlog.network.clients import Asked, RawClient, answer_at_once, ask, name_of, named, network
from tests.statemachine.waiting import until

MANY = 5_000
LONG = "long"


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a slice, and each turn of the loop has one of them."""
    monkeypatch.setattr(connection_module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(large_requests_module, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.0)


def of_topics(count: int) -> MetadataRequest:
    """A large request."""
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"topic-{index}") for index in range(count)))


def topics_of(request: ClientRequest) -> MetadataResponse:
    """An answer that is as large."""
    assert isinstance(request.body, MetadataRequest)
    topics = [MetadataResponseTopic(name=of.name, partitions=()) for of in request.body.topics or ()]
    return MetadataResponse(topics=tuple(topics))


# --- who is next ------------------------------------------------------------------------------------------------------


class Loop:
    """What `Turns` needs of an event loop, by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ready: list[Callable[[], None]] = []
        self.worked: list[str] = []
        self.turns = Turns(self.ready.append, lambda: self.now)

    def turn(self) -> None:
        ready, self.ready[:] = list(self.ready), []
        for callback in ready:
            callback()

    def worker(self, name: str, slices: int = 1) -> Any:
        return _Worker(self, name, slices)


class _Worker:
    """Takes more than half of a turn for each of its slices."""

    def __init__(self, loop: Loop, name: str, slices: int) -> None:
        self._loop = loop
        self._name = name
        self._left = slices

    def take_turn(self) -> None:
        self._loop.worked.append(self._name)
        self._loop.now += 0.6 * TURN_SECONDS
        self._left -= 1
        if self._left:
            self._loop.turns.wait(self, is_fresh=False)


def test_connections_go_round_and_a_turn_of_the_loop_ends_in_between() -> None:
    loop = Loop()
    for name in "abc":
        loop.turns.wait(loop.worker(name, 2), is_fresh=False)
    loop.turn()
    assert loop.worked == ["a", "b"]
    loop.turn()
    assert loop.worked == ["a", "b", "c", "a"]
    loop.turn()
    assert loop.worked == ["a", "b", "c", "a", "b", "c"]
    loop.turn()
    assert not loop.ready


def test_who_has_had_nothing_yet_goes_before_the_others_but_for_the_first_of_them() -> None:
    loop = Loop()
    for name in "ab":
        loop.turns.wait(loop.worker(name, 3), is_fresh=False)
    for name in "xyz":
        loop.turns.wait(loop.worker(name), is_fresh=True)
    for _ in range(5):
        loop.turn()
    assert loop.worked == ["a", "x", "b", "y", "a", "z", "b", "a", "b"]


def test_nothing_begins_after_the_time_of_a_turn() -> None:
    loop = Loop()
    assert loop.turns.may_begin(loop.now)
    loop.now = loop.turns.ends_at
    assert not loop.turns.may_begin(loop.now)
    loop.turn()
    assert loop.turns.ends_at == loop.now + TURN_SECONDS


# --- handlers in slices -----------------------------------------------------------------------------------------------


def long_work(request: ClientRequest, reply: Reply, done: list[int]) -> Steps:
    for step in range(MANY):
        done.append(step)
        yield
    reply(named(LONG))


@pytest.mark.usefixtures("short_slices")
async def test_others_are_answered_between_the_slices_of_a_request() -> None:
    done: list[int] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        assert isinstance(request.body, MetadataRequest) and request.body.topics
        if request.body.topics[0].name == LONG:
            request.slices.run(long_work(request, reply, done))
        else:
            answer_at_once(request, reply)

    async with (
        network(handler) as served,
        await RawClient.connect(served) as greedy,
        await RawClient.connect(served) as other,
    ):
        greedy.send(ask(LONG), ask("after"))
        await until(lambda: bool(done))
        assert await other.ask("other") == "other"
        assert len(done) < MANY, "the other client has waited for all of it"
        assert [name_of(await greedy.receive()), name_of(await greedy.receive())] == [LONG, "after"]
        assert served.counters.slices >= MANY


@pytest.mark.usefixtures("short_slices")
async def test_pipelined_requests_take_turns_with_those_of_other_connections() -> None:
    handled: list[str] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        assert isinstance(request.body, MetadataRequest) and request.body.topics
        handled.append(str(request.body.topics[0].name))
        answer_at_once(request, reply)

    count, each = 30, 100
    async with network(handler) as served, await RawClient.connect(served) as other:
        greedy = [await RawClient.connect(served) for _ in range(count)]
        for index, client in enumerate(greedy):
            client.send(*(ask(f"{index}") for _ in range(each)))
        await until(lambda: bool(handled))
        assert await other.ask("other") == "other"
        before = handled.index("other")
        assert before < count * each / 2, f"{before} requests of others were handled before"
        for client in greedy:
            for _ in range(each):
                await client.receive()
            client.writer.transport.abort()


async def test_what_a_closed_connection_has_begun_is_closed() -> None:
    ended: list[type[BaseException]] = []

    def work(began: asyncio.Event) -> Steps:
        try:
            while True:
                began.set()
                yield
        except GeneratorExit:
            ended.append(GeneratorExit)
            raise

    began = asyncio.Event()

    def handler(request: ClientRequest, reply: Reply) -> None:
        request.slices.run(work(began))

    async with network(handler, drain_timeout_ms=1) as served, await RawClient.connect(served) as client:
        client.send(ask())
        await began.wait()
    assert ended == [GeneratorExit]


async def test_an_error_in_a_slice_closes_the_connection() -> None:
    def work() -> Steps:
        yield
        raise ValueError("a mistake")

    def handler(request: ClientRequest, reply: Reply) -> None:
        request.slices.run(work())

    with capture_logs() as lines:
        async with network(handler) as served, await RawClient.connect(served) as client:
            client.send(ask())
            assert await client.is_closed()
    assert [line["error"] for line in lines] == ["ValueError: a mistake"]
    assert served.counters.connections_closed == {Closed.FAILED: 1}


# --- large requests and answers ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("short_slices")
async def test_a_large_request_is_read_and_answered_in_slices_and_in_its_turn() -> None:
    asked: list[ClientRequest] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        asked.append(request)
        reply(topics_of(request))

    async with network(handler) as served, await RawClient.connect(served) as client:
        client.send(of_topics(1), of_topics(MANY), of_topics(2), of_topics(MANY + 1), of_topics(3))
        answers = [await client.receive() for _ in range(5)]
        assert [request.is_large for request in asked] == [False, True, False, True, False]
        for answer, count in zip(answers, (1, MANY, 2, MANY + 1, 3), strict=True):
            assert isinstance(answer, MetadataResponse)
            assert [topic.name for topic in answer.topics] == [f"topic-{index}" for index in range(count)]
        # Each of the two is read, and its answer is written, in slices.
        assert served.counters.slices >= 4 * MANY // ELEMENTS_PER_STEP


async def test_an_answer_that_becomes_large_keeps_later_ones_back() -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask("1"), ask("2"), ask("3"))
        replies = [await asked.next() for _ in range(3)]
        many = MetadataResponse(topics=tuple(MetadataResponseTopic(name=f"{n}", partitions=()) for n in range(MANY)))
        replies[2][1](many)
        replies[1][1](named("2"))
        replies[0][1](many)
        answers = [await client.receive() for _ in range(3)]
        assert [len(answer.topics) for answer in answers if isinstance(answer, MetadataResponse)] == [MANY, 0, MANY]


@pytest.mark.parametrize("count", [FREE_ELEMENTS + 1_200, ELEMENTS_MAX + 1])
async def test_a_request_with_more_elements_than_its_bytes_can_mean_ends_its_connection(count: int) -> None:
    """Topics without names are 2 bytes each in version 4."""
    name = "" if count < ELEMENTS_MAX else "topic"
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for _ in range(count)))
    with capture_logs() as lines:
        async with network(answer_at_once) as served, await RawClient.connect(served) as client:
            data = client.bytes_of(request, 4)
            client.writer.write(data)
            assert await client.is_closed()
    bound = min(ELEMENTS_MAX, FREE_ELEMENTS + (len(data) - 4) // BYTES_PER_ELEMENT)
    assert count > bound > FEW_ELEMENTS
    assert [line["error"] for line in lines] == [
        f"TooManyElements: MetadataRequest: has more than {bound} elements, the bound for {len(data) - 4} bytes of"
        " this API"
    ]
    assert served.counters.connections_closed == {Closed.MALFORMED: 1}


async def test_large_requests_wait_for_memory_and_small_ones_do_not() -> None:
    asked = Asked()
    request = of_topics(MANY)
    async with (
        network(asked, large_requests_bytes_max=1) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
        await RawClient.connect(served) as third,
    ):
        data = first.bytes_of(request)
        assert 50_000 < len(data) < 200_000  # there is room for one of them
        first.writer.write(data)
        held = await asked.next()
        second.send(request)
        third.send(ask("small"))
        small, reply = await asked.next()
        assert not small.is_large
        reply(named("small"))
        assert name_of(await third.receive()) == "small"
        await until(lambda: served.counters.connections_paused == 1)
        assert asked.waiting.empty()
        held[1](topics_of(held[0]))
        await first.receive()
        large, reply = await asked.next()
        assert large.is_large
        reply(topics_of(large))
        await second.receive()
        first.send(request)
        gone, reply = await asked.next()
        second.send(request)
        first.reset()  # it is gone without an answer: its memory is free when its handler holds it no more
        await until(lambda: served.counters.connections_open == 2)
        assert asked.waiting.empty()
        reply(topics_of(gone))
        large, reply = await asked.next()
        reply(topics_of(large))
        await second.receive()


class Noted(str):
    """A name that counts when it is freed."""

    freed = 0

    def __del__(self) -> None:
        Noted.freed += 1


def noted(count: int) -> tuple[MetadataResponseTopic, ...]:
    Noted.freed = 0
    return tuple(MetadataResponseTopic(name=Noted(f"topic-{index}"), partitions=()) for index in range(count))


def test_messages_are_freed_some_at_a_time_and_what_is_held_elsewhere_is_as_it_was() -> None:
    topics = noted(MANY)
    kept = topics[7]
    parts = tuple(MetadataResponsePartition(replica_nodes=(1, 2)) for _ in range(MANY))
    kept.partitions = parts
    messages: list[Struct] = [MetadataResponse(topics=topics), of_topics(MANY), named("nothing in it")]
    del topics
    before = 0
    for _ in release(messages):
        assert Noted.freed - before <= ELEMENTS_PER_STEP
        before = Noted.freed
    assert (Noted.freed, messages) == (MANY - 1, [])
    assert kept == MetadataResponseTopic(name="topic-7", partitions=parts)


@pytest.mark.usefixtures("short_slices")
async def test_a_large_request_and_its_answer_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []
    for owner in (Connection, LargeRequests):

        def counted(self: Any, take_turn: Callable[[Any], None] = owner.take_turn) -> None:
            before = Noted.freed
            take_turn(self)
            freed.append(Noted.freed - before)

        monkeypatch.setattr(owner, "take_turn", counted)

    def handler(request: ClientRequest, reply: Reply) -> None:
        reply(MetadataResponse(topics=noted(MANY)) if request.is_large else named("small"))

    async with network(handler) as served, await RawClient.connect(served) as client:
        client.send(of_topics(MANY))
        assert isinstance(await client.receive(), MetadataResponse)
        await until(lambda: Noted.freed == MANY)
        client.send(ask("small"))
        assert name_of(await client.receive()) == "small"
    assert max(freed) <= 2 * ELEMENTS_PER_STEP


@pytest.mark.parametrize("count", [FEW_ELEMENTS, FEW_ELEMENTS + 1])
async def test_a_request_of_few_elements_is_handled_at_once(count: int) -> None:
    asked = Asked()
    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(of_topics(count))
        request, reply = await asked.next()
        assert request.is_large == (count > FEW_ELEMENTS)
        partial(reply, named(""))()
        await client.receive()


def test_a_step_that_waits_for_others_ends_the_slice() -> None:
    done: list[str] = []

    def steps() -> Iterator[bool]:
        for waits in (False, True, True, False):
            done.append("waits" if waits else "works")
            yield waits

    waiting = deque([steps()])
    assert go_through(waiting, lambda: True) is SliceEnd.WAITS
    assert done == ["works", "waits"]
    assert go_through(waiting, lambda: True) is SliceEnd.WAITS
    assert done[2:] == ["waits"]
    assert go_through(waiting, lambda: False) is SliceEnd.TIME
    assert done[3:] == ["works"]
    assert go_through(waiting, lambda: True) is SliceEnd.DONE


async def test_work_that_waits_for_others_is_not_tried_in_each_turn_of_the_loop() -> None:
    """It would keep a processor busy for as long as it waits."""
    asked = Asked()
    tries: list[bool] = []
    is_free = False

    def waiting(request: ClientRequest, reply: Reply) -> Steps:
        while not is_free:
            tries.append(is_free)
            yield True
        reply(named("a"))

    async with network(asked) as served, await RawClient.connect(served) as client:
        client.send(ask("a"))
        request, reply = await asked.next()
        request.slices.run(waiting(request, reply))
        await until(lambda: len(tries) >= 1)
        turns = 0
        while len(tries) < 5:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 5 * len(tries)
        is_free = True
        await client.receive()
