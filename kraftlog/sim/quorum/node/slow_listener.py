"""A second listener on every node. It reads rarely and keeps its readers open for a long time (LI-07, SN-51)."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftbase.runtime import OnDone
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.observation.step import Delivery
from raft.core.types import Batch, LeaderAndEpoch
from snapshot.reader import SnapshotReader

SLOW_LISTENER: Final = "slow listener"

PAUSE_MS_MAX: Final = 20_000
"""The longest time that it pauses after each delivery."""


class SlowListener:
    """The slow listener of one process. It holds the log start back, or falls behind it and loads a snapshot."""

    name: Final = SLOW_LISTENER
    can_load_snapshots: Final = True

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._random: Random = process.machine.new_random()

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Accept the batches after a pause."""
        self._process.step.deliveries.append(Delivery(batches, listener=SLOW_LISTENER))
        self._wait(on_done)

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Accept the snapshot after a pause."""
        self._process.step.deliveries.append(Delivery(snapshot_id=snapshot.snapshot_id, listener=SLOW_LISTENER))
        self._process.host.marks.hit("the slow listener loaded a snapshot")
        self._wait(on_done)

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Ignore leader changes."""
        on_done(None)

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Shut down at once: no work is left to finish."""
        on_done(None)

    def abandon(self) -> None:
        """Do nothing: no work is left to finish."""

    def _wait(self, on_done: OnDone) -> None:
        delay_ms = PAUSE_MS_MAX * self._random.random() ** 3
        self._process.runtime.call_later(delay_ms, lambda: on_done(None))
