"""`flush.ms` of logs whose appends are acknowledged before they are flushed: one timer, for what is due first."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from tests.kraftlog.broker.broker_world import HandTimer, TimedRuntime
from tests.kraftlog.storage.builders import NOW_MS, TOPIC_ID, append, batch, open_directory


class World:
    """A directory with logs, and a clock by hand."""

    def __init__(self) -> None:
        self.runtime = TimedRuntime()
        self.files = MemoryFileSystem()
        self.directory: LogDirectory = open_directory(self.files, runtime=self.runtime)

    def log(self, index: int, **config: int) -> PartitionLog:
        """A log that does not flush before it acknowledges."""
        settings = PartitionLogConfig(flush_before_ack=False, **config)
        return self.directory.create_log(TopicPartition("clicks", index), TOPIC_ID, settings, NOW_MS, UUID(int=index))

    def produce(self, log: PartitionLog) -> None:
        """Append, and acknowledge."""
        now_ms = self.runtime.wall_clock_ms()
        self.directory.acknowledge(log, append(log, batch(1), now_ms=now_ms) + 1, lambda error: None)

    @property
    def timers(self) -> list[HandTimer]:
        """Those that are not cancelled."""
        return [timer for timer in self.runtime.timers if not timer.is_cancelled]

    def at(self, clock_ms: float) -> None:
        """Let the timers run out at a time."""
        self.runtime.clock_ms = clock_ms
        self.runtime.expire()
        self.runtime.run()


def test_what_was_appended_flush_ms_ago_is_flushed_when_that_is_over_and_not_before() -> None:
    world = World()
    log = world.log(0, flush_ms=1_000)
    world.produce(log)
    world.at(999)
    assert log.recovery_point == 0
    world.produce(log)
    world.at(1_000)
    assert log.recovery_point == 2
    assert world.timers == [], "nothing waits for a flush"
    world.produce(log)
    world.at(2_000)
    assert log.recovery_point == 3


def test_there_is_one_timer_for_all_logs_and_it_is_for_the_one_that_is_due_first() -> None:
    world = World()
    late, early, never = world.log(0, flush_ms=5_000), world.log(1, flush_ms=1_000), world.log(2)
    for log in (late, early, never, late, early):
        world.produce(log)
        assert len(world.timers) == 1
    world.at(1_000)
    assert [log.recovery_point for log in (late, early, never)] == [0, 2, 0]
    assert len(world.timers) == 1
    world.at(5_000)
    assert [log.recovery_point for log in (late, early, never)] == [2, 2, 0]
    assert world.timers == []


def test_a_log_that_was_flushed_meanwhile_is_flushed_by_the_time_of_what_came_later() -> None:
    world = World()
    log = world.log(0, flush_ms=1_000)
    world.produce(log)
    log.flush()
    world.runtime.clock_ms = 600.0
    world.produce(log)
    world.at(1_000)
    assert log.recovery_point == 1
    world.at(1_600)
    assert log.recovery_point == 2


@pytest.mark.parametrize("ends", ["fails", "is closed", "loses the log"])
def test_nothing_is_flushed_of_a_directory_or_a_log_that_is_not_used_any_more(ends: str) -> None:
    world = World()
    log = world.log(0, flush_ms=1_000)
    world.produce(log)
    if ends == "fails":
        world.directory.fail(StorageError("the disk is gone"))
    elif ends == "is closed":
        world.directory.stop_due_flushes()
    else:
        gone = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        world.directory.removal.delete_log(log.partition, UUID(int=9), gone)
    flushes = world.directory.commits.flush_times.count
    world.at(1_000)
    assert log.recovery_point == 0
    assert world.directory.commits.flush_times.count == flushes
    assert world.timers == []
