"""Coverage marks: what happened in a run, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from raft.core.actions import Action
from raft.core.events import Event


class Marks:
    """Counts what happened, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        """Count one occurrence of `name`."""
        self.counts[name] += 1

    def saw(self, events: Iterable[Event], actions: Iterable[Action]) -> None:
        """Count one occurrence of each event and action, by class name."""
        counts = self.counts
        for event in events:
            counts[type(event).__name__] += 1
        for action in actions:
            counts[type(action).__name__] += 1

    def add(self, other: Marks) -> None:
        """Add the counts of another run."""
        self.counts.update(other.counts)
