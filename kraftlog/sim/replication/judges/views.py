"""What judges see of replicas, of leaders, and of the metadata: plain values, taken between two steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

NO_LEADER: Final = -1


class ReplicaView(NamedTuple):
    """A replica whose log is open."""

    broker_id: int
    life: int
    """Which process of that broker's it is in."""
    leader_epoch: int
    """As far as its broker knows."""
    log_start: int
    log_end: int
    durable_end: int
    """Its broker says that everything below is on its disk."""
    high_watermark: int
    last_epoch: int
    """The epoch in which its last record was written, or the one that it leads."""


class LeaderView(NamedTuple):
    """What a leader knows besides."""

    partition_epoch: int
    isr: tuple[int, ...]
    """What the controller has committed, as far as it knows."""
    pending: tuple[int, ...] | None
    """The ISR that it has asked for."""
    maximal_isr: frozenset[int]
    min_isr: int
    """As far as it knows."""
    eligible: dict[int, int]
    """The brokers that the controller would take into an ISR, as far as it knows, with the epochs to have."""
    registered: dict[int, int]
    """Every broker's epoch."""


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
    """With neither of those: who led, or was in sync, at last."""
    damaged: tuple[int, ...] = ()
    """The replicas whose brokers have said that their logs are damaged or missing (DB-88)."""
    directories: tuple[bytes, ...] = ()
    """The ids of the log directories of `replicas`."""
