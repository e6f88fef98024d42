"""A machine's disk: the production code's files in memory, the duration of syncs, and the effects of a crash."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftbase.files.memory import MemoryFileSystem
from kraftlog.sim.engine.virtual.crash import Crash

DIRECTORY: Final = "node"
"""The data directory on every machine's disk."""

QUICK_SYNC_US: Final = (80, 400)


class Disk:
    """A disk. It outlives the processes that use it."""

    def __init__(self, random: Random) -> None:
        self.files = MemoryFileSystem()
        self.sync_us = QUICK_SYNC_US
        """The shortest and the longest duration of a sync."""
        self._random = random

    def draw_sync_us(self) -> int:
        """Return the duration of the next sync, in microseconds."""
        return self._random.randint(*self.sync_us)

    def crash(self, crash: Crash) -> None:
        """End the process that uses the disk, in the given way."""
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
        """Lose all files, and all faults of the disk."""
        self.files = MemoryFileSystem()
        self.sync_us = QUICK_SYNC_US

    def heal(self) -> None:
        """Make the disk quick, with free space and without errors. Corrupted bytes stay corrupted."""
        self.files.space_limit = None
        self.files.failing_syncs.clear()
        self.files.failing_reads.clear()
        self.sync_us = QUICK_SYNC_US
