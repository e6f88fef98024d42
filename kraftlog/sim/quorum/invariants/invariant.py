"""The base class of invariants."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class Invariant:
    """Something that must hold after every step. A subclass overrides what it needs and keeps the state that it needs.

    One instance lives as long as one run. The docstring describes what must hold, and the false positives.
    """

    number: ClassVar[int]
    """The number of the invariant in docs/faults/invariants.md."""
    title: ClassVar[str]
    source: ClassVar[str]
    """The origin of the rule: a paper, another system's checker, a bug."""
    looks_at: ClassVar[frozenset[str | type]] = frozenset()
    """The fields of a step (STEP_FIELDS) and the classes of events and actions that the invariant depends on.

    It runs after steps that set one of these fields or contain one of these events or actions. If the set is empty, it
    runs after every step.
    """
    is_about_brokers: ClassVar[bool] = False
    """Whether it runs only in runs with brokers."""

    def __init__(self, world: Observed) -> None:
        self.world = world

    def after_step(self, step: Step) -> None:
        """Check a step. Raises Violation."""

    def at_end(self) -> None:
        """Check the whole run after the healed cluster has converged. Raises Violation."""

    def violated(self, message: str) -> NoReturn:
        """Raise a Violation with the title and number of the invariant."""
        raise Violation(f"{self.title} ({self.number}): {message}")
