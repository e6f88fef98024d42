"""What a broker has decided in a step, and what it has told others in the broker, for the judges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftlog.replicas.partitions.partition import Partition
from kraftlog.sim.replication.judges.leaderships import HeardLeaderships, Key
from kraftlog.telemetry.observer import Decision, FetchEnd


class SeenDecisions:
    """Of one process. A `kraftlog.telemetry.observer.BrokerObserver`."""

    wants_details: Final = False

    def __init__(self) -> None:
        self._decisions: list[Decision] = []

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Nobody judges it."""

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Nobody judges it."""

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Nobody judges it."""

    def decided(self, decision: Decision) -> None:
        """Keep it until the step is judged."""
        self._decisions.append(decision)

    def take(self) -> list[Decision]:
        """Those since the last call."""
        taken, self._decisions = self._decisions, []
        return taken


class SeenLeaderships:
    """Of one process. A `kraftlog.replicas.partitions.leadership.LeadershipListener`.

    What it hears is judged when the step is over: a violation within the step would end the broker, and not the run.
    """

    def __init__(self, name: str) -> None:
        """`name` is the broker's."""
        self._heard = HeardLeaderships(name)
        self._in_step: list[Callable[[], None]] = []

    def leads(self, partition: Partition, epoch: int) -> None:
        """The broker begins to lead."""
        self._in_step.append(partial(self._heard.begins, (partition.topic_id, partition.index), epoch))

    def leads_no_more(self, partition: Partition, epoch: int) -> None:
        """It ceases to."""
        self._in_step.append(partial(self._heard.ends, (partition.topic_id, partition.index), epoch))

    def acknowledges(self, key: Key, epoch: int) -> None:
        """A producer is told that its batch is in the log."""
        self._in_step.append(partial(self._heard.acknowledges, key, epoch))

    def judge(self) -> HeardLeaderships:
        """Judge what was heard since the last call, in its order. Raises Violation."""
        while self._in_step:
            self._in_step.pop(0)()
        return self._heard
