"""The decisions of a broker in a step, and the leaderships that it reported, for the checkers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from kraftlog.replicas.partitions.partition import Partition
from kraftlog.sim.replication.checkers.leaderships import HeardLeaderships, Key
from kraftlog.telemetry.observer import Decision, FetchEnd


class SeenDecisions:
    """The decisions of one process: a `kraftlog.telemetry.observer.BrokerObserver`."""

    wants_details: Final = False

    def __init__(self) -> None:
        self._decisions: list[Decision] = []

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Do nothing: parked fetches are not checked."""

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Do nothing: delayed reads are not checked."""

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Do nothing: completed fetches are not checked."""

    def decided(self, decision: Decision) -> None:
        """Keep the decision until the end of the step."""
        self._decisions.append(decision)

    def take(self) -> list[Decision]:
        """Return the decisions since the last call."""
        taken, self._decisions = self._decisions, []
        return taken


class SeenLeaderships:
    """The leaderships of one process: a `kraftlog.replicas.partitions.leadership.LeadershipListener`.

    Reports are checked after the step: a violation within the step would end the broker, not the run.
    """

    def __init__(self, name: str) -> None:
        """`name`: the broker's name in messages."""
        self._heard = HeardLeaderships(name)
        self._in_step: list[Callable[[], None]] = []

    def leads(self, partition: Partition, epoch: int) -> None:
        """Queue the report that the broker begins to lead."""
        self._in_step.append(partial(self._heard.begins, (partition.topic_id, partition.index), epoch))

    def leads_no_more(self, partition: Partition, epoch: int) -> None:
        """Queue the report that the broker no longer leads."""
        self._in_step.append(partial(self._heard.ends, (partition.topic_id, partition.index), epoch))

    def acknowledges(self, key: Key, epoch: int) -> None:
        """Queue the acknowledgment of a batch to a producer."""
        self._in_step.append(partial(self._heard.acknowledges, key, epoch))

    def checker(self) -> HeardLeaderships:
        """Check the reports since the last call, in order. Raises Violation."""
        while self._in_step:
            self._in_step.pop(0)()
        return self._heard
