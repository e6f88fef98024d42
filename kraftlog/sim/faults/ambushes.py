"""What nodes do with snapshots, and what happens to them in the middle of it: marks that prove it, and ambushes.

The work is the production code's. It is watched from outside, for as long as a run lasts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from kraftbase.errors import OutOfSpace
from kraftlog.sim.node.apply_loop import Applying
from kraftlog.sim.node.process import Process
from kraftlog.sim.virtual.crash import ProcessKilled
from raft.shell import snapshot_start
from raft.storage.segmented_log import SegmentedLog
from snapshot.incoming import IncomingSnapshot
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter

if TYPE_CHECKING:
    from kraftlog.sim.world import World


class Work(StrEnum):
    """Something that takes several steps on a disk, and may end after any of them."""

    WRITES = "a snapshot is written"
    RECEIVES = "a snapshot is received"
    BEGINS_ANEW = "the log begins anew"
    MOVES_START = "the log start moves on"
    LOADS = "the state machine loads a snapshot"


NEEDS_ROOM: Final = (Work.WRITES, Work.RECEIVES)

_METHODS: Final[tuple[tuple[Any, str, Work], ...]] = (
    (SnapshotStore, "create", Work.WRITES),
    (SnapshotWriter, "append", Work.WRITES),
    (SnapshotWriter, "freeze", Work.WRITES),
    (SnapshotStore, "receive", Work.RECEIVES),
    (IncomingSnapshot, "append", Work.RECEIVES),
    (IncomingSnapshot, "freeze", Work.RECEIVES),
    (SegmentedLog, "start_anew", Work.BEGINS_ANEW),
    (SegmentedLog, "advance_start", Work.MOVES_START),
)

BEGUN_AT_START: Final = "recovery: a log began anew behind a snapshot that had come before"


@contextlib.contextmanager
def watching_work(world: World) -> Iterator[None]:
    """Mark what ends in the middle, and let ambushes happen, for as long as this lasts."""
    with contextlib.ExitStack() as stack:
        for owner, name, work in _METHODS:
            watched = _watched(world, getattr(owner, name), work)
            stack.enter_context(mock.patch.object(owner, name, watched))
        stack.enter_context(mock.patch.object(Applying, "_load", _watched_load(world, Applying._load)))
        begin = _watched_begin(world, snapshot_start._begin_behind_newest)
        stack.enter_context(mock.patch.object(snapshot_start, "_begin_behind_newest", begin))
        yield


def _watched(world: World, method: Callable[..., Any], work: Work) -> Callable[..., Any]:
    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        with _doing(world, _process_on(world, self._files), work):
            return method(self, *arguments, **named)

    return watched


def _watched_load(world: World, method: Callable[..., Any]) -> Callable[..., Any]:
    def watched(self: Applying, reader: Any) -> None:
        if reader is None:
            method(self, reader)
            return
        with _doing(world, self.process, Work.LOADS):
            method(self, reader)

    return watched


def _watched_begin(world: World, function: Callable[..., None]) -> Callable[..., None]:
    def watched(log: SegmentedLog, *arguments: Any) -> None:
        start = log.start
        function(log, *arguments)
        if log.start != start:
            world.marks.hit(BEGUN_AT_START)

    return watched


def _process_on(world: World, files: object) -> Process | None:
    return next((machine.process for machine in world.machines.values() if machine.disk.files is files), None)


@contextlib.contextmanager
def _doing(world: World, process: Process | None, work: Work) -> Iterator[None]:
    spring = None if process is None else process.machine.ambushes.pop(work, None)
    if process is not None and spring is not None:
        spring(process)
    try:
        yield
    except ProcessKilled:
        world.marks.hit(f"killed while {work}")
        raise
    except OutOfSpace:
        world.marks.hit(f"no room while {work}")
        raise
