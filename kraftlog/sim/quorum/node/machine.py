"""One machine: its parts, and at most one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.node.process import Process


class Machine(Hardware):
    """A machine. It outlives its processes."""

    def __init__(
        self, node_id: int, *, is_voter: bool, cluster_id: str, fetch_version: int, random: Random, marks: Marks
    ) -> None:
        super().__init__(
            node_id, is_voter=is_voter, cluster_id=cluster_id, fetch_version=fetch_version, random=random, marks=marks
        )
        self.process: Process | None = None
        self.restart_at_us: int | None = None
        """When its process will be started again; None: the process runs, or stays down."""
        self.foreign_until_us = 0
        """While the machine is down, a node of another cluster answers at its address until this time."""
        self.ambushes: dict[str, Callable[[Process], None]] = {}
        """One-time faults, by the activity of the process that triggers them (`kraftlog.sim.quorum.faults.ambushes`).
        """
        self.repairs: list[Callable[[], None]] = []
        """Actions of an operator that restore files which faults have damaged."""

    @property
    def is_up(self) -> bool:
        """Whether a process runs, paused or not."""
        return self.process is not None
