"""A Fetch that waits for reads which complete later: every way in which they may end (DB-119)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import cast

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.replicas.partitions.later_read import LaterRecords, LaterResult
from kraftlog.replicas.partitions.outstanding_reads import OutstandingReads
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.reading import Isolation, Read, Reader, ReadFrom
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.telemetry.observer import FetchEnd
from tests.kraftlog.broker.broker_world import TimedRuntime
from tests.kraftlog.replicas.partitions.later import FAILED, Later
from tests.kraftlog.telemetry.recorder import Recorder

FENCED = ApiError(ErrorCode.FENCED_LEADER_EPOCH, "over")
LOCAL = Read(None, 90, 80, 10, records=b"local")
NOT_YET = Read(None, 70, 60, 5)


class FakePartition:
    """As much of a partition as the wait looks at."""

    def __init__(self) -> None:
        self.leader_epoch = 3
        self.error: ApiError | None = None
        self.watchers: dict[OutstandingReads, None] = {}

    def leader_log(self, current_leader_epoch: int, *, must_lead: bool) -> None:
        if self.error is not None:
            raise self.error

    def watch(self, watcher: OutstandingReads) -> None:
        self.watchers[watcher] = None

    def unwatch(self, watcher: OutstandingReads) -> None:
        self.watchers.pop(watcher, None)

    def change(self) -> None:
        for watcher in list(self.watchers):
            watcher.partition_changed(cast(Partition, self))


class World:
    """A Fetch of a partition that was read from the disk, and of some whose reads are given."""

    def __init__(
        self, *later: Later, isolation: Isolation = Isolation.READ_UNCOMMITTED, is_started: bool = True
    ) -> None:
        self.partitions = [FakePartition() for _ in range(1 + len(later))]
        aborted = () if isolation is Isolation.READ_COMMITTED else None
        kept = [LOCAL, *(NOT_YET._replace(aborted=aborted) for _ in later)]
        self.runtime, self.observer = TimedRuntime(), Recorder()
        self.answers: list[list[Read]] = []
        self.reads = OutstandingReads(
            [ReadFrom(cast(Partition, partition), 0, 100) for partition in self.partitions],
            Reader(isolation),
            kept,
            dict(enumerate(later, start=1)),
            self.answers.append,
            self.observer,
        )
        if is_started:
            self.reads.start(self.runtime)

    @property
    def answer(self) -> list[Read]:
        """The only one; nothing is left of the wait."""
        assert not self.reads.is_waiting
        assert not any(partition.watchers for partition in self.partitions)
        assert all(timer.is_cancelled for timer in self.runtime.timers)
        assert self.observer.fetches[-1][0] == "completed"
        (answer,) = self.answers
        return answer

    @property
    def why(self) -> object:
        return self.observer.fetches[-1][3]


def brought(records: bytes) -> Read:
    return NOT_YET._replace(records=records)


def error_codes(reads: list[Read]) -> list[ErrorCode | None]:
    return [None if read.error is None else read.error.code for read in reads]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_db119_it_is_answered_when_all_reads_have_ended_in_any_order(order: tuple[int, ...]) -> None:
    later = [Later(), Later(), Later()]
    world = World(*later)
    assert all(read.is_started for read in later)
    for place in order:
        assert world.answers == []
        later[place].finish(FAILED if place == 1 else b"records %d" % place)
    assert world.answer == [LOCAL, brought(b"records 0"), Read(FAILED), brought(b"records 2")]
    assert world.why is FetchEnd.READS_DONE
    assert not any(read.is_cancelled for read in later)
    assert world.observer.fetches == [("reads later", 3, 500), ("completed", -1, 18, FetchEnd.READS_DONE)]


def test_db119_a_read_that_is_out_of_range_tells_where_the_log_starts() -> None:
    later = Later()
    world = World(later)
    error = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "gone")
    later.finish(error)
    assert world.answer == [LOCAL, NOT_YET._replace(error=error)]


def test_db119_reads_that_have_their_records_at_once_are_not_waited_for() -> None:
    world = World(Later(at_start=LaterRecords(b"one")), Later(at_start=FAILED))
    assert world.answer == [LOCAL, brought(b"one"), Read(FAILED)]


def test_db119_one_that_ends_at_once_waits_for_the_other() -> None:
    later = Later()
    world = World(Later(at_start=LaterRecords(b"one")), later)
    assert world.answers == []
    later.finish(b"two")
    assert world.answer == [LOCAL, brought(b"one"), brought(b"two")]


@pytest.mark.parametrize("by_client", [False, True])
def test_db119_when_its_time_is_over_or_its_client_is_gone_it_has_what_has_come(by_client: bool) -> None:
    later = [Later(max_wait_ms=100), Later(max_wait_ms=700)]
    world = World(*later)
    assert world.observer.fetches == [("reads later", 2, 700)]
    later[0].finish(b"one")
    if by_client:
        world.reads.expire()
    else:
        world.runtime.timers[0].callback()
        world.runtime.timers.clear()
    assert world.answer == [LOCAL, brought(b"one"), NOT_YET]
    assert world.why is FetchEnd.READS_CANCELLED
    assert [read.is_cancelled for read in later] == [False, True]
    later[1].finish(b"too late")
    later[1].finish(FAILED)
    world.reads.expire()
    assert world.answer == [LOCAL, brought(b"one"), NOT_YET]


@pytest.mark.parametrize("error", [None, FENCED])
def test_db119_a_change_of_a_partition_ends_the_wait(error: ApiError | None) -> None:
    later = [Later(), Later()]
    world = World(*later)
    changed = world.partitions[2]
    changed.error, changed.leader_epoch = error, 4
    changed.change()
    assert world.answer == [LOCAL, NOT_YET, NOT_YET if error is None else Read(error)]
    assert world.why is FetchEnd.PARTITION_CHANGED
    assert [read.is_cancelled for read in later] == [True, True]


def test_db119_more_records_of_a_partition_do_not_end_the_wait() -> None:
    later = Later()
    world = World(later)
    world.partitions[1].change()
    assert world.answers == []
    later.finish(b"one")
    assert world.answer[1] == brought(b"one")


def test_db119_a_partition_that_changes_after_its_read_keeps_what_has_come() -> None:
    later = [Later(), Later()]
    world = World(*later)
    later[0].finish(b"one")
    world.partitions[0].change()
    world.partitions[1].error = FENCED
    world.partitions[1].change()
    assert world.answers == []
    later[1].finish(b"two")
    assert error_codes(world.answer) == [None, None, None]


def test_db119_a_read_that_finds_its_log_offline_when_it_is_begun_ends_the_wait() -> None:
    class Offline(Later):
        world: World

        def start(self, on_done: Callable[[LaterResult], None]) -> None:
            super().start(on_done)
            self.world.partitions[1].error = FENCED
            self.world.partitions[1].change()

    later = [Offline(), Later()]
    world = World(*later, is_started=False)
    Offline.world = world
    world.reads.start(world.runtime)
    assert world.answer == [LOCAL, Read(FENCED), NOT_YET]
    assert [read.is_started for read in later] == [True, False]


@pytest.mark.parametrize("isolation", [Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED])
def test_db119_aborted_transactions_come_with_the_records_for_those_who_want_them(isolation: Isolation) -> None:
    later = Later()
    world = World(later, isolation=isolation)
    aborted = (AbortedTransaction(7, 0, 3, 9),)
    later.finish(LaterRecords(b"records", aborted))
    assert world.answer[1].aborted == (aborted if isolation is Isolation.READ_COMMITTED else None)
