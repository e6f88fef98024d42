"""A machine's disk: the production code's files in memory, how long syncs take, and what a crash leaves."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.sim.engine.virtual.crash import Crash

DIRECTORY: Final = "node"
"""The data directory on every machine's disk."""

QUICK_SYNC_US: Final = (80, 400)


class Disk:
    """Survives its processes."""

    def __init__(self, random: Random) -> None:
        self.files = MemoryFileSystem()
        self.sync_us = QUICK_SYNC_US
        """How long a sync takes, at least and at most."""
        self._random = random

    def draw_sync_us(self) -> int:
        """How long the next sync takes."""
        return self._random.randint(*self.sync_us)

    def crash(self, crash: Crash) -> None:
        """A process that used it ends like that."""
        match crash:
            case Crash.KILLED:
                self.files.end_process()
            case Crash.NOTHING_KEPT:
                self.files.crash()
            case Crash.PREFIX_KEPT:
                self.files.crash(kept_unsynced_bytes=self._random.randrange(2_000))
            case Crash.SECTORS_KEPT:
                self.files.crash(random=self._random)
            case Crash.PAGES_KEPT:
                self.files.crash(random=self._random, sector_bytes=4096)

    def wipe(self) -> None:
        """Everything on it is lost, with its faults."""
        self.files = MemoryFileSystem()
        self.sync_us = QUICK_SYNC_US

    def heal(self) -> None:
        """The disk is quick, has room and gives no errors any more; what rotted stays rotten."""
        self.files.space_limit = None
        self.files.failing_syncs.clear()
        self.files.failing_reads.clear()
        self.sync_us = QUICK_SYNC_US
