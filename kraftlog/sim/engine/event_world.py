"""A world whose steps are the events of its queue."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.trace import Trace
from kraftlog.sim.engine.virtual.clock import START_OF_TIME_MS
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue


class EventWorld:
    """Time, chance, the trace and the marks of one run. A subclass adds what is simulated, and judges it."""

    def __init__(self, random: Random, marks: Marks, *, echo: bool = False) -> None:
        """`echo`: print every line of the trace."""
        self.marks = marks
        self.random = random
        self.event_queue = EventQueue()
        self.trace = Trace[str](echo=echo)
        self.is_quiet = False
        """Clients end what they have begun, and begin nothing new; there are no faults."""

    @property
    def figures(self) -> Mapping[str, int]:
        """Nothing but steps and checks is counted."""
        return {}

    @property
    def true_ms(self) -> int:
        """What a right clock shows."""
        return START_OF_TIME_MS + self.event_queue.now_us // MICROSECONDS_PER_MS

    def new_random(self) -> Random:
        """A source of chance of its own."""
        return Random(self.random.getrandbits(64))

    def note(self, text: str) -> None:
        """Enter something in the trace."""
        self.trace.note(self.event_queue.now_us, text)

    def run_for(self, duration_us: int) -> None:
        """Let time pass. Raises Violation."""
        end_us = self.event_queue.now_us + duration_us
        while self.event_queue.run_next(end_us):
            self.trace.steps += 1
