"""Partitions are in valid states, with valid epochs."""

from __future__ import annotations

from collections import Counter

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.metadata import NO_LEADER, Change, Partition
from kraftlog.sim.quorum.observation.step import Step


class PartitionStates(Invariant):
    """ISR and ELR are disjoint sets of replicas; the leader is in sync; the last replicas with the data are known.

    No replica is eligible while enough are in sync. Some replica is in sync or eligible, or the last leader is
    recorded. A broker that enters an ISR or is elected is neither fenced nor shutting down. A fenced broker may stay in
    ISRs until the records that remove it follow, one page at a time. At the end of a run no fenced broker is left in an
    ISR, and every partition that can have a leader has one. Without eligible replicas the last in-sync replica stays in
    the ISR and does not lead (CT-52).
    """

    number = 39
    title = "partitions are sound"
    source = "KIP-966"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check the partitions that have changed."""
        for change in self.world.metadata_changes:
            if change.kind == "partition":
                self._check_state(change)
                self._check_arrivals(change)

    def _check_state(self, change: Change) -> None:
        partition: Partition = change.after
        isr, elr, replicas = set(partition.isr), set(partition.elr), set(partition.replicas)
        what = f"partition {change.key[1]} of topic {change.key[0].hex()} is {partition} since offset {change.offset}"
        if len(replicas) != len(partition.replicas) or not replicas:
            self.violated(f"{what}: its replicas are missing or not distinct")
        if (
            not isr <= replicas
            or not elr <= replicas
            or max(Counter([*partition.isr, *partition.elr]).values(), default=1) > 1
        ):
            self.violated(f"{what}: its ISR and its eligible replicas are not distinct replicas of it")
        if partition.leader != NO_LEADER and partition.leader not in isr:
            self.violated(f"{what}: its leader is not in its ISR")
        if elr and len(isr) >= change.min_isr:
            self.violated(f"{what}: replicas are eligible although the required {change.min_isr} are in sync")
        if not isr and not elr and not partition.last_known_elr:
            self.violated(f"{what}: no replica is known to have its data")

    def _check_arrivals(self, change: Change) -> None:
        before: Partition | None = change.before
        after: Partition = change.after
        arrived = set(after.isr) - (set(before.isr) if before is not None else set())
        if before is None or before.leader_epoch != after.leader_epoch:
            arrived |= {after.leader} - {NO_LEADER}
        absent = sorted(arrived - change.active)
        if absent:
            self.violated(
                f"at offset {change.offset} partition {change.key[1]} of topic {change.key[0].hex()} becomes {after},"
                f" but brokers {absent} are not active; active: {sorted(change.active)}"
            )


class PartitionEpochs(Invariant):
    """The partition epoch rises by one with each change, and the leader epoch when it must; neither goes back.

    A new partition begins at 0. The leader epoch must rise with another leader and with the removal of replicas.
    """

    number = 55
    title = "epochs of partitions go up"
    source = "CT-01, CT-03, CT-53"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check the partitions that have changed."""
        for change in self.world.metadata_changes:
            if change.kind == "partition":
                self._check(change)

    def _check(self, change: Change) -> None:
        before: Partition | None = change.before
        after: Partition = change.after
        if before is None:
            is_right = (after.leader_epoch, after.partition_epoch) == (0, 0)
        else:
            must_rise = before.leader != after.leader or not set(before.replicas) <= set(after.replicas)
            is_right = after.partition_epoch == before.partition_epoch + 1
            is_right &= after.leader_epoch - before.leader_epoch in ((1,) if must_rise else (0, 1))
        if not is_right:
            self.violated(
                f"at offset {change.offset} partition {change.key[1]} of topic {change.key[0].hex()} goes from {before}"
                f" to {after}"
            )


class BrokerEpochs(Invariant):
    """A broker's epoch is the offset of its registration, so it only increases and changes with the incarnation.

    A new incarnation is fenced.
    """

    number = 56
    title = "epochs of brokers go up"
    source = "KIP-631; CT-30"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check the brokers that have changed."""
        for change in self.world.metadata_changes:
            before, after = change.before, change.after
            if change.kind != "broker" or after is None:
                continue
            is_new = before is None or before.incarnation_id != after.incarnation_id
            if is_new and not (after.epoch == change.offset and after.fenced):
                self.violated(f"broker {change.key} registers at offset {change.offset} as {after}")
            if not is_new and before.epoch != after.epoch:
                self.violated(f"broker {change.key} goes from {before} to {after} at offset {change.offset}")
