"""Shrinking: the same seed with less and less, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.parameters import Overrides, draw
from kraftlog.sim.quorum.runs.outcome import Outcome
from kraftlog.sim.quorum.runs.run import run_seed

Say = Callable[[str], None]


def shrink(seed: int, say: Say) -> tuple[Overrides, Outcome]:
    """The smallest run of `seed` found that still fails: shorter, with fewer faults, with fewer nodes.

    Raises ValueError if the seed does not fail.
    """
    best = Overrides()
    outcome = run_seed(seed)
    if outcome.violation is None:
        raise ValueError(f"seed {seed} does not fail: there is nothing to shrink")
    best, outcome = _shorter(seed, best, outcome, say)
    best, outcome = _fewer_faults(seed, best, outcome, say)
    best, outcome = _fewer_nodes(seed, best, outcome, say)
    return best, outcome


def _try(seed: int, overrides: Overrides, say: Say, what: str) -> Outcome | None:
    outcome = run_seed(seed, overrides=overrides)
    say(f"{what}: {'still fails' if outcome.violation is not None else 'does not fail'}")
    return outcome if outcome.violation is not None else None


def _shorter(seed: int, best: Overrides, outcome: Outcome, say: Say) -> tuple[Overrides, Outcome]:
    low, high = 0, draw(seed, KINDS).safety_seconds
    while high - low > 1:
        middle = (low + high) // 2
        found = _try(seed, replace(best, safety_seconds=middle), say, f"{middle} s of faults")
        if found is None:
            low = middle
        else:
            high, best, outcome = middle, replace(best, safety_seconds=middle), found
    return best, outcome


def _fewer_faults(seed: int, best: Overrides, outcome: Outcome, say: Say) -> tuple[Overrides, Outcome]:
    for kind in outcome.parameters.fault_kinds:
        fewer = replace(best, without_faults=[*best.without_faults, kind])
        found = _try(seed, fewer, say, f"without {kind!r}")
        if found is not None:
            best, outcome = fewer, found
    return best, outcome


def _fewer_nodes(seed: int, best: Overrides, outcome: Outcome, say: Say) -> tuple[Overrides, Outcome]:
    smaller = [replace(best, observers=0)] if outcome.parameters.observers else []
    smaller += [replace(best, voters=voters) for voters in (3, 2) if voters < outcome.parameters.voters]
    if outcome.parameters.brokers is not None:
        smaller += [replace(best, brokers=count) for count in (0, 1)]
    for overrides in smaller:
        found = _try(seed, overrides, say, _nodes(overrides))
        if found is not None:
            best, outcome = overrides, found
    return best, outcome


def _nodes(overrides: Overrides) -> str:
    counts = ((overrides.voters, "voters"), (overrides.observers, "observers"), (overrides.brokers, "brokers"))
    return ", ".join(f"{'all' if count is None else count} {what}" for count, what in counts)
