"""The listener that feeds the store: what it reports, to which subscribers, and when."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import TURNS_FOR_ANSWERS, awaited
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    RemoteLogSegmentMetadataRecord,
)
from raft.core.types import LeaderAndEpoch, StateDigest
from raft.listener import CommittedBatch
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.run_writer import REMOVALS_ON_LOOP_MAX, OnLoop
from statemachine.replay.replay import ReplayError
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import batch, config, log_of, no_op, partition, remove_topic, topic
from tests.statemachine.machines import deliver, machine_on, wait_applied
from tests.statemachine.remote_logs import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    MARKED,
    STARTED,
    added,
    copied,
    deleting,
    segment,
    updated,
)
from tests.statemachine.waiting import until

BEGIN = MetadataRecord(begin_transaction=BeginTransactionRecord(name="t"))
END = MetadataRecord(end_transaction=EndTransactionRecord())
ABORT = MetadataRecord(abort_transaction=AbortTransactionRecord(reason="r"))
LARGE = [config(f"topic-{number}", "retention.ms", str(number)) for number in range(3_000)]


class Told:
    """The calls that a subscriber received, and the store's content at that moment."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.offsets: list[tuple[int, int]] = []
        self.commits: list[tuple[int, int]] = []
        self.answers = False
        """Whether it returns that it has answered a caller."""
        self.leaders: list[LeaderAndEpoch] = []
        self.is_shut_down = False

    def applied(self, end_offset: Offset) -> None:
        self.offsets.append((end_offset, self._stored()))

    def committed(self, end_offset: Offset) -> bool:
        self.commits.append((end_offset, self._stored()))
        return self.answers

    def _stored(self) -> int:
        stored: int = self.store.reader.execute("SELECT end_offset FROM applied").fetchone()[0]
        return stored

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self.leaders.append(leader_and_epoch)

    def shut_down(self) -> None:
        self.is_shut_down = True


@asynccontextmanager
async def running(store: MetadataStore, on_loop: OnLoop = OnLoop()) -> AsyncIterator[MetadataMachine]:
    machine = machine_on(store, on_loop)
    try:
        yield machine
    finally:
        await awaited(machine.begin_shutdown)


async def test_li04_a_call_is_done_when_its_batches_are_applied(store: MetadataStore) -> None:
    async with running(store) as machine:
        await deliver(machine, *log_of([[no_op()], [no_op(), no_op()]]))
        assert store.applied_end_offset == machine.applied_end_offset == 3


