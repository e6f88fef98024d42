"""What every invariant is."""

from __future__ import annotations

from typing import ClassVar, NoReturn

from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step


class Invariant:
    """Something that must hold after every step. A subclass overrides what it needs and keeps what it has to remember.

    One instance lives as long as one run. Its docstring describes what must hold and its false positives.
    """

    number: ClassVar[int]
    """The number under which the list of invariants in docs/faults/invariants.md has it."""
    title: ClassVar[str]
    source: ClassVar[str]
    """Where the rule is from: a paper, another system's checker, a bug."""
    looks_at: ClassVar[frozenset[str | type]] = frozenset()
    """Fields of a step (STEP_FIELDS), and classes of events and actions. It is run after steps that set one of these
    fields or have one of these events or actions; after every step if nothing is named."""
    is_about_brokers: ClassVar[bool] = False
    """It is run only if there are brokers."""

    def __init__(self, world: Observed) -> None:
        self.world = world

    def after_step(self, step: Step) -> None:
        """Check what a step did. Raises Violation."""

    def at_end(self) -> None:
        """Check the whole run, after the healed cluster has converged. Raises Violation."""

    def violated(self, message: str) -> NoReturn:
        """Raise the Violation."""
        raise Violation(f"{self.title} ({self.number}): {message}")
