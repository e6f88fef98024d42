"""Listeners get what the contract in raft.listener promises (LI-01 to LI-08).

Rules that tests here are named after: LI-02, LI-03, LI-04, LI-06.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kraftbase.errors import InvariantViolation, StorageError
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import Epoch, NodeId, Offset
from raft.commits import CommitFeed
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from raft.delivery import READER_BYTES_MAX, Delivery
from raft.listener import BatchReader, Listener
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import SegmentedLog
from snapshot.reader import SnapshotReader
from tests.raft.snapshot_delivery.world import HERE, NOBODY, settled


class Recorder(Listener):
    """Keeps everything that it gets; can be made to hold its readers open."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.batches: list[tuple[int, int, bool]] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.open_readers: list[BatchReader] = []
        self.holds_readers = False
        self.was_shut_down = False
        self._changed = asyncio.Event()

    async def handle_commit(self, reader: BatchReader) -> None:
        for batch in reader:
            self.batches.append((batch.base_offset, batch.end_offset, batch.is_control))
            self.records.extend(batch.records)
        if self.holds_readers:
            self.open_readers.append(reader)
        else:
            reader.close()
        self._changed.set()

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self.leaders.append(leader_and_epoch)
        self._changed.set()

    async def begin_shutdown(self) -> None:
        self.was_shut_down = True

    async def has_records(self, count: int) -> None:
        while len(self.records) < count:
            self._changed.clear()
            await self._changed.wait()

    async def has_leader(self, leader: LeaderAndEpoch) -> None:
        while not self.leaders or self.leaders[-1] != leader:
            self._changed.clear()
            await self._changed.wait()


class NoSnapshots:
    """A node that has no snapshot."""

    latest: OffsetAndEpoch | None = None

    def open_latest(self, on_opened: Callable[[SnapshotReader | None], None]) -> None:
        on_opened(None)


