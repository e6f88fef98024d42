"""Flushes run on the loop while the disk is fast, in a thread when it is slow; a failed one is fatal either way."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.flusher import BUSY_TURN_MS, SLOW_FLUSH_MS, Flusher
from kraftbase.runtime import AsyncioRuntime
from kraftbase.types import Epoch, Offset
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import SegmentedLog
from tests.raft.by_hand import HandRuntime

SEGMENT = "log/" + "0" * 20 + ".log"


def append_to(log: SegmentedLog) -> None:
    log.append((encode_batch(log.log_end_offset, Epoch(1), encode_body([b"x"]), 1, 0),))


class World:
    """A log, its flusher, and the flusher's reports."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.log = SegmentedLog.open(self.files, "log")
        self.executor = ThreadPoolExecutor(max_workers=1)
        self.flushed: asyncio.Queue[Offset] = asyncio.Queue()
        self.fatal: asyncio.Queue[BaseException] = asyncio.Queue()
        self.flusher = Flusher(self.log, AsyncioRuntime(self.executor), self.flushed.put_nowait, self.fatal.put_nowait)
        self.flushing_threads: list[str] = []
        self.loop_thread = threading.current_thread()
        self.may_flush = threading.Event()
        self.may_flush.set()
        self.files.before_operation = self._before

    def _before(self, operation: str, path: str) -> None:
        if "sync" in operation:
            self.flushing_threads.append(threading.current_thread().name)
            # On the loop's own thread nothing could set it: fail at once, not at the test's timeout.
            assert self.may_flush.is_set() or threading.current_thread() is not self.loop_thread
            assert self.may_flush.wait(20)

    def append(self) -> None:
        append_to(self.log)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr("kraftbase.flusher.BUSY_TURN_MS", math.inf)  # whatever else this machine does
    world = World()
    yield world
    world.may_flush.set()
    world.executor.shutdown()
    world.files.before_operation = None
    world.log.close()


async def test_a_quick_disk_is_flushed_on_the_loop(world: World) -> None:
    world.append()
    world.flusher.request()
    assert await world.flushed.get() == 1
    assert world.flushing_threads == [threading.current_thread().name]


async def test_a_slow_disk_is_flushed_in_a_thread_and_the_loop_goes_on(world: World) -> None:
    world.flusher.recent_flush_ms = SLOW_FLUSH_MS * 10
    world.may_flush.clear()
    world.append()
    world.flusher.request()
    await asyncio.sleep(0)  # the flush is in progress now, and this still runs
    world.append()
    assert world.flushed.empty()
    world.may_flush.set()
    assert await world.flushed.get() == 1  # without the records appended during the flush
    assert world.log.flushed_end_offset == 1
    assert world.flushing_threads[0] != threading.current_thread().name


async def test_a_disk_that_is_quick_again_is_flushed_on_the_loop_again(world: World) -> None:
    world.flusher.recent_flush_ms = SLOW_FLUSH_MS * 10
    here = threading.current_thread().name
    for flushes in range(1, 100):
        world.append()
        world.flusher.request()
        assert await world.flushed.get() == flushes
        if world.flushing_threads[-1] == here:
            break
    assert world.flushing_threads[0] != here
    assert world.flushing_threads[-1] == here


class StageByHand:
    """A flusher on a runtime that the test drives, and a disk that takes as long as the test sets."""

    def __init__(self) -> None:
        self.runtime = HandRuntime()
        self.disk_ms = 0.1
        files = MemoryFileSystem()
        files.before_operation = self._before
        self.log = SegmentedLog.open(files, "log")
        self.flusher = Flusher(self.log, self.runtime, lambda end_offset: None, pytest.fail)  # type: ignore[arg-type]

    def _before(self, operation: str, path: str) -> None:
        if "sync" in operation:
            self.runtime.time_ms += self.disk_ms

    def is_flushed_on_loop(self, turn_ms: float = 0.1, way_ms: float = 0.1) -> bool:
        """Flush once; `way_ms` is the time of the loop's iteration, and of the hop to the thread."""
        append_to(self.log)
        self.flusher.request()
        self.runtime.time_ms += turn_ms
        self.runtime.soon.popleft()()
        is_on_loop = not self.runtime.on_disk
        if not is_on_loop:
            self.runtime.time_ms += way_ms
            self.runtime.run_disk_work()
        assert self.log.flushed_end_offset == self.log.log_end_offset
        return is_on_loop


@pytest.mark.parametrize("way_ms, disk_ms, leaves_the_thread", [(20.0, 0.1, True), (0.1, 20.0, False)])
def test_the_disk_says_whether_flushes_are_slow_not_the_way_to_its_thread(
    way_ms: float, disk_ms: float, leaves_the_thread: bool
) -> None:
    """When the hop counted, a busy process that had once moved to the thread stayed there."""
    stage = StageByHand()
    stage.flusher.recent_flush_ms = SLOW_FLUSH_MS * 10
    stage.disk_ms = disk_ms
    flushes = [stage.is_flushed_on_loop(way_ms=way_ms) for _ in range(30)]
    assert not flushes[0]
    assert flushes[-1] == leaves_the_thread


def test_a_busy_loop_goes_on_while_a_quick_disk_works() -> None:
    stage = StageByHand()
    assert stage.is_flushed_on_loop()
    assert [stage.is_flushed_on_loop(turn_ms=BUSY_TURN_MS * 2) for _ in range(10)][-1] is False
    assert [stage.is_flushed_on_loop(turn_ms=BUSY_TURN_MS / 2) for _ in range(10)][-1] is True


@pytest.mark.parametrize("recent_flush_ms", [0.0, SLOW_FLUSH_MS * 10])
async def test_a_failed_flush_is_fatal_and_never_counts_as_done(world: World, recent_flush_ms: float) -> None:
    world.flusher.recent_flush_ms = recent_flush_ms
    world.files.failing_syncs.add(SEGMENT)
    world.append()
    world.flusher.request()
    assert isinstance(await world.fatal.get(), FlushFailed)
    assert world.flushed.empty()
    assert world.log.flushed_end_offset == 0
