"""Faults during work on snapshots: ambushes that trigger them, and marks that show that they happened.

The work is done by production code, whose methods are wrapped while a run lasts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final
from unittest import mock

from kraftbase.errors import OutOfSpace
from kraftlog.sim.engine.virtual.crash import ProcessKilled
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from raft.shell import reconcile
from raft.storage.segmented_log import SegmentedLog
from snapshot.incoming import IncomingSnapshot
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter


class SnapshotWork(StrEnum):
    """Work that takes several disk operations and may be cut short after any of them."""

    WRITES = "a snapshot is written"
    RECEIVES = "a snapshot is received"
    REPLACES_LOG = "the log starts over"
    MOVES_START = "the log start moves on"
    LOADS = "the state machine loads a snapshot"


NEEDS_ROOM: Final = (SnapshotWork.WRITES, SnapshotWork.RECEIVES)

_METHODS: Final[tuple[tuple[Any, str, SnapshotWork], ...]] = (
    (SnapshotStore, "create", SnapshotWork.WRITES),
    (SnapshotWriter, "append", SnapshotWork.WRITES),
    (SnapshotWriter, "freeze", SnapshotWork.WRITES),
    (SnapshotStore, "receive", SnapshotWork.RECEIVES),
    (IncomingSnapshot, "append", SnapshotWork.RECEIVES),
    (IncomingSnapshot, "freeze", SnapshotWork.RECEIVES),
    (SegmentedLog, "truncate_fully_and_start_at", SnapshotWork.REPLACES_LOG),
    (SegmentedLog, "advance_start", SnapshotWork.MOVES_START),
)

STARTED_OVER_AT_START: Final = "recovery: a log started over behind a snapshot that had come before"


@contextlib.contextmanager
def watching_snapshot_work(cluster: Cluster) -> Iterator[None]:
    """Return a context manager that marks interrupted work and triggers ambushes within its block."""
    with contextlib.ExitStack() as stack:
        for owner, name, work in _METHODS:
            watched = _watched(cluster, getattr(owner, name), work)
            stack.enter_context(mock.patch.object(owner, name, watched))
        for name in ("load", "put_in_place"):
            watched = _watched_load(cluster, getattr(SimulatedStore, name))
            stack.enter_context(mock.patch.object(SimulatedStore, name, watched))
        begin = _watched_begin(cluster, reconcile._begin_behind_newest)
        stack.enter_context(mock.patch.object(reconcile, "_begin_behind_newest", begin))
        yield


def _watched(cluster: Cluster, method: Callable[..., Any], work: SnapshotWork) -> Callable[..., Any]:
    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        with _doing(cluster, _machine_with(cluster, self._files), work):
            return method(self, *arguments, **named)

    return watched


def _watched_load(cluster: Cluster, method: Callable[..., None]) -> Callable[..., None]:
    def watched(self: SimulatedStore, *arguments: Any) -> None:
        with _doing(cluster, _machine_of(cluster, self.process), SnapshotWork.LOADS):
            method(self, *arguments)

    return watched


def _watched_begin(cluster: Cluster, function: Callable[..., None]) -> Callable[..., None]:
    def watched(log: SegmentedLog, *arguments: Any) -> None:
        start = log.start
        function(log, *arguments)
        if log.start != start:
            cluster.marks.hit(STARTED_OVER_AT_START)

    return watched


def _machine_with(cluster: Cluster, files: object) -> Machine | None:
    return next((machine for machine in cluster.machines.values() if machine.disk.files is files), None)


def _machine_of(cluster: Cluster, process: SteppedProcess) -> Machine | None:
    return next((machine for machine in cluster.machines.values() if machine.process is process), None)


@contextlib.contextmanager
def _doing(cluster: Cluster, machine: Machine | None, work: SnapshotWork) -> Iterator[None]:
    if machine is not None and machine.process is not None:
        ambush = machine.ambushes.pop(work, None)
        if ambush is not None:
            ambush(machine.process)
    try:
        yield
    except ProcessKilled:
        cluster.marks.hit(f"killed while {work}")
        raise
    except OutOfSpace:
        cluster.marks.hit(f"no room while {work}")
        raise
