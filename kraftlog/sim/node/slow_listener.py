"""A second listener on every node, that reads rarely and keeps its readers open for long (LI-07, SN-51)."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftlog.sim.node.stepped_process import SteppedProcess
from kraftlog.sim.observation.step import Delivery
from raft.core.types import Batch, Offset
from raft.delivery import ListenerCursor
from snapshot.reader import SnapshotReader

SLOW_LISTENER: Final = "slow listener"

PAUSE_MS_MAX: Final = 20_000
"""How long it does nothing, at most."""


class SlowListener:
    """The listener of one process. It holds the log's start back, or is behind it and loads a snapshot."""

    def __init__(self, process: SteppedProcess) -> None:
        self._process = process
        self._random: Random = process.machine.new_random()
        self.cursor = ListenerCursor(process.log, None)
        self._open: tuple[Batch, ...] = ()
        """Batches that it was given and has not closed the reader of."""

    def start(self) -> None:
        """Begin, after a while."""
        self._wait()

    def _wait(self) -> None:
        delay_ms = PAUSE_MS_MAX * self._random.random() ** 3
        self._process.runtime.call_later(delay_ms, self._read)

    def _read(self) -> None:
        process = self._process
        if self._open:
            self.cursor.next_offset = self._open[-1].end_offset
            self._open = ()
        if self.cursor.needs_snapshot(process.committed_end_offset, process.shell.snapshots.latest):
            process.shell.snapshots.open_latest(self._load)
            return
        self._open = self.cursor.next_batches(process.committed_end_offset)
        if self._open:
            process.step.deliveries.append(Delivery(self._open, listener=SLOW_LISTENER))
        self._wait()

    def _load(self, reader: SnapshotReader | None) -> None:
        if reader is not None:
            with reader:
                process = self._process
                process.step.deliveries.append(Delivery(snapshot_id=reader.snapshot_id, listener=SLOW_LISTENER))
                self.cursor.next_offset = Offset(reader.snapshot_id.offset)
                process.environment.marks.hit("the slow listener loaded a snapshot")
        self._wait()
