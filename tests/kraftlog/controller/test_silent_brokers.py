"""Sessions of brokers while the log or the store accepts nothing, and when leadership changes (CT-19, CT-30)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.periodic_tasks import REFUSED_PAUSE_MS
from tests.kraftlog.controller.lives import appended_records, beat, brokers, quiet
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.hand_time import HandTime
from tests.statemachine.waiting import until

SESSION_MS = 1_000
IDLE_MS = 700


@pytest.fixture
def config() -> ControllerConfig:
    return ControllerConfig(broker_session_timeout_ms=SESSION_MS, auto_leader_rebalance_enable=False)


@pytest_asyncio.fixture
async def time(database: Path) -> HandTime:
    return HandTime()


@pytest_asyncio.fixture
async def short(database: Path, time: HandTime, config: ControllerConfig) -> AsyncIterator[Bench]:
    """An active controller whose time the test moves."""
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        yield bench


async def test_ct30_a_fence_that_the_log_refused_is_tried_again(short: Bench, time: HandTime) -> None:
    await short.with_brokers(1)
    short.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    time.advance(SESSION_MS)
    assert short.log.refusal is None  # it was tried
    assert not brokers(short)[1].fenced
    time.advance(SESSION_MS)
    await quiet(short)
    assert brokers(short)[1].fenced


@pytest.mark.parametrize("refusal", ["obstacle", "too many wait"])
async def test_ct30_a_heartbeat_that_cannot_be_answered_is_a_sign_of_life(
    short: Bench, time: HandTime, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    await short.with_brokers(1, 2)
    with monkeypatch.context() as patch:
        if refusal == "obstacle":
            patch.setattr(short.machine._obstacle, "passing_reason", "no room")
        else:
            patch.setattr("kraftlog.controller.controller.OPERATIONS_WAITING_MAX", 0)
        for _ in range(4):
            time.advance(SESSION_MS / 2)
            assert errors(await short.run(beat(short, 1))) != []
    time.advance(REFUSED_PAUSE_MS)
    await quiet(short)
    assert [broker.fenced for broker in brokers(short).values()] == [False, True]


async def test_ct30_what_cannot_be_a_heartbeat_of_the_latest_incarnation_is_no_sign_of_life(
    short: Bench, time: HandTime
) -> None:
    await short.with_brokers(1)
    time.advance(SESSION_MS / 2)
    stale = beat(short, 1)
    stale.broker_heartbeat.broker_epoch -= 1
    assert errors(await short.run(stale)) == [ErrorCode.STALE_BROKER_EPOCH]
    time.advance(SESSION_MS / 2)
    await quiet(short)
    assert brokers(short)[1].fenced


async def test_ct30_an_offset_that_cannot_be_is_not_noted(short: Bench) -> None:
    await short.with_brokers(1)
    heartbeats = short.controller._context.heartbeats
    before = heartbeats.lowest_active_metadata_offset()
    assert errors(await short.run(beat(short, 1, metadata_offset=-5))) == [ErrorCode.INVALID_REQUEST]
    assert heartbeats.lowest_active_metadata_offset() == before


async def test_ct15_a_controller_that_leads_again_does_everything_once(database: Path) -> None:
    time = HandTime()
    config = ControllerConfig(metadata_max_idle_interval_ms=IDLE_MS)
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await bench.with_brokers(1)
        tasks = time.timers_set
        for _ in range(3):
            bench.log.lose_leadership()
            await until(lambda: not bench.controller.is_active)
            assert time.timers_set <= 1  # that of operations which waited
            bench.log.lead()
            await bench.lead()
            await quiet(bench)
        assert time.timers_set <= tasks
        since = bench.log.next_append_offset
        for _ in range(4):
            time.advance(IDLE_MS)
        assert [record.WhichOneof("record") for record in appended_records(bench, since=since)] == ["no_op"] * 4


async def test_starting_supervision_anew_calls_off_what_was_started_before(short: Bench, time: HandTime) -> None:
    await short.with_brokers(1)
    before = time.timers_set
    short.controller._periodic_tasks.start()
    assert time.timers_set == before
