"""One partition: its replicas and leaders as they change, and the checks of each change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.lag import LedPartition
from kraftlog.sim.replication.checkers.promises import PartitionPromises
from kraftlog.sim.replication.checkers.rules import CUT, ENOUGH, MAXIMAL, MEMBERS, WATERMARK
from kraftlog.sim.replication.checkers.views import LeaderView, PartitionState, ReplicaView


@dataclass(slots=True)
class PartitionChecker:
    """The checker of one partition."""

    promises: PartitionPromises
    lag_max_ms: float
    state: PartitionState
    """The state that the controller has committed."""
    states: dict[int, PartitionState] = field(default_factory=dict)
    """By partition epoch."""
    replicas: dict[int, ReplicaView] = field(default_factory=dict)
    """By broker: its replica after its last step."""
    leaders: dict[int, LeaderView] = field(default_factory=dict)
    led: dict[int, LedPartition] = field(default_factory=dict)
    """By broker that leads, as far as it knows."""
    checks: int = 0

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return self.promises.name

    # --- the controller -----------------------------------------------------------------------------------------------

    def committed(self, state: PartitionState, *, is_unclean: bool) -> None:
        """Handle a change that the controller has committed."""
        self.state = state
        self.states[state.partition_epoch] = state
        if is_unclean:
            self.promises.elected_uncleanly(state.leader_epoch)
        self.check_maximal()

    def check_maximal(self) -> None:
        """Check that the leader of the controller's epoch waits for every replica in the controller's ISR."""
        leader, view = self.leaders.get(self.state.leader), self.replicas.get(self.state.leader)
        self.checks += 1
        if leader is None or view is None or view.leader_epoch != self.state.leader_epoch:
            return
        lacking = [broker_id for broker_id in self.state.isr if broker_id not in leader.maximal_isr]
        if lacking:
            raise Violation(
                f"{MAXIMAL}: {self.name}: the ISR is {self.state.isr}, but broker {self.state.leader} waits for"
                f" {sorted(leader.maximal_isr)} only"
            )

    def state_known_to(self, leader: LeaderView) -> PartitionState:
        """Return the state that a leader knows."""
        return self.states.get(leader.partition_epoch, self.state)

    # --- replicas -----------------------------------------------------------------------------------------------------

    def gone(self, broker_id: int) -> None:
        """Remove a replica whose process has ended or has no log of the partition any longer."""
        self.replicas.pop(broker_id, None)
        self.leaders.pop(broker_id, None)
        self.led.pop(broker_id, None)

    def seen(self, view: ReplicaView, leader: LeaderView | None, now_ms: float, hung_until_ms: float) -> None:
        """Check a replica after a step of its broker; `leader` is set if it leads."""
        before, led_before = self.replicas.get(view.broker_id), self.leaders.get(view.broker_id)
        self.replicas[view.broker_id] = view
        self.checks += 1
        if before is not None and before.life == view.life:
            self._check_cut(before, view)
        if leader is None:
            self.leaders.pop(view.broker_id, None)
            return
        self.leaders[view.broker_id] = leader
        led = self.led.get(view.broker_id)
        if led is None or led.leader_epoch != view.leader_epoch:
            led = self._begin_epoch(view, leader, led if led_before is not None else None, now_ms)
            before, led_before = None, None
        led.unhindered_since_ms = max(led.unhindered_since_ms, hung_until_ms)
        self._check_leader(led, before, view, led_before, leader, now_ms)

    def _begin_epoch(
        self, view: ReplicaView, leader: LeaderView, before: LedPartition | None, now_ms: float
    ) -> LedPartition:
        led = LedPartition(self.name, view.broker_id, view.leader_epoch, view.log_end, self.lag_max_ms)
        is_next = before is not None and before.leader_epoch + 1 == view.leader_epoch
        led.begin(leader, now_ms, before if is_next else None, view.log_end)
        self.led[view.broker_id] = led
        return led

    def _check_leader(
        self, led: LedPartition, before: ReplicaView | None, view: ReplicaView, led_before: LeaderView | None,
        leader: LeaderView, now_ms: float,
    ) -> None:  # fmt: skip
        state = self.state_known_to(leader)
        is_known = state.partition_epoch == leader.partition_epoch
        if is_known and (state.leader_epoch, {*state.isr}) != (view.leader_epoch, {*leader.isr}):
            raise Violation(
                f"{MAXIMAL}: {self.name}: broker {view.broker_id} in epoch {view.leader_epoch} uses {leader.isr} as"
                f" the ISR; in partition epoch {leader.partition_epoch} it is {state.isr} in epoch {state.leader_epoch}"
            )
        self.check_maximal()
        if before is not None and view.high_watermark < before.high_watermark:
            raise Violation(
                f"{WATERMARK}: {self.name}: broker {view.broker_id} had {before.high_watermark} in epoch"
                f" {view.leader_epoch}, and now has {view.high_watermark}"
            )
        if before is not None and view.high_watermark > before.high_watermark:
            self._check_watermark(led, view, leader, state.replicas, now_ms)
        is_new = leader.pending is not None and (led_before is None or led_before.pending != leader.pending)
        if is_new:
            led.proposed(view, leader, state.replicas, now_ms)
        led.stands(view, leader, now_ms)

    def _check_watermark(
        self, led: LedPartition, view: ReplicaView, leader: LeaderView,
        replicas: tuple[int, ...], now_ms: float,
    ) -> None:  # fmt: skip
        end = view.durable_end if self.promises.flush_before_ack else view.log_end
        if view.high_watermark > end:
            raise Violation(
                f"{MEMBERS}: {self.name}: the high watermark is {view.high_watermark}, but the leader has {end}"
            )
        needed = min(leader.min_isr, len(replicas))
        if len(leader.isr) < needed:
            raise Violation(
                f"{ENOUGH}: {self.name}: the high watermark moves to {view.high_watermark} with the ISR {leader.isr},"
                f" but {needed} must be in sync"
            )
        led.watermark_raised(view, leader, replicas, now_ms)

    def check_members(self, powerless: Iterable[int] = ()) -> None:
        """Check that every ISR member has what the leader has committed, on disk if the topic requires that."""
        view = self.replicas.get(self.state.leader)
        if view is None or view.leader_epoch != self.state.leader_epoch or self.state.leader not in self.leaders:
            return
        self.checks += 1
        for broker_id in self.state.isr:
            member = self.replicas.get(broker_id)
            if member is None or broker_id in powerless:
                continue
            end = member.durable_end if self.promises.flush_before_ack else member.log_end
            if end < view.high_watermark:
                raise Violation(
                    f"{MEMBERS}: {self.name}: the high watermark is {view.high_watermark} at broker"
                    f" {self.state.leader}, but broker {broker_id}, which is in the ISR, has {end}"
                )

    def _check_cut(self, before: ReplicaView, view: ReplicaView) -> None:
        if view.log_end >= before.log_end or view.log_end >= before.high_watermark:
            return
        if view.last_epoch < self.promises.unclean_epoch <= view.leader_epoch:
            return
        if any(view.last_epoch <= epoch < view.leader_epoch for epoch in self.promises.void_epochs):
            return
        raise Violation(
            f"{CUT}: {self.name}: broker {view.broker_id} had the high watermark {before.high_watermark}, but truncates"
            f" its log from {before.log_end} to {view.log_end} in epoch {view.leader_epoch}"
        )
