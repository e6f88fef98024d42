"""What a broker does from time to time, and that others have their turn while it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.broker.shell import repeated
from kraftlog.broker.shell.maintenance import Maintenance, MaintenanceIntervals, at_once
from kraftlog.storage.config import DAY_MS, PartitionLogConfig
from tests.kraftlog.storage.builders import TOPIC_ID, StepRuntime, append, delete_log, produced
from tests.kraftlog.storage.test_log_directory import GONE, open_manager
from tests.raft.by_hand import WALL_CLOCK_MS, HandRuntime

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


class Partitions:
    """Of which logs are checked, and ISRs."""

    def __init__(self) -> None:
        self.checks = 0

    def check_logs(self) -> None:
        self.checks += 1

    check_isrs = check_logs


class Stage:
    """A broker's maintenance on a clock that is moved by hand."""

    def __init__(self, **intervals_ms: float) -> None:
        self.runtime = HandRuntime()
        self.config = PartitionLogConfig(retention_ms=1_000)
        self.logs = open_manager(MemoryFileSystem(), cast(Any, self.runtime), ("a",), self.config)
        self.partitions = Partitions()
        self.failures: list[BaseException] = []
        fields = dataclasses.fields(MaintenanceIntervals)
        intervals = dict.fromkeys((field.name for field in fields), 1e9) | intervals_ms
        self.maintenance = Maintenance(
            self.logs, cast(Any, self.partitions), MaintenanceIntervals(**intervals), lambda: 86_400_000, self.runtime,
            self.failures.append,
        )  # fmt: skip


def test_others_have_their_turn_between_logs_that_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "SLICE_MS", 0.0)  # as if each log took longer
    stage = Stage(retention_ms=DAY_MS)
    logs = [
        stage.logs.create_log(TopicPartition("expired", index), TOPIC_ID, stage.config) for index in range(LOGS)
    ]  # fmt: skip
    for log in logs:
        append(log, produced(7, 0))
        log.advance_high_watermark(1)
    stage.runtime.wall_clock_ms = lambda: WALL_CLOCK_MS + 2 * DAY_MS  # type: ignore[method-assign]
    stage.maintenance.start()
    stage.runtime.time_ms += DAY_MS
    for timer in stage.runtime.timers:
        if timer.due_ms <= stage.runtime.time_ms:
            timer.callback()
    emptied_by_turn = list[int]()
    while stage.runtime.soon:
        emptied_by_turn.append(sum(log.log_start_offset for log in logs))
        stage.runtime.soon.popleft()()
    assert emptied_by_turn[0] <= 1
    assert sum(log.log_start_offset for log in logs) == LOGS
    assert max(later - sooner for sooner, later in pairwise(emptied_by_turn)) <= 1
    assert stage.partitions.checks == 1, "it looks for logs that have failed, once"


def test_each_is_done_again_after_its_interval() -> None:
    stage = Stage(isr_ms=15_000)
    stage.maintenance.start()
    stage.runtime.advance(14_999)
    assert stage.partitions.checks == 0
    stage.runtime.advance(15_001)
    assert stage.partitions.checks == 2


def test_the_room_is_known_to_the_first_heartbeat_and_measured_again() -> None:
    stage = Stage(room_ms=2_000)
    assert stage.maintenance.room.told() == []
    stage.maintenance.start()
    stage.runtime.run()
    (space,) = stage.maintenance.room.told()
    stage.logs.online[0].full_disk.space = None  # as if it had not been
    stage.runtime.advance(2_000)
    assert stage.maintenance.room.told() == [space]


def test_nothing_is_done_when_it_is_stopped_not_even_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "SLICE_MS", 0.0)
    steps = [0]

    def work() -> Iterator[None]:
        for _ in range(3):
            steps[0] += 1
            yield

    runtime = HandRuntime()
    some = repeated.Repeated(runtime, 10, work, pytest.fail)
    some.start(is_due=True)
    assert steps == [1]
    some.stop()
    runtime.advance(100)
    assert steps == [1]
    other = repeated.Repeated(runtime, 10, work, pytest.fail)
    other.start()
    other.stop()
    runtime.advance(100)
    assert steps == [1]


@pytest.mark.parametrize("error", [LookupError("a bug"), FlushFailed("input/output error")])
def test_what_no_directory_is_blamed_for_ends_the_broker(error: BaseException) -> None:
    stage = Stage(isr_ms=10)

    def fail() -> None:
        raise error

    stage.maintenance._others[3]._work = at_once(fail)
    stage.maintenance.start()
    stage.runtime.advance(100)
    assert stage.failures == [error], "once"
