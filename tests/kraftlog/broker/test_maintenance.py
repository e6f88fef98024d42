"""The event loop turns while retention deletes what many logs have, each of which is synced."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.broker import running
from kraftlog.storage.config import DAY_MS, PartitionLogConfig
from tests.kraftlog.storage.builders import TOPIC_ID, StepRuntime, append, delete_log, produced
from tests.kraftlog.storage.test_log_directory import GONE, open_manager

LOGS = 20


def test_maintenance_has_a_step_for_each_log_between_which_logs_come_and_go() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    config = PartitionLogConfig(retention_ms=1_000)
    manager = open_manager(files, runtime, ("a",), config)
    several = [TopicPartition("expired", index) for index in range(4)]
    for partition in several:
        log = manager.create_log(partition, TOPIC_ID, config)
        append(log, produced(7, 0))
        log.advance_high_watermark(1)
    runtime.clock_ms = DAY_MS
    steps = manager.maintain_in_steps()
    assert next(steps) == 1
    assert [manager.log_of(partition).log_start_offset for partition in several] == [1, 0, 0, 0]
    delete_log(manager, several[2], GONE)
    manager.create_log(several[2], UUID(int=88), config)
    assert list(steps) == [1, 1], "the step of a log that is gone is left out"
    assert manager.log_of(several[3]).log_start_offset == 1


async def test_the_loop_turns_between_logs_that_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SLICE_SECONDS", 0.0)  # as if each log took longer
    runtime, config = StepRuntime(), PartitionLogConfig(retention_ms=1_000)
    manager = open_manager(MemoryFileSystem(), runtime, config=config)
    logs = [manager.create_log(TopicPartition("expired", index), TOPIC_ID, config) for index in range(LOGS)]
    for log in logs:
        append(log, produced(7, 0))
        log.advance_high_watermark(1)
    runtime.clock_ms = DAY_MS
    checked = asyncio.Event()
    broker = SimpleNamespace(
        settings=SimpleNamespace(whole=lambda _: 1), logs=manager, partitions=SimpleNamespace(check_logs=checked.set)
    )
    maintaining = asyncio.create_task(running._maintain(cast(Any, broker)))
    emptied_by_turn = list[int]()
    while not checked.is_set():
        await asyncio.sleep(0)
        emptied_by_turn.append(sum(log.log_start_offset for log in logs))
    maintaining.cancel()
    steps = [later - sooner for sooner, later in pairwise(emptied_by_turn)]
    assert emptied_by_turn[-1] == LOGS
    assert max(steps) <= 1
