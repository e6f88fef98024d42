"""A reader, which reads rows from random nodes, sometimes rows that it knows to be acknowledged."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.cluster.cluster import Cluster

INTERVAL_MS: Final = 1_000
"""The average time between two reads."""


class Reader:
    """The reader of a cluster. Its messages take no time."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._is_stopped = False

    def start(self) -> None:
        """Schedule the next read."""
        wait_ms = self._random.expovariate(1 / INTERVAL_MS)
        self._cluster.event_queue.after(int(wait_ms * MICROSECONDS_PER_MS), self._read)

    def stop(self) -> None:
        """Begin no more reads."""
        self._is_stopped = True

    def _read(self) -> None:
        if self._is_stopped:
            return
        process = self._random.choice(list(self._cluster.machines.values())).process
        if process is not None:
            acknowledged = max(self._cluster.acknowledged_end_offsets[-5:], default=Offset(0))
            wanted = self._random.choice([Offset(0), acknowledged])
            wait_ms = self._random.choice([0, 100, 3_000])
            process.run("read", lambda: process.read_service.read(wanted, wait_ms))
        self.start()