class World:
    """A log, its feed and its listeners, without a replica."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.log = SegmentedLog.open(self.files, "log")
        self.feed = CommitFeed(NOBODY)
        self.faults: list[tuple[Listener, Exception]] = []
        self.fatal: list[BaseException] = []
        self.delivery = self.make_delivery()

    def make_delivery(self) -> Delivery:
        return Delivery(
            self.log,
            NoSnapshots(),
            self.feed,
            AsyncioRuntime(),
            lambda listener, error: self.faults.append((listener, error)),
            self.fatal.append,
        )

    def append(self, *records: bytes, epoch: int = 1, is_control: bool = False) -> None:
        batch = encode_batch(
            self.log.log_end_offset, Epoch(epoch), encode_body(records), len(records), 0, is_control=is_control
        )
        self.log.append((batch,))
        self.log.flush()

    def commit(self) -> None:
        self.feed.advance(self.log.log_end_offset)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await awaited(world.delivery.close)
    world.log.close()


async def test_li01_a_listener_gets_every_committed_batch_in_order_and_nothing_else(world: World) -> None:
    listener = Recorder()
    world.delivery.register(listener, Offset(0))
    world.append(b"a")
    world.commit()
    world.append(b"b", b"c")
    await listener.has_records(1)
    await settled()
    assert listener.records == [b"a"]
    world.commit()
    await listener.has_records(3)
    assert listener.records == [b"a", b"b", b"c"]


async def test_li02_records_appended_together_arrive_in_one_batch(world: World) -> None:
    listener = Recorder()
    world.append(b"a", b"b", b"c")
    world.append(b"d")
    world.commit()
    world.delivery.register(listener, Offset(0))
    await listener.has_records(4)
    assert listener.batches == [(0, 3, False), (3, 4, False)]


async def test_li03_control_batches_arrive_without_records_so_that_offsets_stay_contiguous(world: World) -> None:
    listener = Recorder()
    world.append(b"leader change", is_control=True)
    world.append(b"a")
    world.commit()
    world.delivery.register(listener, Offset(0))
    await listener.has_records(1)
    assert listener.batches == [(0, 1, True), (1, 2, False)]
    assert listener.records == [b"a"]


async def test_li04_the_next_reader_comes_only_when_the_last_one_was_closed(world: World) -> None:
    listener = Recorder()
    listener.holds_readers = True
    world.delivery.register(listener, Offset(0))
    world.append(b"a")
    world.commit()
    await listener.has_records(1)
    world.append(b"b")
    world.commit()
    await settled()
    assert listener.records == [b"a"]
    listener.open_readers[0].close()
    await listener.has_records(2)


async def test_li05_the_leader_hears_that_it_leads_when_it_has_closed_a_reader_past_its_epochs_start(
    world: World,
) -> None:
    listener = Recorder()
    listener.holds_readers = True
    us = LeaderAndEpoch(NodeId(1), Epoch(2))
    world.delivery.register(listener, Offset(0))
    world.append(b"of an older epoch")
    world.append(b"leader change", epoch=2, is_control=True)
    world.feed.set_leader(us, HERE, epoch_start_offset=Offset(1))
    world.commit()
    await listener.has_records(1)
    await settled()
    assert us not in listener.leaders
    listener.open_readers[0].close()
    await listener.has_leader(us)


async def test_li05_others_hear_of_the_leader_at_once(world: World) -> None:
    listener = Recorder()
    world.delivery.register(listener, Offset(0))
    them = LeaderAndEpoch(NodeId(2), Epoch(2))
    world.append(b"not committed")
    world.feed.set_leader(them, HERE, epoch_start_offset=None)
    await listener.has_leader(them)
    assert listener.records == []


async def test_li05_a_listener_registered_later_hears_of_the_present_leader_once(world: World) -> None:
    them = LeaderAndEpoch(NodeId(2), Epoch(2))
    world.feed.set_leader(them, HERE, epoch_start_offset=None)
    listener = Recorder()
    world.delivery.register(listener, Offset(0))
    await listener.has_leader(them)
    world.append(b"a")
    world.commit()
    await listener.has_records(1)
    assert listener.leaders == [them]


async def test_li06_registering_twice_changes_nothing_and_after_unregister_it_starts_again(world: World) -> None:
    listener = Recorder()
    world.append(b"a")
    world.commit()
    assert world.delivery.register(listener, Offset(0))
    assert not world.delivery.register(listener, Offset(0))
    await listener.has_records(1)
    assert world.delivery.unregister(listener)
    assert not world.delivery.unregister(listener)
    world.append(b"b")
    world.commit()
    await settled()
    assert listener.records == [b"a"]
    world.delivery.register(listener, Offset(0))
    await listener.has_records(3)
    assert listener.records == [b"a", b"a", b"b"]


async def test_li07_a_slow_listener_does_not_hold_up_another(world: World) -> None:
    slow, quick = Recorder(), Recorder()
    slow.holds_readers = True
    for listener in (slow, quick):
        world.delivery.register(listener, Offset(0))
    world.append(b"a")
    world.commit()
    await slow.has_records(1)
    world.append(b"b")
    world.commit()
    await quick.has_records(2)
    assert slow.records == [b"a"]


async def test_li08_a_listener_that_raises_gets_nothing_more_and_the_fault_handler_hears_of_it(world: World) -> None:
    class Broken(Recorder):
        async def handle_commit(self, reader: BatchReader) -> None:
            await super().handle_commit(reader)
            raise RuntimeError("a bug of the application")

    broken, sound = Broken(), Recorder()
    for listener in (broken, sound):
        world.delivery.register(listener, Offset(0))
    world.append(b"a")
    world.commit()
    await sound.has_records(1)
    world.append(b"b")
    world.commit()
    await sound.has_records(2)
    assert broken.records == [b"a"]
    assert [(listener, str(error)) for listener, error in world.faults] == [(broken, "a bug of the application")]


async def test_a_violated_invariant_in_a_listener_is_fatal(world: World) -> None:
    class Violating(Recorder):
        async def handle_commit(self, reader: BatchReader) -> None:
            await super().handle_commit(reader)
            raise InvariantViolation("cannot be")

    listener = Violating()
    world.delivery.register(listener, Offset(0))
    world.append(b"a")
    world.commit()
    await listener.has_records(1)
    await settled()
    assert [str(error) for error in world.fatal] == ["cannot be"]


async def test_a_log_that_cannot_be_read_is_fatal_and_no_fault_of_the_listeners(world: World) -> None:
    world.append(b"a")
    world.commit()
    world.log.close()
    world.log = SegmentedLog.open(world.files, "log")  # none of it is in memory now
    world.delivery = world.make_delivery()
    (segment,) = (path for path in world.files.list_directory("log") if path.endswith(".log"))
    world.files.failing_reads.add(f"log/{segment}")
    world.delivery.register(Recorder(), Offset(0))
    await settled()
    assert [type(error) for error in world.fatal] == [StorageError]
    assert world.faults == []


async def test_a_listener_that_remembers_its_offset_gets_only_what_follows(world: World) -> None:
    world.append(b"a", b"b")
    world.append(b"c")
    world.commit()
    listener = Recorder()
    world.delivery.register(listener, Offset(2))
    await listener.has_records(1)
    assert listener.records == [b"c"]


async def test_a_listener_ahead_of_this_nodes_log_waits_for_it(world: World) -> None:
    listener = Recorder()
    world.delivery.register(listener, Offset(1))
    world.append(b"a")
    world.commit()
    await settled()
    assert listener.records == []
    world.append(b"b")
    world.commit()
    await listener.has_records(1)
    assert listener.records == [b"b"]


async def test_waits_that_are_given_up_leave_nothing_behind(world: World) -> None:
    for _ in range(10):
        waiting = asyncio.ensure_future(world.feed.wait(world.feed.version, 100))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert world.feed._waiters == []


async def test_li07_a_listener_that_catches_up_lets_others_run(world: World) -> None:
    turns: list[str] = []

    class Eager(Listener):
        async def handle_commit(self, reader: BatchReader) -> None:
            with reader:
                turns.append("listener")

    async def other() -> None:
        while len(turns) < 12:
            turns.append("other")
            await asyncio.sleep(0)

    for _ in range(3):
        world.append(b"x" * READER_BYTES_MAX)
    world.commit()
    world.delivery.register(Eager(), Offset(0))
    await other()
    assert turns.count("listener") >= 2
    assert "listener listener" not in " ".join(turns)


async def test_closing_tells_listeners_that_nothing_more_comes(world: World) -> None:
    listener = Recorder()
    world.delivery.register(listener, Offset(0))
    await settled()
    await awaited(world.delivery.close)
    assert listener.was_shut_down
