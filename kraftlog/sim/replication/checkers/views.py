"""The checkers' views of replicas, leaders and partitions: plain values, taken between two steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

NO_LEADER: Final = -1


class ReplicaView(NamedTuple):
    """A replica whose log is open."""

    broker_id: int
    life: int
    """The number of the broker's process."""
    leader_epoch: int
    """The leader epoch that its broker knows."""
    log_start: int
    log_end: int
    durable_end: int
    """Everything below is on disk, by the broker's account."""
    high_watermark: int
    last_epoch: int
    """The epoch of its last record, or the one that it leads."""


class LeaderView(NamedTuple):
    """What a leader knows in addition."""

    partition_epoch: int
    isr: tuple[int, ...]
    """The committed ISR, as far as the leader knows."""
    pending: tuple[int, ...] | None
    """The ISR that the leader has proposed."""
    maximal_isr: frozenset[int]
    min_isr: int
    """The required number of in-sync replicas, as far as the leader knows."""
    eligible: dict[int, int]
    """The brokers that the controller would accept in an ISR, as far as the leader knows, with their epochs."""
    registered: dict[int, int]
    """The epoch of every registered broker."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the controller has committed it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible_leaders: tuple[int, ...]
    last_known: tuple[int, ...]
    """The last leader or in-sync replica, if no replica is in sync or eligible."""
    damaged: tuple[int, ...] = ()
    """The replicas whose brokers have reported their logs as damaged or missing (DB-88)."""
    directories: tuple[bytes, ...] = ()
    """The ids of the log directories of `replicas`."""
