"""A leader that can write nothing hands over to another voter (CT-29)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.controller.periodic_tasks import ROOM_CHECK_INTERVAL_MS
from kraftlog.controller.rules.hand_over import STUCK_MS
from tests.kraftlog.controller.lives import quiet
from tests.statemachine.builders import register
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.hand_time import HandTime

CHECKS = int(STUCK_MS / ROOM_CHECK_INTERVAL_MS)


@pytest_asyncio.fixture
async def time(database: Path) -> HandTime:
    return HandTime()


@pytest_asyncio.fixture
async def bench(database: Path, time: HandTime) -> AsyncIterator[Bench]:
    """An active controller whose time the test moves, one of two voters."""
    async with memory_bench(database, runtime=time) as bench:
        bench.log.voter_ids = frozenset({NodeId(1), NodeId(2)})
        bench.log.lead()
        await bench.lead()
        yield bench


def pass_checks(bench: Bench, time: HandTime, *, refuse: bool) -> None:
    """Time for all checks, and one more."""
    for _ in range(CHECKS + 2):
        if refuse:
            bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        time.advance(ROOM_CHECK_INTERVAL_MS)


async def refused(bench: Bench) -> None:
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert errors(await bench.run(register(1))) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_ct29_a_full_disk_makes_it_hand_over(bench: Bench, time: HandTime) -> None:
    await refused(bench)
    pass_checks(bench, time, refuse=True)
    assert not bench.controller.is_active
    assert bench.log.leader_and_epoch.leader_id is None


async def test_ct29_not_if_there_is_room_again(bench: Bench, time: HandTime) -> None:
    await refused(bench)
    pass_checks(bench, time, refuse=False)
    await quiet(bench)
    assert bench.controller.is_active
    assert bench.controller.no_room_reason is None


async def test_ct29_records_that_cannot_be_applied_make_it_hand_over(
    bench: Bench, time: HandTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.machine._obstacle, "passing_reason", "no room")
    pass_checks(bench, time, refuse=False)
    assert not bench.controller.is_active


async def test_ct29_a_sole_voter_stays(bench: Bench, time: HandTime) -> None:
    bench.log.voter_ids = frozenset({NodeId(1)})
    await refused(bench)
    pass_checks(bench, time, refuse=True)
    assert bench.controller.is_active
    bench.log.refusal = None
