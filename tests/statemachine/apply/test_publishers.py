"""Publishers of the state machine: their calls, the times of these, and that they delay no other subscriber (CT-64)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import structlog

from kraftbase.types import Offset
from snapshot.store import SnapshotStore
from statemachine.apply.machine import MetadataMachine
from statemachine.replay.deltas import MetadataDelta, delta_of
from statemachine.store.store import MetadataStore
from tests.statemachine.apply.test_machine import LARGE, running
from tests.statemachine.apply.test_machine_loading import newest
from tests.statemachine.builders import batch, broker, log_of, no_op, partition, remove_topic, topic
from tests.statemachine.machines import deliver, load
from tests.statemachine.replay.test_transactions import ABORT, BEGIN
from tests.statemachine.snapshots import filled, posix_snapshots, snapshot_of
from tests.statemachine.waiting import until


def brokers(metadata: sqlite3.Connection) -> list[int]:
    return [broker_id for (broker_id,) in metadata.execute("SELECT broker_id FROM brokers ORDER BY broker_id")]


class Follower:
    """Records its calls: which brokers it saw, which changed, and how far the store was then."""

    def __init__(self, machine: MetadataMachine, store: MetadataStore) -> None:
        self.told: list[tuple[str, int, list[int]]] = []
        self.deltas: list[MetadataDelta] = []
        self.stored: list[int] = []
        self._store = store
        machine.install_publisher(self)

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        self.told.append(("snapshot", end_offset, brokers(metadata)))

    def on_delta(self, delta: MetadataDelta) -> None:
        self.deltas.append(delta)
        self.told.append(
            ("delta", delta.end_offset, [change.after.broker_id for change in delta.brokers if change.after])
        )
        self.stored.append(self._store.reader.execute("SELECT end_offset FROM applied").fetchone()[0])


class Failing:
    """Fails on every delta."""

    def on_snapshot(self, end_offset: Offset, metadata: sqlite3.Connection) -> None:
        """It takes a snapshot."""

    def on_delta(self, delta: MetadataDelta) -> None:
        raise RuntimeError("no idea")


async def test_a_watcher_looks_at_the_state_and_is_told_each_change_in_order_after_its_transaction(
    store: MetadataStore,
) -> None:
    first, *others = log_of([[broker(1)], [broker(2), broker(3)], [broker(4)], [broker(5)]])
    store.apply([first])
    async with running(store) as machine:
        follower = Follower(machine, store)
        await deliver(machine, others[0], others[1])
        await deliver(machine, others[0], others[1])  # once more: they are applied already
        await deliver(machine, others[2])
        assert follower.told == [("snapshot", 1, [1]), ("delta", 4, [2, 3, 4]), ("delta", 5, [5])]
        assert follower.stored == [4, 5]


async def test_nothing_is_told_of_runs_without_effect_and_of_aborted_transactions(store: MetadataStore) -> None:
    async with running(store) as machine:
        follower = Follower(machine, store)
        for one in log_of([[no_op()], [BEGIN, broker(1)], [broker(2)], [ABORT], [broker(3)]]):
            await deliver(machine, one)
        assert follower.told == [("snapshot", 0, []), ("delta", 6, [3])]


async def test_who_comes_while_a_run_is_applied_begins_after_it(store: MetadataStore) -> None:
    async with running(store) as machine:
        large, small = log_of([[broker(1), *LARGE], [broker(2)]])
        delivering = asyncio.create_task(deliver(machine, large))
        await asyncio.sleep(0)
        assert not delivering.done()
        follower = Follower(machine, store)
        assert follower.told == []
        await delivering
        await deliver(machine, small)
        end_offset = 1 + len(LARGE)
        assert follower.told == [("snapshot", end_offset, [1]), ("delta", end_offset + 1, [2])]


async def test_a_run_that_has_to_wait_is_told_once(store: MetadataStore, database: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 10)
    async with running(store) as machine:
        follower = Follower(machine, store)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            delivering = asyncio.create_task(deliver(machine, batch(0, [broker(1)])))
            await until(lambda: machine.unavailable_reason is not None)
            assert follower.told == [("snapshot", 0, [])]
            other.execute("ROLLBACK")
            await delivering
        assert follower.told[1:] == [("delta", 1, [1])]


async def test_the_loop_runs_on_while_the_delta_of_a_large_topic_is_made(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 10_000
    store.apply([batch(0, [topic("large", 1), *(partition(1, number) for number in range(count))])])
    async with running(store) as machine:
        follower = Follower(machine, store)
        made_in: list[threading.Thread] = []

        def noting(*arguments: Any) -> MetadataDelta:
            made_in.append(threading.current_thread())
            return delta_of(*arguments)

        monkeypatch.setattr("statemachine.store.metadata_tables.delta_of", noting)
        await deliver(machine, batch(1 + count, [remove_topic(1)]))
        (delta,) = follower.deltas
        assert len(delta.partitions) == count
        assert all(change.after is None for change in delta.partitions)
        assert made_in and threading.current_thread() not in made_in


async def test_a_watcher_that_fails_is_told_nothing_more_and_nobody_else_suffers(store: MetadataStore) -> None:
    async with running(store) as machine:
        failing = Failing()
        machine.install_publisher(failing)
        follower = Follower(machine, store)
        with structlog.testing.capture_logs() as logs:
            for one in log_of([[broker(1)], [broker(2)]]):
                await deliver(machine, one)
        assert [told[2] for told in follower.told] == [[], [1], [2]]
        assert len([line for line in logs if "publisher failed" in line["event"]]) == 1
        machine.remove_publisher(follower)
        assert not store.has_publishers


async def test_when_the_only_watcher_has_failed_nobody_watches(store: MetadataStore) -> None:
    async with running(store) as machine:
        machine.install_publisher(Failing())
        await deliver(machine, batch(0, [broker(1)]))
        assert not store.has_publishers


async def test_who_watches_no_more_is_told_nothing_and_costs_nothing(store: MetadataStore) -> None:
    async with running(store) as machine:
        follower, other = Follower(machine, store), Follower(machine, store)
        machine.remove_publisher(follower)
        machine.remove_publisher(follower)
        assert store.has_publishers
        await deliver(machine, batch(0, [broker(1)]))
        machine.remove_publisher(other)
        assert not store.has_publishers
        await deliver(machine, batch(1, [broker(2)]))
        assert (len(follower.deltas), len(other.deltas)) == (0, 1)


async def test_nobody_watches_twice(store: MetadataStore) -> None:
    async with running(store) as machine:
        follower = Follower(machine, store)
        with pytest.raises(ValueError, match="installed already"):
            machine.install_publisher(follower)


async def test_a_snapshot_that_is_loaded_is_to_be_looked_at_and_deltas_go_on_from_there(
    store: MetadataStore, tmp_path: Path
) -> None:
    snapshots: SnapshotStore = posix_snapshots(tmp_path / "snapshots")
    *loaded, last = log_of([[broker(1)], [broker(2)], [broker(3)]])
    with closing(filled(tmp_path / "source.db", loaded)) as source:
        snapshot_of(source, snapshots)
    async with running(store) as machine:
        follower = Follower(machine, store)
        await deliver(machine, loaded[0])
        await load(machine, newest(snapshots))
        await deliver(machine, last)
        assert follower.told == [("snapshot", 0, []), ("delta", 1, [1]), ("snapshot", 2, [1, 2]), ("delta", 3, [3])]


async def test_who_comes_while_a_snapshot_is_loaded_looks_at_that_once(store: MetadataStore, tmp_path: Path) -> None:
    snapshots = posix_snapshots(tmp_path / "snapshots")
    with closing(filled(tmp_path / "source.db", log_of([[broker(1)]]))) as source:
        snapshot_of(source, snapshots)
    async with running(store) as machine:
        loading = asyncio.create_task(load(machine, newest(snapshots)))
        await asyncio.sleep(0)
        follower = Follower(machine, store)
        await loading
        assert follower.told == [("snapshot", 1, [1])]
