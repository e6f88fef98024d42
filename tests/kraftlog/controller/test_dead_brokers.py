"""CT-65: the active controller fences a broker whose process has ended, and none that lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest_asyncio

from kraftbase.endpoint import Reply
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.dead_brokers import Replies
from kraftlog.controller.rules.broker_evidence import Endpoints
from kraftpb.v1 import admin_pb2
from tests.kraftlog.controller.test_broker_control import brokers, partitions, with_topic
from tests.statemachine.builders import heartbeat, register
from tests.statemachine.conftest import Bench, memory_bench
from tests.statemachine.hand_time import HandTime
from tests.statemachine.waiting import turns, until

SESSION_MS = 600_000
STREAM = 1


class Listeners:
    """What the listeners of all brokers reply; a reply is given when the test says so, or at once."""

    def __init__(self) -> None:
        self.reply = Reply.ACCEPTED
        self.asked = 0
        self.held: list[Callable[[], None]] | None = None

    def connect(self, endpoints: Endpoints, on_replies: Callable[[Replies], None]) -> None:
        self.asked += 1
        replies = dict.fromkeys(endpoints, self.reply)
        if self.held is None:
            on_replies(replies)
        else:
            self.held.append(lambda: on_replies(replies))


@pytest_asyncio.fixture
async def time() -> HandTime:
    return HandTime()


@pytest_asyncio.fixture
async def listeners() -> Listeners:
    return Listeners()


@pytest_asyncio.fixture
async def bench(database: Path, time: HandTime, listeners: Listeners) -> AsyncIterator[Bench]:
    """A controller with brokers 1, 2 and 3, the first of which leads the only partition."""
    config = ControllerConfig(broker_session_timeout_ms=SESSION_MS)
    async with memory_bench(database, config=config, runtime=time, connect=listeners.connect) as bench:
        bench.log.lead()
        await bench.lead()
        await with_topic(bench, {0: [1, 2, 3]})
        beat(bench, 1)
        time.advance(50)
        assert listeners.asked == 1
        yield bench


def beat(bench: Bench, broker_id: int, stream: int = STREAM, epoch: int | None = None) -> None:
    epoch = brokers(bench)[broker_id].broker_epoch if epoch is None else epoch
    bench.controller.dead_brokers.heartbeat(stream, heartbeat(broker_id, epoch, bench.store.applied_end_offset))


async def is_fenced(bench: Bench, time: HandTime, listeners: Listeners) -> bool:
    """Whether broker 1 is, some seconds after its stream was reset."""
    bench.controller.dead_brokers.stream_ended(STREAM, by_peer=True)
    for _ in range(100):
        time.advance(30)
        await turns()
    return brokers(bench)[1].fenced


async def test_a_dead_broker_is_fenced_and_its_partitions_get_other_leaders(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    listeners.reply = Reply.REFUSED
    began_ms = time.now_ms()
    bench.controller.dead_brokers.stream_ended(STREAM, by_peer=True)
    while not brokers(bench)[1].fenced:
        assert time.now_ms() - began_ms < 200
        time.advance(10)
        await turns()
    await until(lambda: partitions(bench)[0].leader == 2)
    assert list(partitions(bench)[0].isr) == [2, 3]
    assert bench.controller._context.heartbeats.timeouts == 0


async def test_a_broker_that_does_not_refuse_keeps_its_session(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    listeners.reply = Reply.UNKNOWN
    assert not await is_fenced(bench, time, listeners)


async def test_what_is_turned_off_connects_to_nothing(database: Path, time: HandTime, listeners: Listeners) -> None:
    config = ControllerConfig(broker_session_timeout_ms=SESSION_MS, broker_fence_by_evidence_enable=False)
    async with memory_bench(database, config=config, runtime=time, connect=listeners.connect) as bench:
        bench.log.lead()
        await bench.lead()
        await with_topic(bench, {0: [1, 2, 3]})
        beat(bench, 1)
        listeners.reply = Reply.REFUSED
        assert not await is_fenced(bench, time, listeners)
        assert listeners.asked == 0


async def test_a_heartbeat_that_arrives_before_the_fence_prevents_it(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    listeners.reply = Reply.REFUSED
    bench.controller.dead_brokers.stream_ended(STREAM, by_peer=True)
    for _ in range(40):
        time.advance(10)
        if bench.controller.dead_brokers._evidence.has_ended(1, brokers(bench)[1].broker_epoch, time.now_ms()):
            break  # the last requests are taken before the fence
    beat(bench, 1, stream=STREAM + 1)
    for _ in range(100):
        time.advance(30)
        await turns()
    assert not brokers(bench)[1].fenced


async def test_evidence_about_an_older_incarnation_does_not_fence_the_newer_one(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    listeners.reply = Reply.REFUSED
    await bench.done(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=1)))
    bench.controller.dead_brokers.stream_ended(STREAM, by_peer=True)
    time.advance(60)
    older = brokers(bench)[1].broker_epoch
    await bench.done(register(1, incarnation=77))
    newer = brokers(bench)[1].broker_epoch
    assert newer > older
    await bench.done(admin_pb2.Operation(broker_heartbeat=heartbeat(1, newer, newer + 1)))
    assert not brokers(bench)[1].fenced
    for _ in range(100):
        time.advance(30)
        await turns()
    assert not brokers(bench)[1].fenced


async def test_heartbeats_of_another_epoch_and_of_strangers_say_nothing(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    asked = listeners.asked
    beat(bench, 2, stream=9, epoch=brokers(bench)[2].broker_epoch + 1)
    bench.controller.dead_brokers.heartbeat(10, heartbeat(99, 5, 6))
    time.advance(100)
    assert listeners.asked == asked


async def test_a_controller_that_stops_being_active_fences_nothing(
    bench: Bench, time: HandTime, listeners: Listeners
) -> None:
    listeners.reply, listeners.held = Reply.REFUSED, []
    bench.controller.dead_brokers.stream_ended(STREAM, by_peer=True)
    time.advance(10)
    bench.controller.renounce()
    end_offset = bench.log.log_end_offset
    for reply in listeners.held:
        reply()
    time.advance(1_000)
    assert bench.log.log_end_offset == end_offset
