"""A log with snapshots and listeners of it, without a replica, on the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kraftbase.endpoint import Endpoint
from kraftbase.files.memory import MemoryFile, MemoryFileSystem
from kraftbase.runtime import Timer
from kraftbase.types import Epoch, Offset
from raft.commits import CommitFeed
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from raft.delivery import Delivery
from raft.listener import BatchReader, Listener, LoadSnapshotReader
from raft.shell.log_start_keeper import ListenerPosition
from raft.shell.node_snapshots import NodeSnapshots
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import SegmentedLog
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

    def open_to_read(self, path: str) -> MemoryFile:
        file = super().open_to_read(path)
        self.opened.append(file)
        return file

    def open_snapshots(self) -> list[str]:
        return [file.path for file in self.opened if file._life == self._life and file.path.startswith(DIRECTORY)]


class LoopRuntime:
    """Work aside is done in the next iteration of the loop, unless it is held; timers never fire."""

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

    def call_after_answers(self, callback: Callable[[], None]) -> None:
        self.call_soon(callback)

    def call_after_requests(self, callback: Callable[[], None]) -> None:
        self.call_after_answers(callback)

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
    """Keeps everything that it gets; cannot load a snapshot."""

    def __init__(self, name: str = "plain") -> None:
        self._name = name
        self.given: list[tuple[str, int, int]] = []
        """Calls: commit (first offset, end offset) or snapshot (its id)."""
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
            self.runtime,
            lambda listener, error: self.faults.append((listener, error)),
            self.fatal.append,
        )

    def _damaged(self) -> None:
        self.damaged += 1

    def commit(self, count: int) -> None:
        """Append this many records."""
        for _ in range(count):
            offset = self.log.log_end_offset
            self.log.append((encode_batch(offset, Epoch(3), encode_body([b"%d" % offset]), 1, 0),))
        self.log.flush()
        self.feed.advance(self.log.log_end_offset)

    def take_snapshot(self, offset: int, records: Sequence[bytes] | None = None) -> OffsetAndEpoch:
        """Of everything below."""
        content = [records or numbers(offset)]
        write_snapshot(self.store, an_id(offset), content)
        self.snapshots.refresh()
        return an_id(offset)

    def start_log_at(self, offset: int) -> None:
        self.log.advance_start(an_id(offset))

    def damage(self, snapshot_id: OffsetAndEpoch) -> None:
        """Near its end, so that its header is whole."""
        path = self.store.path_of(snapshot_id)
        with self.store.open(snapshot_id) as reader:
            position = reader.size_bytes - 5
        self.files.damage(path, position, b"\xff\xff")

    def positions(self) -> list[ListenerPosition]:
        return self.delivery.positions()


def numbers(*bounds: int) -> list[bytes]:
    """The records of these offsets."""
    return [b"%d" % number for number in range(*bounds)]


async def settled() -> None:
    """Run every task until all of them wait; nothing here takes time."""
    for _ in range(100):
        await asyncio.sleep(0)


def register(world: World, listener: Listener, start_offset: int | None = None) -> None:
    assert world.delivery.register(listener, None if start_offset is None else Offset(start_offset))
