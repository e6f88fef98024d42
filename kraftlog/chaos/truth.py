"""The true state of the cluster, as the harness set it: which nodes run or are paused, and which links are cut.

It determines when the cluster owes its clients service: while a majority of the voters runs, is not paused, has disk
space, and is connected to each other in both directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kraftbase.types import NodeId


@dataclass(slots=True)
class Truth:
    """The state, and since when the cluster has owed service."""

    voter_ids: frozenset[NodeId]
    now: Callable[[], float]
    """Seconds on any clock that does not go back."""
    running: set[NodeId] = field(default_factory=set)
    """Nodes that answered after their start and were not killed or stopped since."""
    paused: set[NodeId] = field(default_factory=set)
    full: set[NodeId] = field(default_factory=set)
    """Nodes whose disk has no room."""
    slow: set[NodeId] = field(default_factory=set)
    """Nodes whose links are slow."""
    cuts: set[tuple[NodeId, NodeId]] = field(default_factory=set)
    """Directed links that carry nothing."""
    intervals: list[tuple[float, float]] = field(default_factory=list)
    """The intervals in which service was owed, in order, without the current one."""
    _since: float | None = None

    def changed(self) -> None:
        """Note a change. Call it before a fault and after a repair, so that no service is owed in doubtful moments."""
        if self.owes_service:
            if self._since is None:
                self._since = self.now()
        elif self._since is not None:
            self.intervals.append((self._since, self.now()))
            self._since = None

    def ailing(self, node_ids: Iterable[NodeId]) -> set[NodeId]:
        """Return the nodes that are down, paused, full, slow, or cut off from another node."""
        cut = {node_id for link in self.cuts for node_id in link}
        return (set(node_ids) - self.running) | self.paused | self.full | self.slow | cut

    def finish(self) -> list[tuple[float, float]]:
        """End the current interval, and return all intervals."""
        if self._since is not None:
            self.intervals.append((self._since, self.now()))
            self._since = None
        return self.intervals

    @property
    def owes_service(self) -> bool:
        """Whether some majority of the voters is healthy and fully connected."""
        well = sorted(self.voter_ids & self.running - self.paused - self.full)
        majority = len(self.voter_ids) // 2 + 1
        return any(self._is_connected(group) for group in itertools.combinations(well, majority))

    def _is_connected(self, group: Iterable[NodeId]) -> bool:
        return not any(pair in self.cuts for pair in itertools.permutations(group, 2))
