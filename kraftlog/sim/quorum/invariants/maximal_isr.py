"""Leaders wait for every replica in the controller's ISR."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.metadata import Partition
from kraftlog.sim.quorum.observation.step import Step


class LeadersKnowTheirIsr(Invariant):
    """A leader's maximal ISR, the replicas that it waits for, contains the controller's ISR of the partition.

    It also contains the ELR while enough replicas are in sync. Otherwise an election could choose a replica that lacks
    acknowledged records. Leaders are checked if they know that they lead, in the controller's leader epoch.
    """

    number = 40
    title = "leaders wait for the whole ISR"
    source = "KIP-497; DB-10"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Compare leaders with the committed partitions."""
        for change in self.world.metadata_changes:
            if change.kind != "partition":
                continue
            partition: Partition = change.after
            broker = next((broker for broker in self.world.brokers if broker.broker_id == partition.leader), None)
            led = None if broker is None else broker.led.get(change.key)
            if led is None or led.leader_epoch != partition.leader_epoch:
                continue
            counted_in = {*partition.isr, *(partition.elr if len(partition.isr) >= change.min_isr else ())}
            if not counted_in <= led.maximal_isr:
                self.violated(
                    f"at offset {change.offset} partition {change.key[1]} of topic {change.key[0].hex()} becomes"
                    f" {partition}; its leader waits only for {sorted(led.maximal_isr)} and has {led}"
                )
