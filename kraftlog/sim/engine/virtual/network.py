"""The simulated network. Each direction between two places is a link that may lose, repeat and delay messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.event_queue import EventQueue


@dataclass(slots=True)
class NetworkConditions:
    """How links without a fault deliver messages. Times in microseconds."""

    delay_us: tuple[int, int] = (200, 2_000)
    drop_rate: float = 0.0
    duplicate_rate: float = 0.0
    late_rate: float = 0.0
    """The share of messages that are delayed by a heavy tail: they arrive after messages that were sent later."""
    late_us_max: int = 0


class Network:
    """Carries callbacks instead of bytes: each does what happens when its message arrives."""

    def __init__(self, event_queue: EventQueue, random: Random, conditions: NetworkConditions, marks: Marks) -> None:
        self.conditions = conditions
        self.cut_since_us: dict[tuple[int, int], int] = {}
        """Links that lose everything, by (source, destination), and the time at which they were cut."""
        self.clogged_until_us: dict[tuple[int, int], int] = {}
        """Links that delay all messages, and the time at which they deliver them."""
        self.refused_until_us: dict[tuple[int, int], int] = {}
        """Links on which every connection is refused although a process listens, and until when."""
        self._event_queue = event_queue
        self._random = random
        self._marks = marks

    def send(self, source: int, destination: int, arrive: Callable[[], None], *, sent_after_us: int = 0) -> None:
        """Send a message `sent_after_us` from now. `arrive` is called at the destination, zero, one or more times."""
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
        """Return whether a connection attempt made now is refused."""
        return self.refused_until_us.get((source, destination), 0) > self._event_queue.now_us

    def cut_links(self, links: Iterable[tuple[int, int]]) -> None:
        """From now on, lose everything that is sent over these links."""
        for link in links:
            self.cut_since_us.setdefault(link, self._event_queue.now_us)

    def heal_links(self, links: Iterable[tuple[int, int]]) -> None:
        """Let messages pass these links again."""
        for link in links:
            self.cut_since_us.pop(link, None)

    def heal(self) -> None:
        """End all faults of the network: no message is lost, repeated or late."""
        self.cut_since_us.clear()
        self.clogged_until_us.clear()
        self.refused_until_us.clear()
        self.conditions = NetworkConditions()
