"""A broker whose loop stands still sends no heartbeat, and says so afterwards; it also says that it was fenced."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.broker_network import watch_loop
from kraftlog.broker.lifecycle import BrokerLifecycle
from kraftlog.broker.loop_watch import (
    LOOK_SECONDS,
    REPORT,
    REPORTED_LOOK_SECONDS,
    SILENT_SECONDS,
    LoopReport,
    LoopWatch,
)
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1.admin_pb2 import Operation, OperationResult, RegisterBrokerResponse
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from statemachine.replay.deltas import MetadataDelta
from tests.kraftlog.broker.broker_world import registration
from tests.kraftlog.network.clients import RawClient, ask, named, network, produce
from tests.statemachine.waiting import until


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


# --- the loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["ListOffsets from 127.0.0.1:41832", None])
def test_a_loop_that_did_not_turn_is_reported_with_the_request_that_ran(request_name: str | None) -> None:
    now = 10.0
    watch = LoopWatch(lambda: now, lambda: request_name)
    with capture_logs() as lines:
        now += LOOK_SECONDS + SILENT_SECONDS - 0.01
        watch.check()
        now += LOOK_SECONDS + 8.7
        watch.check()
        now += LOOK_SECONDS
        watch.check()
    assert events(lines) == [f"the event loop did not turn for 8.7 s: {request_name or 'no request was handled'}"]


def test_a_report_has_the_longest_processor_time_and_how_late_each_look_was() -> None:
    now = processor = 10.0
    with capture_logs() as lines:
        report = LoopReport(1.0, lambda: now, lambda: processor)
        for late_ms, used_ms in ((0, 1), (0.2, 2), (149, 80), (14, 30), (1_000, 0), (0, 3), (990, 7)):
            now += REPORTED_LOOK_SECONDS + late_ms / 1_000
            processor += used_ms / 1_000
            report.check()
    assert [(line["event"], line["longest_processor_ms"], line["late_ms"]) for line in lines] == [
        (REPORT, 80.0, {0: 2, 14: 1, 149: 1, 1_000: 1}),
        (REPORT, 7.0, {0: 1, 990: 1}),
    ]


async def test_reports_are_logged_only_if_an_interval_is_given() -> None:
    with capture_logs() as lines:
        looking = [asyncio.create_task(watch_loop(lambda: None, interval_ms)) for interval_ms in (0, 1)]
        await until(lambda: len(lines) >= 3)
        for task in looking:
            task.cancel()
    assert {line["event"] for line in lines} == {REPORT}
    assert sum(map(sum, (line["late_ms"].values() for line in lines))) == len(lines)


@pytest.mark.parametrize("is_in_slices", [False, True])
async def test_the_report_names_the_api_and_the_client(is_in_slices: bool) -> None:
    def work(reply: Reply) -> Steps:
        yield
        time.sleep(SILENT_SECONDS + 2 * LOOK_SECONDS)
        reply(named("slow"))

    def handler(request: ClientRequest, reply: Reply) -> None:
        if request.api.name != "Metadata":
            reply(None)
        elif is_in_slices:
            request.slices.run(work(reply))
        else:
            for _ in work(reply):
                pass

    with capture_logs() as lines:
        async with (
            network(handler) as served,
            await RawClient.connect(served) as client,
            await RawClient.connect(served) as other,
        ):
            looking = asyncio.create_task(watch_loop(served.longest_request))
            await asyncio.sleep(0)
            client.send(ask("slow"))
            other.send(produce(10), produce(10))
            await client.receive()
            await until(lambda: bool(lines))
            looking.cancel()
            port = client.writer.get_extra_info("sockname")[1]
    (line,) = events(lines)
    assert re.fullmatch(rf"the event loop did not turn for 1\.\d s: Metadata from 127\.0\.0\.1:{port}", line), line


class _Controller:
    """Takes heartbeats, and notes when, and in which thread."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[float, int]] = []
        self.timeout_ms = 1_000

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """It never is."""

    async def cluster_id(self) -> str:
        return "a cluster"

    async def execute(self, operation: Operation, **_: object) -> OperationResult:
        if operation.HasField("broker_heartbeat"):
            self.heartbeats.append((time.monotonic(), threading.get_ident()))
        return OperationResult(register_broker=RegisterBrokerResponse(broker_epoch=1))


async def test_no_heartbeat_leaves_while_the_loop_stands_still() -> None:
    """It leads nothing any more when its session is over: so it must be, as it serves nobody."""
    controller = _Controller()

    async def applied() -> int:
        return 1

    life = BrokerLifecycle(
        cast(AdminClient, controller), broker_id=1, listeners=[], heartbeat_interval_ms=10, metadata_offset=applied
    )
    life.start()
    await until(lambda: len(controller.heartbeats) > 2)
    began = time.monotonic()
    time.sleep(0.5)
    ended = time.monotonic()
    count = len(controller.heartbeats)
    await until(lambda: len(controller.heartbeats) > count)
    assert not [at for at, _ in controller.heartbeats if began < at < ended]
    assert {thread for _, thread in controller.heartbeats} == {threading.get_ident()}
    with contextlib.suppress(asyncio.CancelledError):
        await life.stop()


# --- its registration -------------------------------------------------------------------------------------------------


class _Change:
    def __init__(self, after: RegisterBrokerRecord) -> None:
        self.before = None
        self.after = after


class _Delta:
    def __init__(self, *registrations: RegisterBrokerRecord) -> None:
        self.end_offset = Offset(1)
        self.brokers = [_Change(one) for one in registrations]


def record(broker_id: int, *, fenced: bool, leaving: bool = False) -> RegisterBrokerRecord:
    made = registration(broker_id, fenced=fenced).register_broker
    made.in_controlled_shutdown = leaving
    return made


def test_a_broker_says_once_that_it_was_fenced_and_that_it_is_unfenced() -> None:
    own = OwnRegistration(1, lambda: 0)

    def see(*records: RegisterBrokerRecord) -> list[str]:
        with capture_logs() as lines:
            own.on_delta(cast(MetadataDelta, _Delta(*records)))
        return events(lines)

    assert see(record(1, fenced=True), record(2, fenced=False)) == []  # as each begins
    assert see(record(1, fenced=False)) == []
    assert see(record(2, fenced=True)) == []
    (fenced,) = see(record(1, fenced=True))
    assert fenced.startswith("Broker 1 was fenced: the controller got no heartbeat from it for a session,")
    assert see(record(1, fenced=True)) == []
    assert see(record(1, fenced=False)) == ["Broker 1 is unfenced again."]
    assert see(record(1, fenced=False, leaving=True), record(1, fenced=True, leaving=True)) == []


def test_a_broker_that_leads_nothing_is_fenced_at_once_when_it_asks_for_its_shutdown_and_says_nothing_of_it() -> None:
    own = OwnRegistration(1, lambda: 0)
    own.on_delta(cast(MetadataDelta, _Delta(record(1, fenced=False))))
    own.leave()
    with capture_logs() as lines:
        own.on_delta(cast(MetadataDelta, _Delta(record(1, fenced=True))))
    assert lines == []
