"""A snapshot handed to the state machine, at its start or while it runs (SN-60 to SN-63 on the listener's side)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, CorruptSnapshot, ErrorCode, OutOfSpace, StorageError
from kraftbase.runtime import OnDone, awaited
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import LeaderAndEpoch, StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.apply.machine import MetadataMachine
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from tests.effort import examples
from tests.kraftlog.controller.memory_log import MemoryLog
from tests.snapshot.builders import overwrite
from tests.statemachine.apply.test_machine import LARGE, Told, running
from tests.statemachine.builders import CLUSTER_ID, batch, log_of, no_op, topic
from tests.statemachine.machines import deliver, load, machine_on, wait_applied
from tests.statemachine.snapshots import RUNS, content, filled, posix_snapshots, snapshot_of
from tests.statemachine.store.test_store_model import RUNS as ANY_RUNS
from tests.statemachine.store.test_store_model import possible
from tests.statemachine.waiting import turns, until

LOG = log_of([*RUNS, [no_op()] * 1_500])
END = LOG[-1].end_offset
EXPECTED = StateDigest(Offset(1_000), bytes(16))
OWN = StateDigest(Offset(1_000), bytes([7]) * 16)


@pytest.fixture
def source(snapshots: SnapshotStore, tmp_path: Path) -> Iterator[MetadataStore]:
    """A store that has applied LOG, and of which there is a snapshot."""
    with closing(filled(tmp_path / "source.db", LOG)) as source:
        snapshot_of(source, snapshots)
        yield source


def newest(snapshots: SnapshotStore) -> SnapshotReader:
    """The newest one, open."""
    snapshot_id = snapshots.latest()
    assert snapshot_id is not None
    return snapshots.open(snapshot_id)


class Held:
    """Holds `store.load` in its thread until the test releases it."""

    def __init__(self, store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun = threading.Event()
        self.goes_on = threading.Event()
        self.load = store.load
        monkeypatch.setattr(store, "load", self._load)

    def _load(self, reader: SnapshotReader) -> None:
        self.has_begun.set()
        assert self.goes_on.wait(20)
        self.load(reader)


async def test_sn60_a_call_is_done_once_the_snapshot_is_in_the_databases_place(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with running(store) as machine:
        handed = newest(snapshots)
        await load(machine, handed)
        assert machine.applied_end_offset == store.applied_end_offset == END
        assert content(store.reader) == content(source.reader)
        assert machine.unavailable_reason is None


async def test_sn63_the_same_one_may_come_again(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with running(store) as machine:
        for _ in range(2):
            handed = newest(snapshots)
            await load(machine, handed)
            assert content(store.reader) == content(source.reader)


async def test_who_waits_for_an_offset_below_the_snapshots_end_is_told(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with running(store) as machine:
        waiting = [asyncio.create_task(wait_applied(machine, Offset(end), 20_000)) for end in (1, END, END + 1)]
        await turns()
        await load(machine, newest(snapshots))
        await asyncio.gather(*waiting[:2])
        assert not waiting[2].done()
        await deliver(machine, batch(END, [no_op()]))
        await waiting[2]


async def test_subscribers_are_told_when_reads_see_it(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with running(store) as machine:
        await deliver(machine, LOG[0])
        told = Told(store)
        machine.subscribe(told)
        await load(machine, newest(snapshots))
        assert told.offsets == [(END, END)]


async def test_what_the_snapshots_state_came_to_is_reported(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    reported: list[StateDigest] = []
    async with running(store) as machine:
        machine.set_state_digest_callback(reported.append)
        await load(machine, newest(snapshots))
        assert source.state_digest is not None
        assert reported == [source.state_digest]
        await awaited(partial(machine.handle_leader_change, LeaderAndEpoch(None, Epoch(1))))
        assert reported == [source.state_digest]
        await deliver(machine, batch(END, [no_op()] * 600))
        source.apply([batch(END, [no_op()] * 600)])
        assert reported[1:] == [source.state_digest]


async def test_a_snapshot_of_less_than_nodes_compare_has_nothing_to_report(
    store: MetadataStore, snapshots: SnapshotStore, tmp_path: Path
) -> None:
    with closing(filled(tmp_path / "short.db")) as short:
        snapshot_of(short, snapshots)
    reported: list[StateDigest] = []
    async with running(store) as machine:
        machine.set_state_digest_callback(reported.append)
        await load(machine, newest(snapshots))
    assert reported == []


async def test_reads_see_the_state_before_until_it_is_loaded_and_the_loop_runs_on(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store) as machine:
        await deliver(machine, LOG[0])
        before, after = content(store.reader), content(source.reader)
        held = Held(store, monkeypatch)
        loading = asyncio.create_task(load(machine, newest(snapshots)))
        await until(held.has_begun.is_set)
        assert content(store.reader) == await store.query(content) == before
        assert machine.applied_end_offset == LOG[0].end_offset
        held.goes_on.set()
        seen: list[Any] = []
        while not loading.done():
            seen += [content(store.reader), await store.query(content)]
        assert all(each in (before, after) for each in seen)
        assert content(store.reader) == await store.query(content) == after


async def test_what_comes_next_is_applied_at_the_snapshots_end(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    later = [batch(END, [topic("later", 8)]), batch(END + 1, LARGE)]
    async with running(store) as machine:
        await load(machine, newest(snapshots))
        await deliver(machine, *LOG, *later[:1])  # batches below its end are skipped
        assert machine.applied_end_offset == END + 1
        await deliver(machine, *later)
        assert machine.applied_end_offset == later[-1].end_offset
        with pytest.raises(ReplayError, match="does not follow"):
            await deliver(machine, batch(later[-1].end_offset + 1, [no_op()]))
        with pytest.raises(ReplayError, match="not of this log"):
            await deliver(machine, batch(0, [no_op()], epoch=2))
    source.apply(later)
    assert content(store.reader) == content(source.reader)
    assert store.applied == source.applied


@settings(max_examples=examples(25), deadline=None)
@given(runs=ANY_RUNS, data=st.data())
def test_a_snapshot_and_the_log_behind_it_come_to_what_the_whole_log_does(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[MetadataRecord]], data: st.DataObject
) -> None:
    """Invariant 31, for a machine that had applied any part of the log before."""
    log = log_of(possible(runs))
    before = data.draw(st.integers(0, len(log)), "applied before")
    cut = data.draw(st.integers(max(1, before), len(log)), "in the snapshot")
    asyncio.run(_compare(tmp_path_factory.mktemp("any"), log, before, cut))


async def _compare(path: Path, log: Sequence[CommittedBatch], before: int, cut: int) -> None:
    snapshots = posix_snapshots(path / "snapshots")
    with (
        closing(filled(path / "whole.db", log[:cut])) as whole,
        closing(MetadataStore.open(path / "metadata.db", CLUSTER_ID)) as store,
    ):
        snapshot_of(whole, snapshots)
        whole.apply(log)
        async with running(store) as machine:
            if before:
                await deliver(machine, *log[:before])
            await load(machine, newest(snapshots))
            if log[cut:]:
                await deliver(machine, *log[cut:])
            assert machine.applied_end_offset == log[-1].end_offset
        assert store.applied == whole.applied
        assert store.state_digest == whole.state_digest
        assert content(store.reader) == content(whole.reader)


# --- a fence ----------------------------------------------------------------------------------------------------------


async def test_a_machine_that_is_fenced_already_loads_nothing(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store) as machine:
        await deliver(machine, LOG[0])
        told = Told(store)
        machine.subscribe(told)
        held = Held(store, monkeypatch)
        machine.fence(EXPECTED, OWN)
        handed = newest(snapshots)
        await load(machine, handed)
        assert not held.has_begun.is_set()
        assert store.applied_end_offset == machine.applied_end_offset == LOG[0].end_offset
        assert told.offsets == []


async def test_a_fence_while_it_is_loaded_keeps_it_out_and_the_next_start_sets_the_database_aside(
    database: Path, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[StateDigest] = []
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        async with running(store) as machine:
            machine.set_state_digest_callback(reported.append)
            await deliver(machine, LOG[0])
            told = Told(store)
            machine.subscribe(told)
            held = Held(store, monkeypatch)
            handed = newest(snapshots)
            loading = asyncio.create_task(load(machine, handed))
            await until(held.has_begun.is_set)
            machine.fence(EXPECTED, OWN)
            held.goes_on.set()
            await loading
            assert store.applied_end_offset == machine.applied_end_offset == LOG[0].end_offset
            assert (told.offsets, reported) == ([], [])
    _is_set_aside_at_the_next_start(database)


async def test_a_fence_while_the_last_query_is_waited_for_keeps_it_out_too(
    database: Path, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the mark that has the next start set the database aside would be lost with it."""
    goes_on, is_running = threading.Event(), threading.Event()

    def slow(_: object) -> bool:
        is_running.set()
        return goes_on.wait(20)

    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        async with running(store) as machine:
            await deliver(machine, LOG[0])
            query = asyncio.create_task(store.query(slow))
            await until(is_running.is_set)
            handed = newest(snapshots)
            is_waiting = asyncio.Event()
            use_loaded = store.use_loaded

            def noted_use_loaded(on_done: OnDone, *, unless: Callable[[], bool]) -> None:
                is_waiting.set()
                use_loaded(on_done, unless=unless)

            monkeypatch.setattr(store, "use_loaded", noted_use_loaded)
            loading = asyncio.create_task(load(machine, handed))
            await is_waiting.wait()
            await turns()
            machine.fence(EXPECTED, OWN)
            goes_on.set()
            assert await query
            await loading
            assert store.applied_end_offset == machine.applied_end_offset == LOG[0].end_offset
    _is_set_aside_at_the_next_start(database)


