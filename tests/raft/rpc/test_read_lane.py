"""When reads may run: a share of the time while records are written, all of it otherwise. In virtual time."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from raft.rpc import read_lane
from raft.rpc.read_lane import BURST_SECONDS, CALL_SECONDS, WINDOW_SECONDS, ReadLane, busy_seconds

SHARE = 0.1


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time passes only while all tasks wait."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(self.Selector(self))

    def time(self) -> float:
        return self.now

    class Selector(selectors.SelectSelector):
        def __init__(self, loop: VirtualLoop) -> None:
            super().__init__()
            self._loop = loop

        def select(self, timeout: float | None = None) -> list[Any]:
            assert timeout is not None, "everybody waits for ever"
            self._loop.now += timeout
            return super().select(0)


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test())

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


class Node:
    """Writes records at a rate, and is busy for a share of the time."""

    def __init__(self, records_per_second: float, busy: float = 1.0) -> None:
        self._rate = records_per_second
        self.busy = busy

    def lane(self) -> ReadLane:
        return ReadLane(SHARE, lambda: int(now() * self._rate), now, lambda: now() * self.busy)


async def looked_at(node: Node) -> ReadLane:
    """Its lane after a first window, in which writes are noticed."""
    lane = node.lane()
    await asyncio.sleep(1.2 * WINDOW_SECONDS)
    await lane.turn("first")
    return lane


async def begun(lane: ReadLane, seconds: float, *, connections: int, read_seconds: float) -> Counter[str]:
    """How many reads each connection began, each in a closed loop."""
    counts: Counter[str] = Counter()

    async def read(connection: str) -> None:
        while True:
            await lane.turn(connection)
            counts[connection] += 1
            lane.charge(read_seconds)
            await asyncio.sleep(read_seconds)

    readers = [asyncio.create_task(read(f"c{number}")) for number in range(connections)]
    await asyncio.sleep(seconds)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return counts


async def waits(lane: ReadLane) -> bool:
    """Whether a read has to wait for its turn."""
    before = now()
    await lane.turn("one")
    lane.charge(2 * BURST_SECONDS)
    return now() > before


@in_virtual_time
async def test_reads_take_their_share_while_records_are_written() -> None:
    lane = await looked_at(Node(100))
    counts = await begun(lane, 20.0, connections=5, read_seconds=0.009)
    share = counts.total() * (CALL_SECONDS + 0.009) / 20.0
    assert share == pytest.approx(SHARE, abs=0.01)
    assert max(counts.values()) - min(counts.values()) <= 2  # connections take turns


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(Node(2), id="NoOps of an idle cluster"),
        pytest.param(Node(100, busy=0.5), id="the node has time"),
    ],
)
def test_nothing_waits(node: Node) -> None:
    async def test() -> None:
        lane = await looked_at(node)
        assert [await waits(lane) for _ in range(10)] == [False] * 10

    in_virtual_time(test)()


@in_virtual_time
async def test_who_is_held_back_stays_so_though_the_node_is_idle_then() -> None:
    node = Node(100)
    lane = await looked_at(node)
    lane.charge(BURST_SECONDS + 1.0)
    waiting = asyncio.create_task(lane.turn("a"))
    node.busy = 0.0  # from the beginning: earlier use no longer counts
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 1.2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(1.2 * WINDOW_SECONDS)
    before = now()
    await lane.turn("b")  # no read waits, and there is time
    assert now() == before


@in_virtual_time
async def test_connections_take_turns() -> None:
    lane = await looked_at(Node(100))
    order: list[str] = []

    async def read(connection: str) -> None:
        await lane.turn(connection, 0.01)
        order.append(connection)

    lane.charge(BURST_SECONDS + 0.02)
    crowd = [asyncio.create_task(read("crowd")) for _ in range(50)]
    await asyncio.sleep(0)
    alone = asyncio.create_task(read("alone"))
    await alone
    assert order.count("crowd") <= 3 + int(CALL_SECONDS > 0)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


@in_virtual_time
async def test_who_gives_up_holds_nobody_up() -> None:
    lane = await looked_at(Node(100))
    lane.charge(BURST_SECONDS + 0.02)
    gone = asyncio.create_task(lane.turn("a"))
    await asyncio.sleep(0)
    stays = asyncio.create_task(lane.turn("b"))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    with pytest.raises(asyncio.CancelledError):
        await gone


# --- how busy this process is -----------------------------------------------------------------------------------------


def test_who_waits_for_a_processor_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor that others fill, a node that always has work to do uses little of it."""
    path = tmp_path / "schedstat"
    path.write_text("925629 3600000000000 3\n")
    monkeypatch.setattr(read_lane, "_SCHEDULING", path)
    assert busy_seconds() - time.process_time() + 0.1 >= 3_600.0
    path.write_text("0 0 3\n")
    assert busy_seconds() <= time.process_time()


@pytest.mark.parametrize("content", [None, ""], ids=["no such file", "nothing in it"])
def test_without_the_kernels_word_its_own_time_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(read_lane, "_SCHEDULING", tmp_path / "schedstat")
    if content is not None:
        (tmp_path / "schedstat").write_text(content)
    before = time.process_time()
    assert before <= busy_seconds() <= time.process_time()
