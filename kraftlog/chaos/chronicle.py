"""When each process ran, and when something ailed it, by the machine's clock: log lines have that time, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass

from kraftbase.types import NodeId


@dataclass(slots=True)
class Span:
    """Something that concerns a node, from when to when, in seconds since 1970; an end of infinity: it lasts."""

    node_id: NodeId
    began: float
    ended: float = math.inf


class Chronicle:
    """Of one run. Its size follows the number of faults."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is the time in seconds since 1970."""
        self._now = now
        self.lives: list[Span] = []
        """Each process: from before it was started until it was sent the signal that ended it; one that ended by
        itself: until it was last seen."""
        self.ailments: list[Span] = []
        """When a node was not up, paused, cut off and so on."""
        self.refusals: list[Span] = []
        """When connections to a node were refused although it was up: at most from when to when."""
        self._living: dict[NodeId, Span] = {}
        self._seen: dict[NodeId, float] = {}
        self._ailing: dict[NodeId, Span] = {}

    def begin(self, node_id: NodeId) -> None:
        """A process is about to be started."""
        self.end(node_id)
        self._living[node_id] = Span(node_id, self._now())
        self._seen[node_id] = self._living[node_id].began
        self.lives.append(self._living[node_id])

    def see(self, node_id: NodeId) -> None:
        """A process runs."""
        self._seen[node_id] = self._now()

    def end(self, node_id: NodeId, *, by_itself: bool = False) -> None:
        """A process is about to be ended, or has ended by itself a moment ago."""
        if (life := self._living.pop(node_id, None)) is not None:
            life.ended = self._seen[node_id] if by_itself else self._now()

    def note_ailing(self, node_ids: Set[NodeId]) -> None:
        """Something ails these nodes now, and none of the others."""
        for node_id in self._ailing.keys() - node_ids:
            self._ailing.pop(node_id).ended = self._now()
        for node_id in node_ids - self._ailing.keys():
            self._ailing[node_id] = Span(node_id, self._now())
            self.ailments.append(self._ailing[node_id])
