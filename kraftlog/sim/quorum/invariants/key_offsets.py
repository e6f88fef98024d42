"""A key's last write never goes back to an older one."""

from __future__ import annotations

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import STATE_MACHINE
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.registers.records import committed_writes


class KeyOffsets(Invariant):
    """Within a process's life, the offset of the last write of each key that a state machine received grows.

    A new process may receive older writes again. There are no other false positives.
    """

    number = 28
    title = "a key's last write never goes back"
    source = "openraft sm_monotonic"
    looks_at = frozenset({"deliveries"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._last: dict[tuple[int, int, str], Offset] = {}

    def after_step(self, step: Step) -> None:
        """Check the writes that were delivered."""
        node = step.node
        for delivery in step.deliveries:
            if delivery.listener != STATE_MACHINE:
                continue
            for batch in delivery.batches:
                for write in committed_writes(batch):
                    place = (node.node_id, node.life, write.key)
                    if write.offset <= self._last.get(place, Offset(-1)):
                        self.violated(f"node {node.node_id} received {write} after the write at {self._last[place]}")
                    self._last[place] = Offset(write.offset)
