"""The network: messages between places, each way of each pair a link of its own that may lose, repeat and delay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.event_queue import EventQueue


@dataclass(slots=True)
class NetworkConditions:
    """How messages fare that no fault is in the way of. Times in microseconds."""

    delay_us: tuple[int, int] = (200, 2_000)
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    late_rate: float = 0.0
    """How many messages take long, by the heavy tail below: they arrive after what was sent later."""
    late_us_max: int = 0


class Network:
    """Carries callbacks instead of bytes: what is to happen where a message arrives."""

    def __init__(self, event_queue: EventQueue, random: Random, conditions: NetworkConditions, marks: Marks) -> None:
        self.conditions = conditions
        self.cut_since_us: dict[tuple[int, int], int] = {}
        """Links that lose everything, by (source, destination), and since when."""
        self.clogged_until_us: dict[tuple[int, int], int] = {}
        """Links that keep everything back until then."""
        self.refused_until_us: dict[tuple[int, int], int] = {}
        """Links on which every connection is refused until then, though a process listens."""
        self._event_queue = event_queue
        self._random = random
        self._marks = marks

    def send(self, source: int, destination: int, arrive: Callable[[], None], *, sent_after_us: int = 0) -> None:
        """Send a message: `arrive` happens there never, once or more often. It leaves in `sent_after_us`."""
        conditions, random = self.conditions, self._random
        if (source, destination) in self.cut_since_us:
            self._marks.hit("network: lost on a cut link")
            return
        if conditions.drop_rate and random.random() < conditions.drop_rate:
            self._marks.hit("network: dropped")
            return
        self._event_queue.after(sent_after_us + self._delay_us(source, destination), arrive)
        if conditions.duplicate_rate and random.random() < conditions.duplicate_rate:
            self._marks.hit("network: duplicated")
            self._event_queue.after(sent_after_us + self._delay_us(source, destination) * random.randint(1, 50), arrive)

    def _delay_us(self, source: int, destination: int) -> int:
        conditions, random = self.conditions, self._random
        low, high = conditions.delay_us
        delay_us = random.randint(low, high)
        if conditions.late_rate and random.random() < conditions.late_rate:
            self._marks.hit("network: late")
            delay_us += int(conditions.late_us_max * random.random() ** 4)
        until_us = self.clogged_until_us.get((source, destination))
        if until_us is not None and until_us > self._event_queue.now_us:
            self._marks.hit("network: clogged")
            delay_us += until_us - self._event_queue.now_us
        return delay_us

    def refuses(self, source: int, destination: int) -> bool:
        """Whether a connection that is made now is refused on its way."""
        return self.refused_until_us.get((source, destination), 0) > self._event_queue.now_us

    def cut_links(self, links: Iterable[tuple[int, int]]) -> None:
        """Lose everything that is sent over these from now on."""
        for link in links:
            self.cut_since_us.setdefault(link, self._event_queue.now_us)

    def heal_links(self, links: Iterable[tuple[int, int]]) -> None:
        """Let messages pass again."""
        for link in links:
            self.cut_since_us.pop(link, None)

    def heal(self) -> None:
        """Mend everything: nothing is lost, repeated or late any more."""
        self.cut_since_us.clear()
        self.clogged_until_us.clear()
        self.refused_until_us.clear()
        self.conditions = NetworkConditions()