def _is_set_aside_at_the_next_start(database: Path) -> None:
    forgotten: list[bool] = []
    with closing(MetadataStore.open(database, CLUSTER_ID, forget_snapshots=lambda: forgotten.append(True))) as store:
        assert store.applied_end_offset == 0
    assert forgotten == [True]


# --- obstacles --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def failing(
    store: MetadataStore, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[int]]:
    """The store's method of that name raises until the context is left; counts how often."""
    failures: list[int] = []
    monkeypatch.setattr("statemachine.apply.snapshot_loader.LOADING_PAUSE_MS", 1)
    with monkeypatch.context() as patches:

        def fail(*_: object, **__: object) -> None:
            failures.append(1)
            raise error

        patches.setattr(store, name, fail)
        yield failures


@pytest.mark.parametrize("error", [StoreUnavailable("somebody has locked it"), OutOfSpace("no room at all")])
async def test_what_passes_is_waited_out(
    store: MetadataStore,
    source: MetadataStore,
    snapshots: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    async with running(store) as machine:
        await deliver(machine, LOG[0])
        handed = newest(snapshots)
        async with failing(store, "load", error, monkeypatch) as failures:
            loading = asyncio.create_task(load(machine, handed))
            await until(lambda: len(failures) >= 3)
            assert machine.unavailable_reason == str(error)
            assert not loading.done()
            assert store.applied_end_offset == machine.applied_end_offset == LOG[0].end_offset
        await loading
        assert machine.unavailable_reason is None
        assert content(store.reader) == content(source.reader)


async def test_it_is_not_tried_again_at_once(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store) as machine:
        async with failing(store, "load", OutOfSpace("no room"), monkeypatch) as failures:
            monkeypatch.setattr("statemachine.apply.snapshot_loader.LOADING_PAUSE_MS", 600_000)
            loading = asyncio.create_task(load(machine, newest(snapshots)))
            await until(lambda: bool(failures))
            await asyncio.sleep(0.05)
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        assert len(failures) == 1


async def test_a_fence_ends_the_waiting(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store) as machine:
        handed = newest(snapshots)
        async with failing(store, "load", OutOfSpace("no room"), monkeypatch) as failures:
            loading = asyncio.create_task(load(machine, handed))
            await until(lambda: bool(failures))
            machine.fence(EXPECTED, OWN)
            async with asyncio.timeout(100):
                await loading
        assert store.applied_end_offset == 0


async def test_a_damaged_snapshot_is_raised_and_leaves_everything_as_it_was(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore
) -> None:
    (snapshot_id,) = snapshots.ids()
    path = Path(snapshots.path_of(snapshot_id))
    overwrite(path, path.read_bytes()[:-1])
    async with running(store) as machine:
        await deliver(machine, LOG[0])
        told = Told(store)
        machine.subscribe(told)
        before = content(store.reader)
        handed = newest(snapshots)
        with pytest.raises(CorruptSnapshot):
            async with asyncio.timeout(100):
                await load(machine, handed)
        assert content(store.reader) == before
        assert machine.applied_end_offset == LOG[0].end_offset
        assert told.offsets == []
        assert not list(store.path.parent.glob("*.new*"))
        await deliver(machine, LOG[1])
        assert machine.applied_end_offset == LOG[1].end_offset


async def test_any_other_error_is_raised(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(store) as machine, failing(store, "load", StorageError("the disk is broken"), monkeypatch):
        with pytest.raises(StorageError, match="the disk is broken"):
            async with asyncio.timeout(100):
                await load(machine, newest(snapshots))


async def test_a_shutdown_in_the_middle_lets_the_thread_finish_and_keeps_the_old_one(
    database: Path, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        machine = machine_on(store)
        await deliver(machine, LOG[0])
        held = Held(store, monkeypatch)
        loaded: list[BaseException | None] = []
        with newest(snapshots) as snapshot:
            machine.handle_load_snapshot(snapshot, loaded.append)
            await until(held.has_begun.is_set)
            waiting = asyncio.create_task(wait_applied(machine, END, 20_000))
            await turns()
            stopping = asyncio.create_task(awaited(machine.begin_shutdown))
            await turns()
            assert not stopping.done(), "the thread still reads the file, which the node closes when this is over"
            held.goes_on.set()
            await stopping
        assert loaded == []
        with pytest.raises(ApiError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == LOG[0].end_offset
    assert not list(database.parent.glob("*.new*"))


# --- fed as by a node -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fed(
    store: MetadataStore, snapshots: SnapshotStore, log_start_offset: int, start_offset: int | None
) -> AsyncIterator[tuple[MetadataMachine, MemoryLog]]:
    faults: list[BaseException] = []
    log = MemoryLog(faults.append)
    log.batches = [each._batch for each in LOG]
    log.snapshots = snapshots
    log.log_start_offset = Offset(log_start_offset)
    machine = machine_on(store)
    log.register(machine, start_offset=None if start_offset is None else Offset(start_offset))
    try:
        yield machine, log
    finally:
        await log.close()
    assert faults == []


@pytest.mark.parametrize("start_offset", [None, LOG[0].end_offset], ids=["new", "behind the log's start"])
async def test_sn60_a_machine_that_the_log_does_not_reach_back_to_begins_with_the_snapshot(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, start_offset: int | None
) -> None:
    if start_offset is not None:
        store.apply(LOG[:1])
    async with fed(store, snapshots, END, start_offset) as (machine, log):
        log.lead()
        await wait_applied(machine, Offset(END + 1), 20_000)
        assert content(store.reader)["topics"] == content(source.reader)["topics"]


async def test_sn62_a_machine_that_keeps_up_sees_no_snapshot(
    store: MetadataStore, source: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply(LOG[:1])
    monkeypatch.setattr(store, "load", None)
    async with fed(store, snapshots, 0, LOG[0].end_offset) as (machine, log):
        log.lead()
        await wait_applied(machine, Offset(END + 1), 20_000)
