"""When reads may run: a share of the time while records are written, all of it otherwise."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from raft.rpc.read_lane import BURST_SECONDS, CALL_SECONDS, ReadLane


class Clock:
    """The loop's own time, records that are written at a rate, and how much of a processor is used."""

    def __init__(self, records_per_second: float, busy: float = 1.0) -> None:
        self._rate = records_per_second
        self.busy = busy

    def written(self) -> int:
        return int(asyncio.get_running_loop().time() * self._rate)

    def used(self) -> float:
        return asyncio.get_running_loop().time() * self.busy

    def lane(self) -> ReadLane:
        return ReadLane(0.1, self.written, used=self.used)


async def begun(lane: ReadLane, seconds: float, *, connections: int, read_seconds: float) -> Counter[str]:
    """How many reads each connection began, each in a closed loop."""
    counts: Counter[str] = Counter()

    async def read(connection: str) -> None:
        while True:
            await lane.turn(connection)
            counts[connection] += 1
            lane.charge(read_seconds)
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read(f"c{number}")) for number in range(connections)]
    await asyncio.sleep(seconds)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return counts


async def test_reads_take_their_share_while_records_are_written() -> None:
    lane = Clock(100).lane()
    await asyncio.sleep(0.6)  # a window, in which the writes are noticed
    started = asyncio.get_running_loop().time()
    counts = await begun(lane, 2.0, connections=5, read_seconds=0.009)
    seconds = asyncio.get_running_loop().time() - started
    used = counts.total() * (CALL_SECONDS + 0.009)
    assert used <= BURST_SECONDS + 0.1 * seconds + 6 * 0.01  # one of each may overdraw
    assert counts.total() >= 10


async def test_nothing_waits_while_nothing_is_written() -> None:
    lane = Clock(2).lane()  # NoOps of an idle cluster
    await asyncio.sleep(0.6)
    counts = await begun(lane, 0.5, connections=5, read_seconds=0.009)
    assert counts.total() > 200


async def test_nothing_waits_while_the_node_has_time() -> None:
    lane = Clock(100, busy=0.5).lane()
    await asyncio.sleep(0.6)
    counts = await begun(lane, 0.5, connections=5, read_seconds=0.009)
    assert counts.total() > 200


async def test_who_is_held_back_stays_so_though_the_node_is_idle_then() -> None:
    clock = Clock(100)
    lane = clock.lane()
    await asyncio.sleep(0.6)
    await lane.turn("first")
    lane.charge(BURST_SECONDS + 1.0)
    waiting = asyncio.create_task(lane.turn("a"))
    clock.busy = 0.0  # from the beginning: earlier use no longer counts
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 1.2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.6)
    async with asyncio.timeout(0.05):  # no read waits any more, and there is time
        await lane.turn("b")


async def contended() -> ReadLane:
    """A lane that has noticed writes."""
    lane = Clock(100).lane()
    await asyncio.sleep(0.6)
    await lane.turn("first")
    return lane


async def test_connections_take_turns() -> None:
    lane = await contended()
    order: list[str] = []

    async def read(connection: str) -> None:
        await lane.turn(connection, 0.01)
        order.append(connection)

    lane.charge(BURST_SECONDS + 0.02)
    crowd = [asyncio.create_task(read("crowd")) for _ in range(50)]
    await asyncio.sleep(0)
    alone = asyncio.create_task(read("alone"))
    await asyncio.wait_for(alone, 10)
    assert order.count("crowd") <= 3 + int(CALL_SECONDS > 0)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_who_gives_up_holds_nobody_up() -> None:
    lane = await contended()
    lane.charge(BURST_SECONDS + 0.02)
    gone = asyncio.create_task(lane.turn("a"))
    await asyncio.sleep(0)
    stays = asyncio.create_task(lane.turn("b"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(stays, 10)
    with pytest.raises(asyncio.CancelledError):
        await gone
