"""A world whose steps are the events of its queue."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.trace import Trace
from kraftlog.sim.engine.virtual.clock import START_OF_TIME_MS
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue


class EventWorld:
    """Time, random numbers, the trace and the marks of one run. A subclass adds what is simulated, and the checks."""

    def __init__(self, random: Random, marks: Marks, *, echo: bool = False) -> None:
        """`echo`: print every line of the trace."""
        self.marks = marks
        self.random = random
        self.event_queue = EventQueue()
        self.trace = Trace[str](echo=echo)
        self.is_quiet = False
        """Whether faults have stopped: clients finish the requests in progress and send no new ones."""

    @property
    def figures(self) -> Mapping[str, int]:
        """Counts of this world other than steps and checks: none unless a subclass has some."""
        return {}

    @property
    def true_ms(self) -> int:
        """What a correct wall clock shows, in milliseconds since 1970."""
        return START_OF_TIME_MS + self.event_queue.now_us // MICROSECONDS_PER_MS

    def new_random(self) -> Random:
        """Return a new random number generator, seeded by this world's."""
        return Random(self.random.getrandbits(64))

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        self.trace.note(self.event_queue.now_us, text)

    def run_for(self, duration_us: int) -> None:
        """Run the events of the next `duration_us`. Raises Violation."""
        end_us = self.event_queue.now_us + duration_us
        while self.event_queue.run_next(end_us):
            self.trace.steps += 1
