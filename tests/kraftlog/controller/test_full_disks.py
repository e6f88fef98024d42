"""A broker whose disk is full hands its leaderships to replicas that have room, and gets them back (CT-66)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest_asyncio

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.paged_writes import REFUSED_PAUSE_MS
from kraftlog.controller.periodic_tasks import FULL_DISKS_CHECK_INTERVAL_MS
from kraftlog.controller.rules.disk_space import PAUSE_MS
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import LogDirSpace
from tests.kraftlog.controller.lives import appended_records, beat, brokers, partitions, quiet, with_topic
from tests.statemachine.conftest import Bench, memory_bench
from tests.statemachine.hand_time import HandTime

LOW: Final = 100
BALANCE_SECONDS: Final = 5


@pytest_asyncio.fixture
async def time(database: Path) -> HandTime:
    return HandTime()


@pytest_asyncio.fixture
async def bench(database: Path, time: HandTime) -> AsyncIterator[Bench]:
    """An active controller whose time the test moves, and a topic with two partitions of broker 1."""
    config = ControllerConfig(broker_session_timeout_ms=10**9, leader_imbalance_check_interval_seconds=BALANCE_SECONDS)
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await with_topic(bench, {0: [1, 2, 3], 1: [1, 2, 3]})
        yield bench


def space(bench: Bench, broker_id: int, free_bytes: int, *, full: bool = False) -> admin_pb2.Operation:
    """A heartbeat that tells of the room in the broker's directory."""
    (log_dir,) = brokers(bench)[broker_id].log_dirs
    said = LogDirSpace(log_dir=log_dir, free_bytes=free_bytes, low_water_bytes=LOW, is_full=full)
    return beat(bench, broker_id, space=[said])


async def say(bench: Bench, *operations: admin_pb2.Operation) -> None:
    for operation in operations:
        await bench.done(operation)
    await quiet(bench)


def leaders(bench: Bench) -> list[int]:
    return [partition.leader for partition in partitions(bench)]


async def test_ct66_the_first_replica_with_twice_the_low_water_mark_leads(bench: Bench) -> None:
    await say(bench, space(bench, 2, 2 * LOW - 1), space(bench, 3, 2 * LOW), space(bench, 1, 0, full=True))
    assert leaders(bench) == [3, 3]
    assert [list(partition.isr) for partition in partitions(bench)] == [[1, 2, 3]] * 2
    full = brokers(bench)[1]
    assert list(full.full_log_dirs) == list(full.log_dirs)
    assert not full.fenced


async def test_ct66_if_no_replica_has_room_nothing_moves_until_one_has(bench: Bench, time: HandTime) -> None:
    await say(bench, space(bench, 2, LOW, full=True), space(bench, 3, 2 * LOW - 1), space(bench, 1, 0, full=True))
    assert leaders(bench) == [1, 1]
    since = bench.log.next_append_offset
    time.advance(FULL_DISKS_CHECK_INTERVAL_MS)
    await quiet(bench)
    assert appended_records(bench, since=since) == []
    await say(bench, space(bench, 3, 2 * LOW))
    time.advance(FULL_DISKS_CHECK_INTERVAL_MS)
    await quiet(bench)
    assert leaders(bench) == [3, 3]


async def test_ct66_a_heartbeat_that_says_the_same_again_makes_no_record(bench: Bench) -> None:
    await say(bench, space(bench, 1, 0, full=True))
    since = bench.log.next_append_offset
    await say(bench, space(bench, 1, 0, full=True), space(bench, 1, 5, full=True))
    assert appended_records(bench, since=since) == []


async def test_ct66_no_leadership_returns_to_a_preferred_replica_without_room(bench: Bench, time: HandTime) -> None:
    await say(bench, space(bench, 2, 9 * LOW), space(bench, 1, 0, full=True))
    assert leaders(bench) == [2, 2]
    time.advance(BALANCE_SECONDS * 1_000)
    await quiet(bench)
    assert leaders(bench) == [2, 2]
    await say(bench, space(bench, 1, 2 * LOW))
    assert list(brokers(bench)[1].full_log_dirs) == []
    time.advance(BALANCE_SECONDS * 1_000)
    await quiet(bench)
    assert leaders(bench) == [1, 1]


async def test_ct66_a_partition_moves_for_want_of_room_once_a_minute(bench: Bench, time: HandTime) -> None:
    await say(bench, space(bench, 2, 9 * LOW), space(bench, 3, 9 * LOW), space(bench, 1, 0, full=True))
    await say(bench, space(bench, 2, 0, full=True))
    assert leaders(bench) == [2, 2]
    time.advance(PAUSE_MS - FULL_DISKS_CHECK_INTERVAL_MS)
    await quiet(bench)
    assert leaders(bench) == [2, 2]
    time.advance(FULL_DISKS_CHECK_INTERVAL_MS)
    await quiet(bench)
    assert leaders(bench) == [3, 3]


async def test_ct66_a_move_that_the_log_refused_is_tried_again_at_once(bench: Bench, time: HandTime) -> None:
    await say(bench, space(bench, 2, LOW), space(bench, 1, 0, full=True))
    await say(bench, space(bench, 2, 9 * LOW))
    bench.log.refusal = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is pending")
    time.advance(FULL_DISKS_CHECK_INTERVAL_MS)
    assert bench.log.refusal is None
    assert leaders(bench) == [1, 1]
    time.advance(REFUSED_PAUSE_MS)
    await quiet(bench)
    assert leaders(bench) == [2, 2]


async def test_ct66_what_a_fenced_broker_has_said_of_its_room_counts_no_more(bench: Bench) -> None:
    await say(bench, space(bench, 2, 9 * LOW))
    assert bench.controller._context.disk_space.is_there_any
    await say(bench, beat(bench, 2, fence=True))
    assert brokers(bench)[2].fenced
    assert not bench.controller._context.disk_space.is_there_any
