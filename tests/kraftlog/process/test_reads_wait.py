"""A busy node that writes lets reads wait for their turn, and no operation: the figure is `kraftlog bench crowd`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from raft.rpc import admission
from raft.rpc.read_lane import ReadLane
from tests.kraftlog.whole_nodes import WholeNodes

PARTITIONS = 50


class BusyLane(ReadLane):
    """Of a node that is always busy. Its clock is the test's."""

    seconds = 0.0
    opened: list[BusyLane]

    def __init__(self, share: float, written: Callable[[], int]) -> None:
        super().__init__(share, written, now=lambda: self.seconds, busy=lambda: self.seconds)
        self.opened.append(self)


async def test_reads_wait_while_records_are_written_and_operations_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BusyLane, "opened", [], raising=False)
    monkeypatch.setattr(admission, "ReadLane", BusyLane)
    async with WholeNodes(tmp_path) as nodes:
        await nodes.start(1)
        (lane,) = BusyLane.opened
        async with AdminClient([nodes.endpoints[1]], timeout_ms=60_000) as client, living_brokers(client, (1,)):
            lane.seconds += 1.0
            assert (await client.list_topics()).topics == ()  # nothing was written: it does not wait
            lane.seconds += 1.0
            await client.create_topics([NewTopic("a", PARTITIONS, 1)])
            lane.seconds += 1.0
            await client.list_topics()  # it ends a window with more than 10 records in a second
            lane.charge(1_000.0)
            reading = asyncio.create_task(client.list_topics())
            async with asyncio.timeout(100):
                while not lane._waiting:
                    await asyncio.sleep(0.001)
            for name in ("b", "c", "d"):
                await client.create_topics([NewTopic(name, 1, 1)])
            assert not reading.done()
            lane.charge(-1_000.0)
            assert [topic.name for topic in (await reading).topics] == ["a", "b", "c", "d"]
