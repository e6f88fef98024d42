"""Large requests whose clients are gone, or whose memory others wait for, are let go of at once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from kraftlog.kafka.connections import FEW_ELEMENTS
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kraftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.network.serving import Network
from tests.kraftlog.network.clients import Asked, RawClient, ask, large, name_of, named, network
from tests.statemachine.waiting import until

MANY = FEW_ELEMENTS + 1


def of_topics(name: str = "topic") -> MetadataRequest:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"{name}-{index}") for index in range(MANY)))


def appending(acks: int) -> ProduceRequest:
    part = PartitionProduceData(records=b"")
    return ProduceRequest(acks=acks, topic_data=(TopicProduceData(name="t", partition_data=(part,) * MANY),))


def fetch() -> FetchRequest:
    return FetchRequest(topics=(FetchTopic(topic="t", partitions=tuple(FetchPartition() for _ in range(MANY))),))


class Endless:
    """A handler of requests that never end, unless they are small."""

    def __init__(self) -> None:
        self.begun: list[ClientRequest] = []
        self.ended: list[ClientRequest] = []

    def __call__(self, request: ClientRequest, reply: Reply) -> None:
        if request.is_large:
            request.slices.run(self._work(request))
        else:
            reply(named("small"))

    def _work(self, request: ClientRequest) -> Steps:
        self.begun.append(request)
        try:
            while True:
                yield
        finally:
            self.ended.append(request)


def close(client: RawClient) -> None:
    client.writer.close()


def send_nothing_more(client: RawClient) -> None:
    client.writer.write_eof()


GONE = pytest.mark.parametrize("leave", [close, send_nothing_more, RawClient.reset])


async def all_is_free(served: Network) -> None:
    """Whatever clients have left, another one's large request is begun: there is memory for one at a time."""
    await until(lambda: served.counters.connections_open == 0)
    assert served.counters.connections_paused == 0
    assert served.counters.queued_bytes == 0


@GONE
@pytest.mark.parametrize("behind", [(), (ask("a"),), (of_topics("b"), ask("c"))])
async def test_a_request_in_hand_is_stopped_when_its_client_is_gone(
    leave: Callable[[RawClient], None], behind: tuple[Message, ...]
) -> None:
    """Also if there is something that it has sent before and that is not read: the end is behind that."""
    endless = Endless()
    async with network(endless, large_requests_bytes_max=1) as served:
        gone = await RawClient.connect(served)
        gone.send(of_topics())
        await until(lambda: len(endless.begun) == 1)
        gone.send(*behind)
        await gone.writer.drain()
        leave(gone)
        await until(lambda: len(endless.ended) == 1)
        if leave is send_nothing_more:
            assert await gone.is_closed(), "an answer came in the place of one that was left out"
        gone.writer.transport.abort()
        await all_is_free(served)
        async with await RawClient.connect(served) as other:
            other.send(of_topics("other"))
            await until(lambda: len(endless.begun) == 2)


@GONE
async def test_a_request_that_waits_for_memory_waits_no_more_when_its_client_is_gone(
    leave: Callable[[RawClient], None],
) -> None:
    asked = Asked()
    async with (
        network(asked, large_requests_bytes_max=1) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as gone,
        await RawClient.connect(served) as last,
    ):
        first.send(of_topics("first"))
        _, reply = await asked.next()
        gone.send(of_topics("gone"))
        await until(lambda: served.counters.connections_paused == 1)
        last.send(of_topics("last"))
        await until(lambda: served.counters.connections_paused == 2)
        leave(gone)
        await until(lambda: served.counters.connections_open == 2)
        reply(named("first"))
        assert name_of(await first.receive()) == "first"
        request, reply = await asked.next()
        assert isinstance(request.body, MetadataRequest) and request.body.topics
        assert request.body.topics[0].name == "last-0"
        reply(named("last"))
        assert name_of(await last.receive()) == "last"


async def test_an_answer_that_is_written_in_slices_is_written_no_further_when_its_client_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked()
    async with network(asked, large_requests_bytes_max=1) as served, await RawClient.connect(served) as gone:
        gone.send(of_topics(), ask("a"))
        _, reply = await asked.next()
        _, small = await asked.next()
        written: list[int] = []

        def endless(*_: object) -> Steps:
            try:
                while True:
                    yield
            finally:
                written.append(1)

        monkeypatch.setattr("kraftlog.network.conversation.response_frame_in_slices", endless)
        reply(large_answer())
        await until(lambda: served.counters.slices > 2)
        gone.writer.write_eof()
        await until(lambda: bool(written))
        small(named("a"))
        assert await gone.is_closed()
        gone.writer.transport.abort()
        await all_is_free(served)


