"""Tells what depends on leading a partition, such as a coordinator, when this broker begins and ceases to lead it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftlog.replicas.partitions.partition import Partition


class LeadershipListener(Protocol):
    """Called once for each change, in the order of the metadata log. Between two calls of `leads` for a partition there
    is one of `leads_no_more`, also if this broker leads on in a later epoch."""

    def leads(self, partition: Partition, epoch: int) -> None:
        """This broker leads from now on, with an online log, in a leader epoch."""
        ...

    def leads_no_more(self, partition: Partition, epoch: int) -> None:
        """It has ceased to lead in that epoch: another leads, the log is offline or deleted, or the broker stops."""
        ...


class Leaderships:
    """What the listeners were told. For one thread."""

    def __init__(self, listeners: Sequence[LeadershipListener]) -> None:
        self._listeners = listeners
        self._told: dict[Partition, tuple[int, int]] = {}
        """By partition: its epoch and the number of the leadership."""

    def look_at(self, partition: Partition) -> None:
        """Tell what has changed since the last look, if anything."""
        leading = partition.leading
        now = None if leading is None else (leading.leader_epoch, partition.leadership)
        told = self._told.get(partition)
        if now == told:
            return
        if told is not None:
            del self._told[partition]
            for listener in self._listeners:
                listener.leads_no_more(partition, told[0])
        if now is not None:
            self._told[partition] = now
            for listener in self._listeners:
                listener.leads(partition, now[0])

    def stop(self) -> None:
        """Nothing is led from now on."""
        told, self._told = self._told, {}
        for partition, (epoch, _) in told.items():
            for listener in self._listeners:
                listener.leads_no_more(partition, epoch)
