"""Listeners are loaded the snapshots that the contract in raft.listener promises, and no others (SN-60 to SN-63)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from raft.commits import CommitFeed
from raft.core.errors import ErrorCode, InvariantViolation, ProtocolError
from raft.core.types import Endpoint, Epoch, LeaderAndEpoch, NodeId, Offset, OffsetAndEpoch
from raft.delivery import Delivery
from raft.listener import BatchReader, Listener, LoadSnapshotReader
from raft.log_start import ListenerPosition
from raft.runtime import Timer
from raft.snapshots import NodeSnapshots
from raft.storage.batch import encode_batch, encode_body
from raft.storage.memory import MemoryFile, MemoryFileSystem
from raft.storage.segmented_log import SegmentedLog
from snapshot.names import snapshot_name
from snapshot.store import SnapshotStore
from tests.raft.by_hand import HandTimer
from tests.snapshot.builders import DIRECTORY, HEADER_OF_TESTS, TIMESTAMP_MS, an_id, write_snapshot

HERE = Endpoint("127.0.0.1", 1)
NOBODY = LeaderAndEpoch(None, Epoch(0))


class CountingFiles(MemoryFileSystem):
    """Knows which files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[MemoryFile] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        self.opened.append(file)
        return file

    def open_snapshots(self) -> list[str]:
        return [file.path for file in self.opened if file._life == self._life and file.path.startswith(DIRECTORY)]


