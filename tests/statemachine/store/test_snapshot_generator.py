"""When snapshots are taken (SN-30 to SN-32), with the process that takes them.

A rule that tests here are named after: SN-31.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest
import structlog

from kraftbase.errors import StorageError
from kraftbase.runtime import AsyncioRuntime, Timer, awaited
from kraftbase.types import Epoch
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch
from snapshot.names import part_name
from snapshot.store import SnapshotStore
from statemachine.store.snapshot_generator import OnTaken, SnapshotConfig, SnapshotGenerator, TakeSnapshot
from statemachine.store.snapshot_process import SnapshotProcess
from statemachine.store.snapshot_worker import TakenSnapshot
from statemachine.store.store import MetadataStore
from tests.snapshot.builders import an_id
from tests.statemachine.builders import CLUSTER_ID, batch, config
from tests.statemachine.snapshots import filled, posix_snapshots, snapshot_of
from tests.statemachine.waiting import turns, until

NEVER_MS = 0
MANY_BYTES = 10**9


@pytest.fixture
def store(database: Path) -> Iterator[MetadataStore]:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        yield store


@asynccontextmanager
async def generating(
    store: MetadataStore,
    snapshots: SnapshotStore,
    max_bytes: int = MANY_BYTES,
    max_interval_ms: int = NEVER_MS,
    take_snapshot: TakeSnapshot | None = None,
) -> AsyncIterator[SnapshotGenerator]:
    """A generator whose snapshots a process takes, unless `take_snapshot` is given."""
    runtime = AsyncioRuntime()
    take_snapshot = take_snapshot or SnapshotProcess(store.path, snapshots.directory, runtime)
    generator = SnapshotGenerator(store, take_snapshot, SnapshotConfig(max_bytes, max_interval_ms), runtime)
    try:
        yield generator
    finally:
        await awaited(lambda on_done: generator.close(partial(on_done, None)))


async def take(generator: SnapshotGenerator) -> TakenSnapshot:
    """The callback of `generator.take`."""
    answer: asyncio.Future[TakenSnapshot] = asyncio.get_running_loop().create_future()

    def on_taken(taken: TakenSnapshot | None, error: BaseException | None) -> None:
        if taken is not None:
            answer.set_result(taken)
        else:
            assert error is not None
            answer.set_exception(error)

    generator.take(on_taken)
    return await answer


class ByHand:
    """Snapshots that the test takes."""

    def __init__(self) -> None:
        self.started: list[OnTaken] = []

    def __call__(self, on_taken: OnTaken) -> ByHand:
        self.started.append(on_taken)
        return self

    def cancel(self) -> None:
        self.started[-1](None, StorageError("given up"))


class Failing(ByHand):
    """No snapshot can be taken, for lack of room, while `is_failing`."""

    def __init__(self, otherwise: TakeSnapshot) -> None:
        super().__init__()
        self.is_failing = True
        self._otherwise = otherwise

    def __call__(self, on_taken: OnTaken) -> Timer:
        if not self.is_failing:
            return self._otherwise(on_taken)
        asyncio.get_running_loop().call_soon(on_taken, None, StorageError("no room"))
        return self


def advance(store: MetadataStore, generator: SnapshotGenerator | None = None, size: int = 10) -> OffsetAndEpoch:
    """Apply one more batch, notify the generator, and name the snapshot that would hold it."""
    store.apply([batch(store.applied_end_offset, [config("a", "x", "v" * size)])])
    if generator is not None:
        generator.applied(store.applied_end_offset)
    return OffsetAndEpoch(epoch=Epoch(1), offset=store.applied_end_offset)


async def test_sn30_one_is_taken_when_enough_was_applied(store: MetadataStore, snapshots: SnapshotStore) -> None:
    async with generating(store, snapshots, max_bytes=2_000) as generator:
        advance(store, generator, 900)
        assert generator._taking is None
        wanted = advance(store, generator, 1_100)
        await until(lambda: snapshots.ids() == (wanted,))
        await until(lambda: generator._taking is None)
        advance(store, generator, 900)  # counted from the last snapshot on (SN-32)
        assert generator._taking is None
        wanted = advance(store, generator, 1_100)
        await until(lambda: snapshots.latest() == wanted)


async def test_sn30_one_is_taken_after_a_while_if_anything_was_applied(
    store: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with generating(store, snapshots, max_interval_ms=10) as generator:
        wanted = advance(store, generator)
        await until(lambda: snapshots.ids() == (wanted,))
        await until(lambda: generator._taking is None)
        generator.leader_changed(LeaderAndEpoch(None, Epoch(2)))
        assert generator._timer is None  # nothing was applied since
        wanted = advance(store, generator)
        await until(lambda: snapshots.latest() == wanted)


async def test_without_a_reason_none_is_taken(store: MetadataStore, snapshots: SnapshotStore) -> None:
    async with generating(store, snapshots) as generator:
        advance(store, generator)
        assert (generator._taking, generator._timer) == (None, None)


async def test_who_asks_gets_one_of_what_is_applied(store: MetadataStore, snapshots: SnapshotStore) -> None:
    async with generating(store, snapshots) as generator:
        wanted = advance(store)
        taken = await take(generator)
        assert (taken.snapshot_id, taken.is_new) == (wanted, True)
        assert (await take(generator)) == taken._replace(is_new=False)


async def test_sn31_one_is_taken_at_a_time_and_who_asks_later_gets_what_was_applied_since(
    store: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = ByHand()
    async with generating(store, snapshots, take_snapshot=by_hand) as generator:
        early = advance(store)
        first = asyncio.create_task(take(generator))
        await until(lambda: len(by_hand.started) == 1)
        late = advance(store)
        second, third = asyncio.create_task(take(generator)), asyncio.create_task(take(generator))
        await turns()
        by_hand.started[0](TakenSnapshot(early, "early", 1, True), None)
        assert (await first).snapshot_id == early
        await until(lambda: len(by_hand.started) == 2)
        by_hand.started[1](TakenSnapshot(late, "late", 1, True), None)
        assert (await second).snapshot_id == (await third).snapshot_id == late
        assert len(by_hand.started) == 2


async def test_a_failure_is_told_to_who_asked_and_logged_else(store: MetadataStore, snapshots: SnapshotStore) -> None:
    Path(snapshots.directory).rmdir()
    Path(snapshots.directory).write_text("in the way")
    async with generating(store, snapshots, max_bytes=1) as generator:
        with structlog.testing.capture_logs() as logs:
            advance(store, generator)
            await until(lambda: bool(logs))
        said = [(line["log_level"], line["event"]) for line in logs]
        assert said == [("error", "snapshot was not taken; it is tried again")]
        assert snapshots.directory in logs[0]["reason"]
        with pytest.raises(StorageError, match="could not be taken"):
            await take(generator)


async def test_after_a_failure_it_waits_before_it_tries_again(store: MetadataStore, snapshots: SnapshotStore) -> None:
    failing = Failing(SnapshotProcess(store.path, snapshots.directory, AsyncioRuntime()))
    async with generating(store, snapshots, max_bytes=1, take_snapshot=failing) as generator:
        advance(store, generator)
        await until(lambda: generator._taking is None)
        assert generator._timer is not None
        failing.is_failing = False
        wanted = advance(store, generator)
        assert generator._taking is None
        generator._timer.cancel()
        generator._time_is_up()
        await until(lambda: snapshots.latest() == wanted)


async def test_a_process_that_dies_is_a_failure(
    store: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with generating(store, snapshots) as generator:
        with pytest.raises(StorageError, match="its process ended with 1"):
            await take(generator)


async def test_a_process_that_cannot_be_started_is_a_failure(
    store: MetadataStore, snapshots: SnapshotStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    async with generating(store, snapshots) as generator:
        with pytest.raises(StorageError, match="its process cannot be started: No such file"):
            await take(generator)
        assert generator._taking is None


async def test_nothing_is_left_of_one_whose_process_was_killed(
    store: MetadataStore, snapshots: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is another attempt each minute: the leftovers of all of them would fill the disk."""
    killed, others = tmp_path / "killed", Path(snapshots.directory, part_name(an_id(5, 3), "0a1b"))
    others.write_bytes(b"a download")
    part = Path(snapshots.directory, part_name(an_id(7, 3), "TOKEN"))
    killed.write_text(f"#!/bin/sh\necho much > $(echo {part} | sed s/TOKEN/$6/)\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(killed))
    async with generating(store, snapshots) as generator:
        with pytest.raises(StorageError, match="its process ended with -9"):
            await take(generator)
    assert list(Path(snapshots.directory).iterdir()) == [others]


async def test_closing_abandons_the_one_that_is_being_taken(
    store: MetadataStore, snapshots: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless, pid = tmp_path / "endless", tmp_path / "pid"
    endless.write_text(f"#!/bin/sh\necho $$ > {pid}.new && mv {pid}.new {pid}\nexec sleep 600\n")
    endless.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(endless))
    async with generating(store, snapshots) as generator:
        asked = asyncio.create_task(take(generator))
        await until(pid.exists)
    with pytest.raises((StorageError, asyncio.CancelledError)):
        await asked
    await until(is_gone(int(pid.read_text())))
    with pytest.raises(StorageError, match="shuts down"):
        await take(generator)
    advance(store, generator)
    assert generator._taking is None


async def test_it_is_told_of_each_one_once_it_is_there(store: MetadataStore, snapshots: SnapshotStore) -> None:
    told: list[OffsetAndEpoch | None] = []
    async with generating(store, snapshots, max_bytes=2_000) as generator:
        generator.tell(lambda: told.append(snapshots.latest()))
        first = advance(store)
        await take(generator)
        assert told == [first]
        second = advance(store)
        await asyncio.gather(take(generator), take(generator))
        assert told == [first, second]
        third = advance(store, generator, 2_100)
        await until(lambda: len(told) > 2)
        await until(lambda: generator._taking is None)
        assert told == [first, second, third]


async def test_of_one_that_could_not_be_taken_nobody_is_told(store: MetadataStore, snapshots: SnapshotStore) -> None:
    told: list[int] = []
    async with generating(store, snapshots, take_snapshot=Failing(ByHand())) as generator:
        generator.tell(lambda: told.append(1))
        with pytest.raises(StorageError):
            await take(generator)
    assert told == []


async def test_a_damaged_one_is_replaced_by_one_of_what_is_applied_now(
    store: MetadataStore, snapshots: SnapshotStore
) -> None:
    told: list[int] = []
    async with generating(store, snapshots) as generator:
        generator.tell(lambda: told.append(1))
        wanted = advance(store)
        generator.replace_damaged()
        generator.replace_damaged()  # another snapshot was damaged, too
        await until(lambda: bool(told))
        await until(lambda: generator._taking is None)
        assert snapshots.ids() == (wanted,)
        assert told == [1]


async def test_a_damaged_one_that_cannot_be_replaced_is_logged(store: MetadataStore, snapshots: SnapshotStore) -> None:
    async with generating(store, snapshots, take_snapshot=Failing(ByHand())) as generator:
        advance(store)
        with structlog.testing.capture_logs() as logs:
            generator.replace_damaged()
            await until(lambda: bool(logs))
        assert [(line["event"], line["reason"]) for line in logs] == [
            ("snapshot was not taken; it is tried again", "the snapshot could not be taken: no room")
        ]
        generator.replace_damaged()  # it waits, as after any failure
        assert generator._taking is None


async def test_a_damaged_one_is_not_replaced_if_there_is_nothing_or_at_a_shutdown(
    store: MetadataStore, snapshots: SnapshotStore
) -> None:
    async with generating(store, snapshots) as generator:
        generator.replace_damaged()
        assert generator._taking is None  # nothing is applied
        advance(store)
        generator.shut_down()
        generator.replace_damaged()
        assert generator._taking is None


async def test_sn32_what_was_applied_before_a_snapshot_was_loaded_does_not_count(
    store: MetadataStore, snapshots: SnapshotStore, tmp_path: Path
) -> None:
    others = posix_snapshots(tmp_path / "others")
    with closing(filled(tmp_path / "other.db", [batch(0, [config("b", "x", "1")] * 100)])) as other:
        point = snapshot_of(other, others)
    async with generating(store, snapshots, max_bytes=2_000) as generator:
        advance(store, generator, 1_500)
        wanted = advance(store)
        assert (await take(generator)).snapshot_id == wanted
        advance(store, generator, 1_500)
        with others.open(point) as reader:
            store.load(reader)
            await awaited(store.use_loaded)
        generator.applied(store.applied_end_offset)
        assert generator._taking is None
        advance(store, generator, 1_500)
        assert generator._taking is None
        wanted = advance(store, generator, 600)
        assert generator._taking is not None  # and not only when as much was applied as before
        await until(lambda: snapshots.latest() == wanted)


def is_gone(process_id: int) -> Callable[[], bool]:
    return lambda: not Path(f"/proc/{process_id}").exists()


def test_the_defaults_are_kafkas() -> None:
    assert SnapshotConfig() == SnapshotConfig(20_971_520, 3_600_000)