async def test_subscribers_are_told_after_the_transaction(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.subscribe(told)
        small, large = log_of([[no_op()], LARGE])
        await deliver(machine, small)
        await deliver(machine, large)
        assert told.offsets == [(1, 1), (3_001, 3_001)]


async def test_who_waits_for_commits_is_told_before_a_small_run_is_applied(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.subscribe(told)
        machine.set_commit_callback(told.committed)
        small, large, last = log_of([[no_op(), no_op()], LARGE, [no_op()]])
        for run in (small, large, last):
            await deliver(machine, run)
        assert told.commits == [(2, 0), (last.end_offset, large.end_offset)]
        assert [end_offset for end_offset, _ in told.offsets] == [2, large.end_offset, last.end_offset]


async def test_answers_leave_before_the_transaction_if_there_are_any(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.set_commit_callback(told.committed)
        for offset, told.answers in enumerate([False, True]):
            delivering = asyncio.create_task(deliver(machine, batch(offset, [no_op()])))
            turns = 0
            while not delivering.done():
                await asyncio.sleep(0)
                turns += 1
                if told.answers and turns <= TURNS_FOR_ANSWERS:
                    assert machine.applied_end_offset == offset
            assert (turns > TURNS_FOR_ANSWERS) == told.answers


async def test_nobody_is_told_before_what_is_written_in_a_thread(store: MetadataStore) -> None:
    count = REMOVALS_ON_LOOP_MAX + 1
    store.apply([batch(0, [record for n in range(count) for record in (topic(f"t{n}", n), partition(n))])])
    async with running(store) as machine:
        told = Told(store)
        machine.set_commit_callback(told.committed)
        await deliver(machine, batch(2 * count, [remove_topic(n) for n in range(count)]))
        assert machine.applied_end_offset == 3 * count
        assert told.commits == []


async def test_only_what_takes_effect_is_told_while_a_metadata_transaction_is_open(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.set_commit_callback(told.committed)
        await deliver(machine, *log_of([[no_op()], [BEGIN, no_op()]]))
        await deliver(machine, batch(3, [END]))
        assert told.commits == [(1, 0), (4, 1)]


async def test_a_read_waits_for_what_was_acknowledged_here_and_not_while_it_cannot_be_applied(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 1)
    async with running(store) as machine:
        told = Told(store)
        told.answers = True
        machine.set_commit_callback(told.committed)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            delivering = asyncio.create_task(deliver(machine, *log_of([[no_op()], [no_op()]])))
            await until(lambda: machine.unavailable_reason is not None)
            with pytest.raises(ApiError, match=r"has acknowledged: .*locked.*ask another node") as refused:
                await wait_applied(machine, Offset(0), 20_000)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(ApiError, match=r"after 2 ms .* below 9"):
                await wait_applied(machine, Offset(9), 2)
            waiting = asyncio.create_task(wait_applied(machine, Offset(1), 20_000))
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
        await waiting
        assert store.applied_end_offset == 2
        await delivering
        await wait_applied(machine, Offset(0), 0)


async def test_a_fenced_state_machine_lets_nobody_be_answered(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.set_commit_callback(told.committed)
        digest = StateDigest(Offset(1), b"0" * 16)
        machine.fence(digest, digest)
        await deliver(machine, batch(0, [no_op()]))
        assert told.commits == []


async def test_nothing_is_written_by_a_state_machine_that_is_fenced_while_answers_leave(store: MetadataStore) -> None:
    async with running(store) as machine:
        digest = StateDigest(Offset(1), b"0" * 16)

        def fenced_meanwhile(end_offset: Offset) -> bool:
            machine.fence(digest, digest)
            return True

        machine.set_commit_callback(fenced_meanwhile)
        await deliver(machine, batch(0, [no_op()]))
        assert store.applied_end_offset == machine.applied_end_offset == 0


async def test_the_loop_runs_on_while_a_large_batch_is_applied(store: MetadataStore) -> None:
    assert batch(0, LARGE).size_bytes > OnLoop().bytes_max
    async with running(store) as machine:
        delivering = asyncio.create_task(deliver(machine, batch(0, LARGE)))
        seen = []
        while not delivering.done():
            await asyncio.sleep(0)
            seen.append(store.reader.execute("SELECT count(*) FROM configs").fetchone()[0])
        assert len(seen) > 1
        assert set(seen) <= {0, len(LARGE)}  # all of it or nothing
        assert machine.applied_end_offset == len(LARGE)


@pytest.mark.parametrize("on_loop", [OnLoop(bytes_max=300), OnLoop(rows_max=9)])
async def test_what_is_written_on_the_loop_may_be_less(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, on_loop: OnLoop
) -> None:
    aside: list[Sequence[CommittedBatch]] = []
    apply = store.apply

    def noting(batches: Sequence[CommittedBatch]) -> None:
        aside.append(batches)
        apply(batches)

    monkeypatch.setattr(store, "apply", noting)
    runs = [[config("a", "retention.ms", "1")], [config(f"t{number}", "retention.ms", "1") for number in range(10)]]
    async with running(store, on_loop) as machine:
        small, larger = log_of(runs)
        await deliver(machine, small)
        await deliver(machine, larger)
    assert [[batch.base_offset for batch in batches] for batches in aside] == [[1]]


async def test_the_loop_runs_on_while_many_topics_are_removed(store: MetadataStore) -> None:
    count = REMOVALS_ON_LOOP_MAX + 1
    store.apply([batch(0, [record for n in range(count) for record in (topic(f"t{n}", n), partition(n))])])
    async with running(store) as machine:
        turns = 0
        delivering = asyncio.create_task(deliver(machine, batch(2 * count, [remove_topic(n) for n in range(count)])))
        while not delivering.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 1
        assert machine.applied_end_offset == 3 * count
        assert store.reader.execute("SELECT count(*) FROM partitions").fetchone()[0] == 0


async def test_the_loop_runs_on_while_the_remote_data_of_a_partition_is_removed(store: MetadataStore) -> None:
    segments = [added(segment(number, number * 10, number * 10 + 9)) for number in range(20)]
    store.apply([batch(0, [topic("tiered", 1), partition(1), *segments, deleting(MARKED), deleting(STARTED)])])
    end_offset = store.applied_end_offset
    async with running(store) as machine:
        turns = 0
        delivering = asyncio.create_task(deliver(machine, batch(end_offset, [deleting(FINISHED)])))
        while not delivering.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 1
        assert machine.applied_end_offset == end_offset + 1
        assert store.reader.execute("SELECT count(*) FROM remote_segments").fetchone()[0] == 0


def with_epochs(number: int, epochs: int, *, at: int = 0) -> RemoteLogSegmentMetadataRecord:
    """A remote segment of this many leader epochs, an offset each."""
    return segment(number, at, at + epochs - 1, {epoch: at + epoch for epoch in range(epochs)})


MANY = 200
"""Leader epochs: few bytes, and many rows."""


@pytest.mark.parametrize(
    ("present", "coming"),
    [
        ([], [added(with_epochs(number, MANY)) for number in range(10)]),
        (
            [added(with_epochs(number, MANY)) for number in range(10)],
            [updated(number, COPY_FINISHED) for number in range(10)],
        ),
        # One copy replaces another in every epoch.
        ([*copied(with_epochs(1, MANY)), added(with_epochs(2, MANY))], [updated(2, COPY_FINISHED)]),
        # One copy starts before many others and covers them.
        (
            [
                record
                for number in range(OnLoop().rows_max)
                for record in copied(segment(number, 9 + number, 9 + number))
            ]
            + [added(segment(5_000, 0, 9 + OnLoop().rows_max))],
            [updated(5_000, COPY_FINISHED)],
        ),
        (
            [record for number in range(5) for record in copied(with_epochs(number, MANY, at=MANY * number))]
            + [updated(number, DELETE_STARTED) for number in range(5)],
            [updated(number, DELETE_FINISHED) for number in range(5)],
        ),
    ],
    ids=["added", "finished", "replaced", "covered", "deleted"],
)
async def test_the_loop_runs_on_while_few_records_come_to_many_rows(
    store: MetadataStore, present: list[MetadataRecord], coming: list[MetadataRecord]
) -> None:
    """The rows of remote segments have no relation to their bytes: each has a row for each of its leader epochs."""
    store.apply([batch(0, [topic("tiered", 1), partition(1), *present])])
    end_offset = store.applied_end_offset
    small = batch(end_offset, coming)
    assert small.size_bytes < OnLoop().bytes_max
    async with running(store) as machine:
        turns = 0
        delivering = asyncio.create_task(deliver(machine, small))
        while not delivering.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 1
        assert machine.applied_end_offset == small.end_offset


async def test_the_loop_runs_on_while_a_transaction_ends_that_waited(store: MetadataStore) -> None:
    """The batch in which it ends does not show how much it yields, or how much is dropped when it is aborted."""
    begun, aborted = log_of([[BEGIN, *[no_op()] * 10 * OnLoop().rows_max], [ABORT]])
    async with running(store) as machine:
        await deliver(machine, begun)
        delivering = asyncio.create_task(deliver(machine, aborted))
        await asyncio.sleep(0)
        assert not delivering.done()
        await delivering
        assert machine.applied_end_offset == aborted.end_offset


async def test_few_rows_are_applied_at_once(store: MetadataStore) -> None:
    """In at most one turn of the loop: another thread would cost more than the rows."""
    few = [added(with_epochs(number, 20)) for number in range(10)]
    async with running(store) as machine:
        delivering = asyncio.create_task(deliver(machine, batch(0, [topic("tiered", 1), partition(1), *few])))
        await asyncio.sleep(0)
        assert delivering.done()


async def test_who_waits_for_an_offset_is_told_when_it_is_applied(store: MetadataStore) -> None:
    async with running(store) as machine:
        waiting = [asyncio.create_task(wait_applied(machine, Offset(offset), 20_000)) for offset in (3, 1, 2)]
        await wait_applied(machine, Offset(0), 0)
        await asyncio.sleep(0)
        await deliver(machine, batch(0, [no_op(), no_op()]))
        await asyncio.gather(waiting[1], waiting[2])
        assert not waiting[0].done()
        await deliver(machine, batch(2, [no_op()]))
        await waiting[0]


async def test_who_waits_too_long_is_told_how_far_it_is(store: MetadataStore) -> None:
    async with running(store) as machine:
        await deliver(machine, batch(0, [no_op()]))
        with pytest.raises(ApiError, match="applied end offset of this node is 1, below 2") as refusal:
            await wait_applied(machine, Offset(2), 1)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        await deliver(machine, batch(1, [no_op()]))  # no waiter is left to be notified


async def test_so_many_may_wait_and_no_more(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statemachine.apply.machine.WAITERS_MAX", 2)
    async with running(store) as machine:
        waiting = [asyncio.create_task(wait_applied(machine, Offset(1), 20_000)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refusal:
            await wait_applied(machine, Offset(1), 20_000)
        assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        again = asyncio.create_task(wait_applied(machine, Offset(1), 20_000))
        await asyncio.sleep(0)
        await deliver(machine, batch(0, [no_op()]))
        await asyncio.gather(waiting[1], again)


async def test_ct18_a_record_that_cannot_be_applied_is_reported(store: MetadataStore) -> None:
    """CT-18: an exception ends the process."""
    async with running(store) as machine:
        with pytest.raises(ReplayError):
            await deliver(machine, batch(0, [partition(1)]))
        assert machine.applied_end_offset == 0


async def test_a_lock_that_somebody_holds_is_waited_out(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 1)
    async with running(store) as machine:
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            delivering = asyncio.create_task(deliver(machine, batch(0, [no_op()])))
            await until(lambda: machine.unavailable_reason is not None)
            assert not delivering.done()
            assert "locked" in (machine.unavailable_reason or "")
            other.execute("ROLLBACK")
        await delivering
        assert machine.applied_end_offset == 1
        assert machine.unavailable_reason is None


async def test_leaders_are_passed_on(store: MetadataStore) -> None:
    async with running(store) as machine:
        told = Told(store)
        machine.subscribe(told)
        leader = LeaderAndEpoch(NodeId(3), Epoch(7))
        await awaited(partial(machine.handle_leader_change, leader))
        assert told.leaders == [leader]


async def test_a_shutdown_turns_away_who_waits_and_tells_subscribers(store: MetadataStore) -> None:
    machine = machine_on(store)
    told = Told(store)
    machine.subscribe(told)
    waiting = asyncio.create_task(wait_applied(machine, Offset(1), 20_000))
    await asyncio.sleep(0)
    await awaited(machine.begin_shutdown)
    await awaited(machine.begin_shutdown)
    with pytest.raises(ApiError, match="shuts down"):
        await waiting
    assert told.is_shut_down


async def test_who_comes_after_the_shutdown_began_does_not_wait_but_reads_what_is_applied(store: MetadataStore) -> None:
    machine = machine_on(store)
    await deliver(machine, batch(0, [no_op()]))
    await awaited(machine.begin_shutdown)
    await wait_applied(machine, Offset(1), 1)
    with pytest.raises(ApiError, match="shuts down") as refusal:
        await wait_applied(machine, Offset(2), 1)
    assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_shutdown_lets_a_running_transaction_finish(store: MetadataStore) -> None:
    machine = machine_on(store)
    delivering = asyncio.create_task(deliver(machine, batch(0, LARGE)))
    await asyncio.sleep(0)
    delivering.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    await awaited(machine.begin_shutdown)
    assert store.applied_end_offset in (0, len(LARGE))
    store.apply([batch(0, LARGE)])
    assert store.applied_end_offset == len(LARGE)