class LoopRuntime:
    """Work aside is done when the loop comes round, if it may go on; what is to happen later does not."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def now_ms(self) -> float:
        return 0

    def wall_clock_ms(self) -> int:
        return TIMESTAMP_MS

    def call_soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return HandTimer(delay_ms, callback)

    def run_on_disk(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        self.run_aside(work, on_done)

    def run_aside(self, work: Callable[[], None], on_done: Callable[[BaseException | None], None]) -> None:
        async def run() -> None:
            await self.may_go_on.wait()
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:
                failure = error
            on_done(failure)

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Plain(Listener):
    """Keeps what it was given; cannot load a snapshot."""

    def __init__(self, name: str = "plain") -> None:
        self._name = name
        self.given: list[tuple[str, int, int]] = []
        """What: commit (first offset, end offset) or snapshot (its id)."""
        self.records: list[bytes] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.held: list[BatchReader | LoadSnapshotReader] = []
        self.holds_readers = False

    @property
    def name(self) -> str:
        return self._name

    async def handle_commit(self, reader: BatchReader) -> None:
        self.given.append(("commit", reader.base_offset, reader.end_offset))
        self._take(reader)

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        self.leaders.append(leader_and_epoch)

    def _take(self, reader: BatchReader | LoadSnapshotReader) -> None:
        for batch in reader:
            self.records.extend(batch.records)
        if self.holds_readers:
            self.held.append(reader)
        else:
            reader.close()


class Loading(Plain):
    """Can load a snapshot."""

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        self.given.append(("snapshot", reader.snapshot_id.offset, reader.snapshot_id.epoch))
        assert reader.end_offset == reader.snapshot_id.offset
        assert reader.last_contained_log_timestamp_ms == TIMESTAMP_MS
        self.records.clear()
        self._take(reader)


class World:
    """A log with snapshots, its feed and its listeners, without a replica. Every record is a batch of epoch 3."""

    def __init__(self) -> None:
        self.files = CountingFiles()
        self.log = SegmentedLog.open(self.files, "log")
        self.store = SnapshotStore(self.files, DIRECTORY)
        self.feed = CommitFeed(NOBODY)
        self.runtime = LoopRuntime()
        self.faults: list[tuple[Listener, Exception]] = []
        self.fatal: list[BaseException] = []
        self.damaged = 0
        self.snapshots = NodeSnapshots(
            self.store,
            HEADER_OF_TESTS.cluster_id,
            self.runtime,
            on_changed=self.feed.wake,
            on_damaged=self._damaged,
            on_fatal=self.fatal.append,
        )
        self.delivery = Delivery(
            self.log,
            self.snapshots,
            self.feed,
            lambda listener, error: self.faults.append((listener, error)),
            self.fatal.append,
        )

    def _damaged(self) -> None:
        self.damaged += 1

    def commit(self, count: int) -> None:
        for _ in range(count):
            offset = self.log.log_end_offset
            self.log.append((encode_batch(offset, Epoch(3), encode_body([b"%d" % offset]), 1, 0),))
        self.log.flush()
        self.feed.advance(self.log.log_end_offset)

    def take_snapshot(self, offset: int, records: Sequence[bytes] | None = None) -> OffsetAndEpoch:
        """Of everything below."""
        content = [records or [b"%d" % number for number in range(offset)]]
        write_snapshot(self.store, an_id(offset), content)
        self.snapshots.refresh()
        return an_id(offset)

    def start_log_at(self, offset: int) -> None:
        self.log.advance_start(an_id(offset))

    def damage(self, snapshot_id: OffsetAndEpoch) -> None:
        path = self.store.path_of(snapshot_id)
        with self.store.open(snapshot_id) as reader:
            position = reader.size_bytes - 5
        self.files.damage(path, position, b"\xff\xff")

    def positions(self) -> list[ListenerPosition]:
        return self.delivery.positions()


def numbers(*bounds: int) -> list[bytes]:
    return [b"%d" % number for number in range(*bounds)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.runtime.may_go_on.set()
    await world.delivery.close()
    world.snapshots.close()
    await settled()
    assert world.files.open_snapshots() == []
    assert world.fatal == []
    world.log.close()


async def settled() -> None:
    """Let every task run until all of them wait; nothing here takes time."""
    for _ in range(100):
        await asyncio.sleep(0)


def register(world: World, listener: Listener, start_offset: int | None = None) -> None:
    assert world.delivery.register(listener, None if start_offset is None else Offset(start_offset))


# --- who is loaded one ------------------------------------------------------------------------------------------------


async def test_sn60_a_new_listener_begins_with_the_newest_snapshot_and_goes_on_where_it_ends(world: World) -> None:
    world.commit(10)
    world.take_snapshot(3)
    world.take_snapshot(6)
    world.start_log_at(3)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 6, 3), ("commit", 6, 10)]
    assert listener.records == numbers(10)


async def test_sn60_a_new_listener_begins_with_a_snapshot_although_the_log_has_everything(world: World) -> None:
    world.commit(4)
    world.take_snapshot(4)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 4, 3)]
    world.commit(1)
    await settled()
    assert listener.given == [("snapshot", 4, 3), ("commit", 4, 5)]


async def test_sn60_a_listener_behind_the_logs_start_loads_the_newest_and_not_the_one_at_the_start(
    world: World,
) -> None:
    world.commit(10)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener, 0)
    await settled()
    world.commit(5)
    world.take_snapshot(11)
    world.take_snapshot(13)
    world.start_log_at(11)
    listener.held[0].close()
    await settled()
    assert listener.given == [("commit", 0, 10), ("snapshot", 13, 3)]
    listener.held[1].close()
    await settled()
    assert listener.given[2:] == [("commit", 13, 15)]
    assert listener.records == numbers(15)


async def test_sn60_a_listener_exactly_at_the_logs_start_is_loaded_nothing(world: World) -> None:
    world.commit(10)
    world.take_snapshot(5)
    world.take_snapshot(8)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, 5)
    await settled()
    assert listener.given == [("commit", 5, 10)]


async def test_sn60_a_listener_that_remembers_an_offset_below_the_start_is_loaded_the_newest(world: World) -> None:
    world.commit(10)
    world.take_snapshot(5)
    world.take_snapshot(8)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, 4)
    await settled()
    assert listener.given == [("snapshot", 8, 3), ("commit", 8, 10)]


async def test_sn60_a_listener_with_everything_is_loaded_nothing_until_more_is_committed(world: World) -> None:
    """Its offset is below the start only for as long as it lacks something."""
    world.commit(10)
    world.take_snapshot(8)
    world.start_log_at(8)
    listener = Loading()
    register(world, listener, 10)
    await settled()
    assert listener.given == []
    world.commit(1)
    await settled()
    assert listener.given == [("commit", 10, 11)]


async def test_sn61_a_new_listener_without_a_snapshot_begins_with_the_first_record(world: World) -> None:
    world.commit(3)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 3)]


@pytest.mark.parametrize("start_offset", [None, 2])
async def test_sn61_a_listener_below_the_start_without_a_snapshot_waits_until_there_is_one(
    world: World, start_offset: int | None
) -> None:
    world.commit(10)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, start_offset)
    await settled()
    world.commit(1)
    await settled()
    assert listener.given == []
    assert world.positions() == [("plain", -1 if start_offset is None else start_offset)]
    world.take_snapshot(7)
    await settled()
    assert listener.given == [("snapshot", 7, 3), ("commit", 7, 11)]
    assert not world.faults


async def test_sn62_a_listener_that_keeps_up_is_loaded_nothing_whatever_comes_and_goes(world: World) -> None:
    world.commit(1)
    listener = Loading()
    register(world, listener)
    for number in range(1, 8):
        await settled()
        if number % 2:
            world.take_snapshot(number)
        if number % 3 == 0:
            world.start_log_at(number)
            world.snapshots.delete_surplus(an_id(number))
        world.commit(1)
    await settled()
    assert listener.given == [("commit", number, number + 1) for number in range(8)]


async def test_sn63_a_listener_that_is_registered_again_is_loaded_the_same_snapshot_again(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    listener = Loading()
    for _ in range(2):
        register(world, listener)
        await settled()
        assert world.delivery.unregister(listener)
    assert listener.given == [("snapshot", 5, 3)] * 2


async def test_sn60_an_explicit_offset_is_not_new(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    for start_offset in (0, 2):
        listener = Loading()
        register(world, listener, start_offset)
        await settled()
        assert listener.given == [("commit", start_offset, 5)]


# --- listeners that cannot load ---------------------------------------------------------------------------------------


async def test_a_listener_that_cannot_load_snapshots_begins_with_the_first_record(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    listener = Plain()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 5)]
    assert not world.faults


@pytest.mark.parametrize("start_offset", [None, 4])
async def test_a_listener_that_cannot_load_snapshots_fails_when_it_is_behind_the_start(
    world: World, start_offset: int | None
) -> None:
    world.commit(6)
    world.take_snapshot(5)
    world.start_log_at(5)
    listener, other = Plain(), Loading()
    register(world, listener, start_offset)
    register(world, other)
    await settled()
    ((failed, error),) = world.faults
    assert failed is listener
    assert isinstance(error, ProtocolError)
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "handle_load_snapshot" in str(error)
    assert listener.given == []
    assert [position.name for position in world.positions()] == ["plain"]
    assert other.given == [("snapshot", 5, 3), ("commit", 5, 6)]
    assert not world.delivery.unregister(listener)


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_sn60_nothing_is_delivered_until_the_snapshots_reader_is_closed(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    world.commit(1)
    world.take_snapshot(6)
    await settled()
    assert listener.given == [("snapshot", 3, 3)]
    listener.held[0].close()
    listener.held[0].close()  # twice is once
    await settled()
    assert listener.given == [("snapshot", 3, 3), ("commit", 3, 6)]


async def test_the_reader_of_a_snapshot_leaves_no_file_open(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    assert world.files.open_snapshots() == [world.store.path_of(an_id(3))]
    listener.held[0].close()
    await settled()
    assert world.files.open_snapshots() == []


async def test_a_reader_that_a_listener_leaves_with_an_error_is_closed_and_the_listener_gets_nothing_more(
    world: World,
) -> None:
    class Failing(Loading):
        async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
            with reader:
                raise RuntimeError("a bug of the application")

    world.commit(5)
    world.take_snapshot(3)
    listener = Failing()
    register(world, listener)
    await settled()
    world.commit(1)
    await settled()
    assert [(failed, str(error)) for failed, error in world.faults] == [(listener, "a bug of the application")]
    assert listener.given == []
    assert world.files.open_snapshots() == []


async def test_a_violated_invariant_while_loading_is_fatal(world: World) -> None:
    class Violating(Loading):
        async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
            raise InvariantViolation("cannot be")

    world.commit(5)
    world.take_snapshot(3)
    register(world, Violating())
    await settled()
    assert [str(error) for error in world.fatal] == ["cannot be"]
    world.fatal.clear()


@pytest.mark.parametrize("how", ["unregistered", "closed"])
@pytest.mark.parametrize("when", ["opening", "reading"])
async def test_a_listener_that_goes_in_the_middle_of_a_load_leaves_no_open_file(
    world: World, how: str, when: str
) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    if when == "opening":
        world.runtime.may_go_on.clear()
    register(world, listener)
    await settled()
    assert len(listener.held) == (0 if when == "opening" else 1)
    if how == "unregistered":
        assert world.delivery.unregister(listener)
    else:
        await world.delivery.close()
    await settled()
    world.runtime.may_go_on.set()
    await settled()
    assert world.files.open_snapshots() == []
    assert len(listener.held) == (0 if when == "opening" else 1)


async def test_li07_a_listener_that_loads_holds_up_nobody(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    slow, quick = Loading("slow"), Loading("quick")
    slow.holds_readers = True
    register(world, slow)
    register(world, quick)
    await settled()
    assert quick.given == [("snapshot", 3, 3), ("commit", 3, 5)]
    assert slow.given == [("snapshot", 3, 3)]


# --- damage -----------------------------------------------------------------------------------------------------------


async def test_sn60_a_damaged_newest_snapshot_is_deleted_and_the_one_before_is_loaded(world: World) -> None:
    world.commit(10)
    world.take_snapshot(3)
    world.damage(world.take_snapshot(6))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 3, 3), ("commit", 3, 10)]
    assert world.damaged == 1
    assert snapshot_name(an_id(6)) not in world.files.list_directory(DIRECTORY)


async def test_sn61_a_new_listener_whose_only_snapshot_is_damaged_begins_with_the_first_record(world: World) -> None:
    world.commit(10)
    world.damage(world.take_snapshot(6))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 10)]


async def test_sn61_a_new_listener_below_the_start_waits_for_another_if_its_only_snapshot_is_damaged(
    world: World,
) -> None:
    world.commit(10)
    world.damage(world.take_snapshot(6))
    world.start_log_at(6)
    listener = Loading()
    register(world, listener)
    await settled()
    assert (listener.given, world.damaged) == ([], 1)
    world.take_snapshot(7)
    await settled()
    assert listener.given == [("snapshot", 7, 3), ("commit", 7, 10)]


async def test_sn61_a_new_listener_whose_only_snapshot_cannot_be_read_begins_with_the_first_record(
    world: World,
) -> None:
    world.commit(10)
    world.files.failing_reads.add(world.store.path_of(world.take_snapshot(6)))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 10)]
    assert world.damaged == 0


# --- leaders and positions --------------------------------------------------------------------------------------------


async def test_li05_a_snapshot_past_the_epochs_start_lets_the_leader_hear_that_it_leads(world: World) -> None:
    us = LeaderAndEpoch(NodeId(1), Epoch(3))
    world.commit(5)
    world.take_snapshot(5)
    world.feed.set_leader(us, HERE, epoch_start_offset=Offset(4))
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    assert us not in listener.leaders
    listener.held[0].close()
    await settled()
    assert listener.leaders[-1] == us
    assert listener.given == [("snapshot", 5, 3)]


async def test_li05_a_snapshot_up_to_the_epochs_start_does_not_let_the_leader_hear_that_it_leads(world: World) -> None:
    us = LeaderAndEpoch(NodeId(1), Epoch(3))
    world.commit(5)
    world.take_snapshot(5)
    world.feed.set_leader(us, HERE, epoch_start_offset=Offset(5))
    listener = Loading()
    register(world, listener)
    await settled()
    assert us not in listener.leaders
    world.commit(1)
    await settled()
    assert listener.leaders[-1] == us


async def test_sn51_positions_show_what_every_listener_reads_next(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    new, behind, old = Loading("new"), Loading("behind"), Plain("old")
    for listener in (new, behind):
        listener.holds_readers = True
    register(world, new)
    register(world, behind, 1)
    register(world, old)
    assert world.positions() == [("new", -1), ("behind", 1), ("old", 0)]
    await settled()
    assert world.positions() == [("new", -1), ("behind", 1), ("old", 5)]
    new.held[0].close()
    behind.held[0].close()
    await settled()
    assert world.positions() == [("new", 3), ("behind", 5), ("old", 5)]
    new.held[1].close()
    await settled()
    assert world.positions() == [("new", 5), ("behind", 5), ("old", 5)]
    assert world.delivery.unregister(behind)
    assert world.positions() == [("new", 5), ("old", 5)]
