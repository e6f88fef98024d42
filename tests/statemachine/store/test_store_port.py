"""The contract of the store port: one suite over the store on files and over the simulated one."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio

from kraftbase.runtime import Timer, awaited
from kraftbase.types import Offset
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.quorum.node.database import Database
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.observation.step import Step
from snapshot.store import SnapshotStore
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from statemachine.store.store_port import StorePort
from tests.statemachine.builders import CLUSTER_ID, batch, config, log_of, no_op, topic
from tests.statemachine.machines import machine_on
from tests.statemachine.snapshots import content, filled, posix_snapshots, snapshot_of
from tests.statemachine.store.write_ahead_logs import reading_process

LOG = log_of([[topic("a", 1)], [config("a", "retention.ms", "1"), no_op()], [topic("b", 2)]])


class LoopProcess:
    """The parts of a process that a simulated store needs, on the test's loop: nothing ever ends it."""

    def __init__(self) -> None:
        self.machine = SimpleNamespace(database=Database(CLUSTER_ID, random.Random(1), Marks()), view=SimpleNamespace())
        self.host = SimpleNamespace(marks=Marks(), append_kill_rate=0.0)
        self.step = Step(0, cast(Any, self.machine.view), "test")

    def crash_point(self) -> None:
        """It goes on."""

    def after(self, delay_us: int, label: str, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_us / 1_000_000, callback)


@pytest_asyncio.fixture(params=["files", "simulated"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StorePort]:
    if request.param == "files":
        with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID)) as store:
            yield store
    else:
        process = LoopProcess()
        tables = process.machine.database.open()
        yield SimulatedStore(cast(Any, process), tables, random.Random(1))


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[SnapshotStore]:
    """A snapshot of a store that has applied LOG."""
    snapshots = posix_snapshots(tmp_path / "taken")
    with closing(filled(tmp_path / "source.db", LOG)) as source:
        snapshot_of(source, snapshots)
    yield snapshots


def lock(store: StorePort, tmp_path: Path) -> Callable[[], None]:
    """Prevent `store` from writing; return the function that ends this."""
    if isinstance(store, SimulatedStore):
        database = store.process.machine.database
        database.is_locked = True
        return lambda: setattr(database, "is_locked", False)
    other = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return lambda: (other.execute("ROLLBACK"), other.close())[1]


async def test_a_prepared_run_takes_effect_when_it_is_committed(any_store: StorePort) -> None:
    prepared = any_store.prepare(LOG[:2], removals_max=0, rows_max=1_000)
    assert prepared is not None and prepared.end_offset == LOG[1].end_offset
    assert any_store.applied_end_offset == 0 and content(any_store.reader)["topics"] == []
    any_store.commit(prepared)
    assert any_store.applied_end_offset == LOG[1].end_offset
    assert len(content(any_store.reader)["topics"]) == 1


async def test_a_run_that_is_too_much_is_not_prepared_and_can_be_applied(any_store: StorePort) -> None:
    large = batch(0, [config(f"topic-{number}", "retention.ms", "1") for number in range(2_000)])
    assert any_store.prepare([large], removals_max=0, rows_max=1_000) is None
    any_store.apply([large])
    assert any_store.applied_end_offset == 2_000


async def test_what_was_applied_is_passed_over_and_a_gap_is_refused(any_store: StorePort) -> None:
    any_store.apply(LOG)
    any_store.apply(LOG)
    assert any_store.applied_end_offset == LOG[-1].end_offset
    for refused in (any_store.apply, any_store.prepare):
        with pytest.raises(ReplayError, match="does not follow"):
            refused([batch(LOG[-1].end_offset + 1, [no_op()])])
    assert any_store.applied_end_offset == LOG[-1].end_offset


async def test_while_it_cannot_be_written_nothing_changes_and_then_the_same_run_can(
    any_store: StorePort, tmp_path: Path
) -> None:
    unlock = lock(any_store, tmp_path)
    prepared = any_store.prepare(LOG[:1])
    assert prepared is not None
    with pytest.raises(StoreUnavailable):
        any_store.commit(prepared)
    with pytest.raises(StoreUnavailable):
        any_store.apply(LOG[:1])
    assert any_store.applied_end_offset == 0
    unlock()
    any_store.commit(prepared)
    assert any_store.applied_end_offset == LOG[0].end_offset


async def test_deltas_are_left_while_there_are_publishers(any_store: StorePort) -> None:
    any_store.apply(LOG[:1])
    assert any_store.take_deltas() == []
    any_store.has_publishers = True
    any_store.apply(LOG[1:])
    assert [delta.end_offset for delta in any_store.take_deltas()] == [LOG[-1].end_offset]
    assert any_store.take_deltas() == []


async def test_a_snapshot_takes_its_place_when_it_is_used(any_store: StorePort, taken: SnapshotStore) -> None:
    any_store.apply(LOG[:1])
    with taken.open(taken.ids()[0]) as snapshot:
        any_store.load(snapshot)
        assert any_store.applied_end_offset == LOG[0].end_offset
        await awaited(partial(any_store.use_loaded, unless=lambda: True))
        assert any_store.applied_end_offset == LOG[0].end_offset
        any_store.load(snapshot)
        await awaited(partial(any_store.use_loaded, unless=lambda: False))
    assert any_store.applied_end_offset == LOG[-1].end_offset
    assert len(content(any_store.reader)["topics"]) == 2
    any_store.apply([batch(LOG[-1].end_offset, [topic("c", 3)])])
    assert len(content(any_store.reader)["topics"]) == 3


async def test_nothing_is_rotten_in_what_was_applied(any_store: StorePort) -> None:
    any_store.apply(LOG)
    assert any_store.find_corruption() is None


async def test_what_grows_starts_over_unless_a_reader_keeps_it(any_store: StorePort, tmp_path: Path) -> None:
    log = any_store.write_ahead_log
    if isinstance(any_store, SimulatedStore):
        any_store.apply(LOG[:1])
        assert log.size_bytes > 0
        any_store.process.machine.database.is_held = True
        log.copy()
        assert not log.start_over() and log.size_bytes > 0
        any_store.process.machine.database.is_held = False
    else:
        any_store.apply(LOG[:1])
        assert log.size_bytes > 0
        with reading_process(tmp_path / "metadata.db"):
            any_store.apply(LOG[1:2])
            log.copy()
            assert not log.start_over() and log.size_bytes > 0
    assert log.start_over()
    assert log.size_bytes == 0
    assert not log.is_due and not log.is_large and not log.is_full
    log.check_bound()


async def test_a_machine_runs_over_it(any_store: StorePort) -> None:
    """The whole way: a run, a wait for it, a shutdown."""
    machine = machine_on(cast(MetadataStore, any_store))
    done: list[BaseException | None] = []
    waited: list[BaseException | None] = []
    machine.wait_applied(Offset(LOG[-1].end_offset), 20_000, waited.append)
    machine.handle_commit(tuple(one.encoded for one in LOG), done.append)
    await _until_called(done)
    assert done == [None] and waited == [None]
    assert machine.applied_end_offset == LOG[-1].end_offset
    await awaited(machine.begin_shutdown)


async def _until_called(calls: list[BaseException | None]) -> None:
    async with asyncio.timeout(20):
        while not calls:
            await asyncio.sleep(0)
