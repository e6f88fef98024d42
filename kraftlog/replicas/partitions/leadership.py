"""Notifies listeners, such as a coordinator, when this broker begins and stops leading a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftlog.replicas.partitions.partition import Partition


class LeadershipListener(Protocol):
    """Called once for each change, in the order of the metadata log. Between two calls of `leads` for a partition comes
    one of `leads_no_more`, also if this broker continues to lead in a later epoch."""

    def leads(self, partition: Partition, epoch: int) -> None:
        """Note that this broker leads from now on, in a leader epoch, with an online log."""
        ...

    def leads_no_more(self, partition: Partition, epoch: int) -> None:
        """Note that this broker no longer leads in that epoch.

        Another broker leads, the log is offline or deleted, or the broker stops.
        """
        ...


class Leaderships:
    """The leaderships of which the listeners were notified. For one thread."""

    def __init__(self, listeners: Sequence[LeadershipListener]) -> None:
        self._listeners = listeners
        self._known: dict[Partition, tuple[int, int]] = {}
        """The leader epoch and the number of the leadership, by partition."""

    def look_at(self, partition: Partition) -> None:
        """Notify the listeners if the leadership has changed since the last call for this partition."""
        leading = partition.leading
        now = None if leading is None else (leading.leader_epoch, partition.leadership)
        known = self._known.get(partition)
        if now == known:
            return
        if known is not None:
            del self._known[partition]
            for listener in self._listeners:
                listener.leads_no_more(partition, known[0])
        if now is not None:
            self._known[partition] = now
            for listener in self._listeners:
                listener.leads(partition, now[0])

    def stop(self) -> None:
        """End all leaderships."""
        known, self._known = self._known, {}
        for partition, (epoch, _) in known.items():
            for listener in self._listeners:
                listener.leads_no_more(partition, epoch)
