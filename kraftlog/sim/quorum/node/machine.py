"""One machine: what it consists of, and at most one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.node.process import Process


class Machine(Hardware):
    """Survives its processes."""

    def __init__(
        self, node_id: int, *, is_voter: bool, cluster_id: str, fetch_version: int, random: Random, marks: Marks
    ) -> None:
        super().__init__(
            node_id, is_voter=is_voter, cluster_id=cluster_id, fetch_version=fetch_version, random=random, marks=marks
        )
        self.process: Process | None = None
        self.restart_at_us: int | None = None
        """When its process is to be started again; None: it runs, or stays down."""
        self.foreign_until_us = 0
        """Until then a node of another cluster answers at its address while it is down."""
        self.ambushes: dict[str, Callable[[Process], None]] = {}
        """What happens to its process, once, as soon as that does this (`kraftlog.sim.quorum.faults.ambushes`)."""
        self.repairs: list[Callable[[], None]] = []
        """What an operator does to bring files back that faults have damaged."""

    @property
    def is_up(self) -> bool:
        """Whether a process runs, paused or not."""
        return self.process is not None
