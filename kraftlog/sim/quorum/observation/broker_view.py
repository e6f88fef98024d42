"""The view of one broker for the invariants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kraftlog.sim.quorum.model.keys import Key


@dataclass(slots=True)
class Led:
    """The state of a partition on the broker that leads it."""

    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    asked: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    """The ISRs that it proposed and that may still take effect, each with the partition epoch in the proposal."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas that must have a record before the leader may count it as committed (KIP-497)."""
        return self.isr.union(*(isr for _, isr in self.asked))

    def learn(self, partition_epoch: int, isr: frozenset[int]) -> None:
        """Apply an ISR as of `partition_epoch`. Proposals in earlier epochs have taken effect or never will."""
        if partition_epoch > self.partition_epoch:
            self.partition_epoch, self.isr = partition_epoch, isr
            self.asked = [asked for asked in self.asked if asked[0] >= partition_epoch]


class BrokerView(Protocol):
    """One broker (`kraftlog.sim.quorum.users.broker.Broker`)."""

    @property
    def broker_id(self) -> int:
        """The broker id, which is also its place in the network."""

    @property
    def is_up(self) -> bool:
        """Whether its process is up: it has not ended, does not hang, and is not in a controlled shutdown."""

    @property
    def running_incarnation(self) -> bytes | None:
        """The incarnation id of its process, even if the process hangs; None if no process runs."""

    @property
    def epoch(self) -> int | None:
        """The broker epoch of its registration; None if it knows of none."""

    @property
    def led(self) -> Mapping[Key, Led]:
        """The partitions that it leads, as far as it knows."""
