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
        """It happened once more."""
        self.counts[name] += 1

    def saw(self, events: Iterable[Event], actions: Iterable[Action]) -> None:
        """Each of these happened once more, by its class."""
        counts = self.counts
        for event in events:
            counts[type(event).__name__] += 1
        for action in actions:
            counts[type(action).__name__] += 1

    def add(self, other: Marks) -> None:
        """Take over what another run has hit."""
        self.counts.update(other.counts)
