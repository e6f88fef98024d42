"""A broker whose process runs is not fenced before its session ends."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.step import Step


class LiveBrokersKeepTheirSession(Invariant):
    """A controller that fences a broker by evidence is right: the process of that incarnation has ended.

    A node whose clock runs too fast, or has leapt, may measure 100 ms too early, so it is not checked.
    """

    number = 71
    title = "no live broker is fenced before its session has ended"
    source = "CT-65"
    looks_at = frozenset({"fenced"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Compare the fenced incarnations with the running processes."""
        for fenced in step.fenced:
            broker = next(broker for broker in self.world.brokers if broker.broker_id == fenced.broker_id)
            if fenced.is_clock_right and broker.running_incarnation == fenced.incarnation_id:
                self.violated(
                    f"node {step.node.node_id} fences broker {fenced.broker_id} because its process has ended, but its"
                    f" incarnation {fenced.incarnation_id.hex()} runs"
                )
