"""The lag of a leader's followers by KAFKA-4485, computed from the fetches that reach the leader; rules 91 and 92.

It is a second description of the rule, from the mail: "a replica's lag is at most x ms if it has the leader's end of x
ms ago". Only what the leader of the present epoch has seen of a follower counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.rules import CATCHES_UP, LEAVES
from kraftlog.sim.replication.checkers.views import LeaderView, ReplicaView

NEVER: Final = float("-inf")
UNKNOWN: Final = -1
MARGIN_MS: Final = 60.0
"""Allowance for the time within a step: the checker sees the state after the step, the leader in the middle of it."""


@dataclass(slots=True)
class Follower:
    """A follower, as its leader sees it."""

    end: int = UNKNOWN
    fetched_ms: float = NEVER
    leader_end_then: int = UNKNOWN
    caught_up_ms: float = NEVER
    broker_epoch: int = -1
    had_all_ms: float = NEVER
    """When the follower was last seen with the leader's end.

    An idle leader's followers are caught up without fetching.
    """

    def fetches(self, offset: int, leader_end: int, now_ms: float, broker_epoch: int) -> None:
        """Record a fetch from an offset."""
        had_end_of_before = offset >= self.leader_end_then
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif had_end_of_before:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_then = max(self.leader_end_then, leader_end)
        self.fetched_ms, self.end, self.broker_epoch = now_ms, offset, broker_epoch


@dataclass(slots=True)
class LedPartition:
    """A partition at one leader in one epoch."""

    name: str
    leader_id: int
    leader_epoch: int
    epoch_start: int
    lag_max_ms: float
    followers: dict[int, Follower] = field(default_factory=dict)
    unhindered_since_ms: float = NEVER
    """Since when no ISR change has been pending, which would delay removals, and the process has not hung."""
    checks: int = 0

    def begin(self, leader: LeaderView, now_ms: float, before: LedPartition | None, leader_end: int) -> None:
        """Begin the epoch. Members of the ISR count as caught up now (DB-06)."""
        self.unhindered_since_ms = now_ms
        for broker_id in leader.registered:
            is_in_sync = broker_id in leader.isr
            known = None if before is None else before.followers.get(broker_id)
            if known is None:
                self.followers[broker_id] = Follower(caught_up_ms=now_ms if is_in_sync else NEVER)
            else:
                known.leader_end_then = leader_end
                known.fetched_ms = known.caught_up_ms = now_ms if is_in_sync else NEVER
                self.followers[broker_id] = known

    def follower(self, broker_id: int) -> Follower:
        """Return the leader's view of a follower."""
        return self.followers.setdefault(broker_id, Follower())

    def assigned(self, added: Mapping[int, object]) -> None:
        """Reset replicas that were just assigned: nothing seen of them before counts."""
        for broker_id in added:
            self.followers[broker_id] = Follower()

    def _lag_ms(self, broker_id: int, leader_end: int, now_ms: float) -> float:
        follower = self.follower(broker_id)
        return 0.0 if follower.end == leader_end else now_ms - follower.caught_up_ms

    # --- rules --------------------------------------------------------------------------------------------------------

    def watermark_raised(self, view: ReplicaView, leader: LeaderView, replicas: tuple[int, ...], now_ms: float) -> None:
        """Check that no replica that the leader must wait for lacks what it has committed (DB-20)."""
        self.checks += 1
        for broker_id in replicas:
            if broker_id == self.leader_id:
                continue
            follower = self.follower(broker_id)
            is_caught_up = self._lag_ms(broker_id, view.log_end, now_ms) <= self.lag_max_ms - MARGIN_MS
            is_eligible = leader.eligible.get(broker_id) == follower.broker_epoch
            is_waited_for = broker_id in leader.isr or (leader.pending is not None and broker_id in leader.pending)
            if follower.end < view.high_watermark and (is_waited_for or (is_caught_up and is_eligible)):
                raise Violation(
                    f"{CATCHES_UP}: {self.name}: the high watermark of broker {self.leader_id} is"
                    f" {view.high_watermark}; broker {broker_id} has fetched from {follower.end},"
                    f" {'in sync' if is_waited_for else 'caught up'}"
                )

    def proposed(self, view: ReplicaView, leader: LeaderView, replicas: tuple[int, ...], now_ms: float) -> None:
        """Check a proposed ISR: only lagging replicas leave, and only caught-up replicas join (DB-15, DB-62)."""
        self.checks += 1
        for broker_id in leader.isr:
            if broker_id in (leader.pending or ()) or broker_id not in replicas:
                continue
            lag_ms = self._lag_ms(broker_id, view.log_end, now_ms)
            if lag_ms <= self.lag_max_ms - MARGIN_MS:
                raise Violation(f"{LEAVES}: {self.name}: broker {broker_id} is to leave, but lags only {lag_ms:.0f} ms")
        for broker_id in leader.pending or ():
            if broker_id not in leader.isr and broker_id != self.leader_id:
                self._check_joining(broker_id, view, leader, now_ms)

    def _check_joining(self, broker_id: int, view: ReplicaView, leader: LeaderView, now_ms: float) -> None:
        follower = self.follower(broker_id)
        why = ""
        if follower.end < self.epoch_start:
            why = f"it has fetched from {follower.end}, but the leader's epoch begins at {self.epoch_start}"
        elif follower.end < view.high_watermark:
            why = f"it has fetched from {follower.end}, below the high watermark {view.high_watermark}"
        elif self._lag_ms(broker_id, view.log_end, now_ms) > self.lag_max_ms + MARGIN_MS:
            why = f"it lags {self._lag_ms(broker_id, view.log_end, now_ms):.0f} ms"
        elif leader.eligible.get(broker_id) != follower.broker_epoch:
            why = f"it has fetched with broker epoch {follower.broker_epoch}, but {leader.eligible} may join"
        if why:
            raise Violation(f"{CATCHES_UP}: {self.name}: broker {broker_id} is to join: {why}")

    def fetched(self, broker_id: int, view: ReplicaView, leader: LeaderView, now_ms: float) -> None:
        """Check after a fetch without a pending change: has the leader proposed a follower that belongs in the ISR?"""
        self.checks += 1
        follower = self.follower(broker_id)
        if (
            broker_id not in leader.isr
            and leader.pending is None
            and self._lag_ms(broker_id, view.log_end, now_ms) <= self.lag_max_ms - MARGIN_MS
            and follower.end >= max(view.high_watermark, self.epoch_start)
            and leader.eligible.get(broker_id) == follower.broker_epoch
        ):
            raise Violation(
                f"{CATCHES_UP}: {self.name}: broker {broker_id} has fetched from {follower.end}, the high watermark is"
                f" {view.high_watermark}, but the leader does not propose to add it"
            )

    def stands(self, view: ReplicaView, leader: LeaderView, now_ms: float) -> None:
        """Check that a lagging member has left the ISR, or is being removed, after one interval of checks."""
        for follower in self.followers.values():
            if follower.end == view.log_end:
                follower.had_all_ms = now_ms
        if leader.pending is not None:
            self.unhindered_since_ms = now_ms
            return
        patience_ms = self.lag_max_ms / 2 + 2 * MARGIN_MS
        if now_ms - self.unhindered_since_ms <= patience_ms:
            return
        for broker_id in leader.isr:
            lag_ms = self._lag_ms(broker_id, view.log_end, now_ms)
            has_had_time = now_ms - self.follower(broker_id).had_all_ms > patience_ms
            if broker_id != self.leader_id and has_had_time and lag_ms > self.lag_max_ms + patience_ms:
                raise Violation(f"{LEAVES}: {self.name}: broker {broker_id} is in the ISR, but lags {lag_ms:.0f} ms")
