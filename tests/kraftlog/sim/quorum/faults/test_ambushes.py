"""Work on a snapshot that is interrupted is marked, and an ambush strikes once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftbase.errors import OutOfSpace
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.quorum.faults.ambushes import NEEDS_ROOM, STARTED_OVER_AT_START, SnapshotWork, watching_snapshot_work
from kraftlog.sim.quorum.marks import SNAPSHOTS
from kraftlog.sim.quorum.node.store import SimulatedStore
from kraftlog.sim.quorum.world import World
from raft.shell import reconcile
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import SegmentedLog
from tests.kraftlog.sim.quorum.invariants.builders import at
from tests.snapshot.builders import HEADER_OF_TESTS, open_store, snapshot_bytes, write_snapshot


class Story:
    """A machine with a log and snapshots, on which things are done until they are killed."""

    def __init__(self) -> None:
        self.files = MemoryFileSystem()
        self.log = SegmentedLog.open(self.files, "log")
        self.log.append([encode_batch(Offset(0), Epoch(1), encode_body([b"record"]), 1, 0)])
        self.log.flush()
        self.snapshots = open_store(self.files)
        self.marks = Marks()
        self.machine = SimpleNamespace(disk=SimpleNamespace(files=self.files), ambushes={})
        self.machine.process = SimpleNamespace(machine=self.machine)
        self.world = cast(World, SimpleNamespace(machines={1: self.machine}, marks=self.marks))

    def operations(self, work: SnapshotWork) -> int:
        """Do it undisturbed; how many operations that were."""
        count = 0

        def note(operation: str, path: str) -> None:
            nonlocal count
            count += 1

        self.files.before_operation = note
        DOING[work](self)
        return count

    def kill_after(self, count: int) -> None:
        """Have the process killed at the operation after this many."""
        left = count

        def before(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ProcessKilled

        self.files.before_operation = before


def write(story: Story) -> None:
    write_snapshot(story.snapshots, at(1))


def receive(story: Story) -> None:
    incoming = story.snapshots.receive(at(5), HEADER_OF_TESTS.cluster_id)
    assert incoming is not None
    incoming.append(snapshot_bytes(at(5)))
    incoming.freeze()


DOING: dict[SnapshotWork, Callable[[Story], None]] = {
    SnapshotWork.WRITES: write,
    SnapshotWork.RECEIVES: receive,
    SnapshotWork.REPLACES_LOG: lambda story: story.log.truncate_fully_and_start_at(at(5)),
    SnapshotWork.MOVES_START: lambda story: story.log.advance_start(at(1)),
}


@pytest.mark.parametrize("work", DOING)
def test_a_kill_before_every_operation_is_marked(work: SnapshotWork) -> None:
    count = Story().operations(work)
    assert count >= 4
    for step in range(count):
        story = Story()
        story.kill_after(step)
        with watching_snapshot_work(story.world), suppress(ProcessKilled):
            DOING[work](story)
        assert story.marks.counts == {f"killed while {work}": 1}


@pytest.mark.parametrize("work", DOING)
def test_what_comes_to_its_end_is_not(work: SnapshotWork) -> None:
    story = Story()
    with watching_snapshot_work(story.world):
        DOING[work](story)
    assert not story.marks.counts


@pytest.mark.parametrize("work", NEEDS_ROOM)
def test_no_room_is_marked(work: SnapshotWork) -> None:
    story = Story()
    story.files.space_limit = story.files.used_bytes() + 50
    with watching_snapshot_work(story.world), pytest.raises(OutOfSpace):
        DOING[work](story)
    assert set(story.marks.counts) == {f"no room while {work}"}


@pytest.mark.parametrize("work", DOING)
def test_who_lies_in_wait_strikes_once_and_at_nothing_else(work: SnapshotWork) -> None:
    story = Story()
    struck: list[Any] = []
    story.machine.ambushes[work] = struck.append
    with watching_snapshot_work(story.world):
        for other in DOING:
            if other is not work and other is not SnapshotWork.REPLACES_LOG:
                DOING[other](story)
        assert not struck
        DOING[work](story)
    assert struck == [story.machine.process]
    assert not story.machine.ambushes


@pytest.mark.parametrize("name", ["load", "put_in_place"])
def test_a_kill_while_a_state_machine_loads_is_marked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def killed(self: SimulatedStore, *_: object) -> None:
        raise ProcessKilled

    monkeypatch.setattr(SimulatedStore, name, killed)
    story = Story()
    store = cast(SimulatedStore, SimpleNamespace(process=story.machine.process))
    with watching_snapshot_work(story.world), pytest.raises(ProcessKilled):
        getattr(SimulatedStore, name)(store)
    assert story.marks.counts == {f"killed while {SnapshotWork.LOADS}": 1}


def test_a_log_that_begins_anew_at_a_start_is_marked() -> None:
    story = Story()
    receive(story)
    with watching_snapshot_work(story.world):
        assert reconcile.reconcile_log_and_snapshots(story.log, story.snapshots, HEADER_OF_TESTS.cluster_id, Offset(0))
        assert story.log.start == at(5)
        assert story.marks.counts == {STARTED_OVER_AT_START: 1}
        assert reconcile.reconcile_log_and_snapshots(story.log, story.snapshots, HEADER_OF_TESTS.cluster_id, Offset(0))
    assert story.marks.counts == {STARTED_OVER_AT_START: 1}


def test_every_sweep_must_hit_what_is_marked_here() -> None:
    marks = [f"killed while {work}" for work in SnapshotWork] + [f"no room while {work}" for work in NEEDS_ROOM]
    assert set(SNAPSHOTS) > {*marks, STARTED_OVER_AT_START}


def test_nothing_is_watched_when_it_is_over() -> None:
    method = SegmentedLog.truncate_fully_and_start_at
    with watching_snapshot_work(Story().world):
        assert SegmentedLog.truncate_fully_and_start_at is not method
    assert SegmentedLog.truncate_fully_and_start_at is method