def large_answer() -> Message:
    return MetadataResponse(topics=tuple(MetadataResponseTopic(name="t", partitions=()) for _ in range(MANY)))


@pytest.mark.parametrize("acks", [0, 1])
async def test_what_a_client_has_produced_before_it_closes_its_connection_is_appended(acks: int) -> None:
    done: list[int] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        def work() -> Steps:
            while len(done) < 1_000:
                done.append(1)
                yield
            reply(None)

        request.slices.run(work())

    async with network(handler) as served, await RawClient.connect(served) as client:
        client.send(appending(acks), appending(acks))
        await client.writer.drain()
        client.writer.write_eof()
        assert await client.is_closed()
        assert len(done) == 1_000
        assert served.counters.requests == 2


async def test_one_hundred_and_fifty_requests_that_were_dropped_keep_nobody_waiting() -> None:
    endless = Endless()
    async with network(endless, large_requests_bytes_max=1) as served:
        for _ in range(150):
            dropped = await RawClient.connect(served)
            dropped.send(of_topics("dropped"))
            await dropped.writer.drain()
            dropped.writer.close()
        async with await RawClient.connect(served) as other:
            other.send(of_topics("other"))

            def is_begun() -> bool:
                return any(str(of.body.topics[0].name) == "other-0" for of in endless.begun)  # type: ignore[union-attr]

            await until(is_begun)
            await until(lambda: served.counters.connections_open == 1)
        assert len(endless.ended) == len(endless.begun) - 1


async def test_what_has_only_time_to_wait_for_is_answered_when_others_wait_for_its_memory() -> None:
    """Before the other one comes, or after."""
    asked = Asked()
    told = {name: asyncio.Event() for name in ("first", "second")}

    def park(request: ClientRequest, name: str) -> None:
        def work() -> Steps:
            yield
            request.on_memory_wanted.append(told[name].set)

        request.slices.run(work())

    async with (
        network(asked, large_requests_bytes_max=1) as served,
        await RawClient.connect(served) as first,
        await RawClient.connect(served) as second,
        await RawClient.connect(served) as third,
    ):
        first.send(fetch())
        request, reply = await asked.next()
        park(request, "first")
        second.send(fetch())
        await told["first"].wait()
        third.send(fetch())
        await until(lambda: served.counters.connections_paused == 2)
        reply(large(1))
        await first.receive()
        request, reply = await asked.next()
        park(request, "second")
        await told["second"].wait()
        reply(large(1))
        await second.receive()


@GONE
async def test_a_throttled_client_that_is_gone_is_seen_although_it_is_not_read(
    leave: Callable[[RawClient], None],
) -> None:
    """What waits for more is answered now; the rest of what it has sent is handled when its time is over."""
    asked = Asked()
    told = asyncio.Event()
    async with network(asked) as served:
        gone = await RawClient.connect(served)
        gone.send(ask("waits"), ask("throttled"))
        request, waits = await asked.next()
        request.on_client_done.append(told.set)
        (await asked.reply())(named("throttled"), 200)
        await until(lambda: served.counters.connections_paused == 1)
        leave(gone)
        await told.wait()
        waits(named("waits"))
        gone.writer.transport.abort()
        await all_is_free(served)


async def test_a_large_request_leaves_no_cycles() -> None:
    """What is in a cycle would be held until Python looks for it, and not be counted."""
    parked: list[Reply] = []

    def handler(request: ClientRequest, reply: Reply) -> None:
        def end() -> None:
            request.slices.run(iter(()))

        request.on_client_done.append(end)
        request.on_memory_wanted.append(end)
        parked.append(reply)

    async with network(handler) as served, await RawClient.connect(served) as client:
        for leaves in (False, True):
            gc.collect()
            gc.disable()
            try:
                client.send(of_topics())
                await until(lambda: bool(parked))
                if leaves:
                    client.writer.transport.abort()
                    await until(lambda: served.counters.connections_open == 0)
                parked.pop()(named("x"))
                if not leaves:
                    await client.receive()
                assert gc.collect() < MANY
            finally:
                gc.enable()
