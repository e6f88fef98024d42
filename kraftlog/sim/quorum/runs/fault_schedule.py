"""The schedule of faults."""

from __future__ import annotations

from random import Random

from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.faults.catalogue import FAULTS
from kraftlog.sim.quorum.world import World


class FaultSchedule:
    """Starts faults, one after the other, until it is stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"faults {world.parameters.seed}")

    def start(self) -> None:
        """Schedule the first fault, if the run has any."""
        if self._world.parameters.fault_kinds:
            self._schedule_next()

    def stop(self) -> None:
        """Start no more faults."""
        self._world.are_faults_over = True

    def _schedule_next(self) -> None:
        wait_ms = self._random.expovariate(1 / self._world.parameters.fault_interval_ms)
        self._world.event_queue.after(int(wait_ms * MICROSECONDS_PER_MS), self._inject)

    def _inject(self) -> None:
        if self._world.are_faults_over:
            return
        kind = self._random.choice(self._world.parameters.fault_kinds)
        to_whom = FAULTS[kind].begin(self._world, self._random)
        if to_whom is not None:
            self._world.marks.hit(f"fault: {kind}")
            self._world.trace.note(self._world.event_queue.now_us, f"{kind}: {to_whom}")
        self._schedule_next()
