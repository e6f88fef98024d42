"""When each process ran, and when faults affected it, by the machine's clock, which log lines have, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass

from kraftbase.types import NodeId


@dataclass(slots=True)
class Span:
    """A state of a node from one time to another, in seconds since 1970. The end is infinite while the state lasts."""

    node_id: NodeId
    began: float
    ended: float = math.inf


class Chronicle:
    """The chronicle of one run. Its size follows the number of faults."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the time in seconds since 1970."""
        self._now = now
        self.lives: list[Span] = []
        """The life of each process: from before its start until it got the signal that ended it, or, if it ended by
        itself, until it was last seen."""
        self.ailments: list[Span] = []
        """When a node was down, paused, cut off and so on."""
        self.refusals: list[Span] = []
        """When connections to a node may have been refused although it was up."""
        self._living: dict[NodeId, Span] = {}
        self._seen: dict[NodeId, float] = {}
        self._ailing: dict[NodeId, Span] = {}

    def begin(self, node_id: NodeId) -> None:
        """Note that a process is about to be started."""
        self.end(node_id)
        self._living[node_id] = Span(node_id, self._now())
        self._seen[node_id] = self._living[node_id].began
        self.lives.append(self._living[node_id])

    def see(self, node_id: NodeId) -> None:
        """Note that a process runs."""
        self._seen[node_id] = self._now()

    def end(self, node_id: NodeId, *, by_itself: bool = False) -> None:
        """Note that a process is about to be ended, or has just ended by itself."""
        if (life := self._living.pop(node_id, None)) is not None:
            life.ended = self._seen[node_id] if by_itself else self._now()

    def note_ailing(self, node_ids: Set[NodeId]) -> None:
        """Note that faults now affect these nodes, and no others."""
        for node_id in self._ailing.keys() - node_ids:
            self._ailing.pop(node_id).ended = self._now()
        for node_id in node_ids - self._ailing.keys():
            self._ailing[node_id] = Span(node_id, self._now())
            self.ailments.append(self._ailing[node_id])
