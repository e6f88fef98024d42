"""The view of one broker for the checkers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kraftlog.sim.quorum.model.keys import Key


@dataclass(slots=True)
class Led:
    """What a broker knows of a partition that it leads."""

    leader_epoch: int
    partition_epoch: int
    isr: frozenset[int]
    asked: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    """ISRs that it has proposed and that may still take effect, each with the partition epoch that it named."""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas it must wait for before it counts a record as committed (KIP-497)."""
        return self.isr.union(*(isr for _, isr in self.asked))

    def learn(self, partition_epoch: int, isr: frozenset[int]) -> None:
        """The partition has that ISR since that epoch; proposals in earlier ones have taken effect or will not."""
        if partition_epoch > self.partition_epoch:
            self.partition_epoch, self.isr = partition_epoch, isr
            self.asked = [asked for asked in self.asked if asked[0] >= partition_epoch]


class BrokerView(Protocol):
    """One broker (`kraftlog.sim.quorum.users.broker.Broker`)."""

    @property
    def broker_id(self) -> int:
        """Its id, and its place in the network."""

    @property
    def is_up(self) -> bool:
        """Whether it will be heard from again."""

    @property
    def running_incarnation(self) -> bytes | None:
        """The incarnation of its process, also if that hangs; None if there is none."""

    @property
    def epoch(self) -> int | None:
        """Of its registration; None: it has not heard of one."""

    @property
    def led(self) -> Mapping[Key, Led]:
        """What it leads, as far as it knows."""
