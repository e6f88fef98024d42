"""The schedule of faults, drawn from a seed: which fault starts when, and for how long.

Two lanes run at the same time: one ends and starts processes, the other injects all other faults, so that nodes are
killed while others are paused, cut off or without disk space. Within a lane one fault follows the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kraftlog.chaos import nemesis, partitions
from kraftlog.chaos.nemesis import Nemesis


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault, how often it is drawn, and for how long."""

    fault: type[Nemesis]
    weight: int
    hold_seconds: tuple[float, float]
    """The shortest and the longest time of the fault; the distribution is log-uniform."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One scheduled fault."""

    fault: type[Nemesis]
    hold_seconds: float
    rest_seconds: float
    """The pause after its end, before the next one of its lane."""
    seed: int
    """The seed of the random numbers from which the fault draws its target."""

    def make(self) -> Nemesis:
        """Return the fault, ready to start."""
        return self.fault(Random(self.seed))


PROCESS_KINDS: Final = (
    Kind(nemesis.KillOne, 6, (0.05, 0.6)),
    Kind(nemesis.LoseDatabase, 1, (0.05, 0.6)),
    Kind(nemesis.KillLeader, 6, (0.05, 0.6)),
    Kind(nemesis.KillMajority, 1, (0.05, 1.0)),
    Kind(nemesis.KillAll, 1, (0.05, 1.0)),
    Kind(nemesis.RestartStorm, 2, (0.05, 0.1)),
    Kind(nemesis.GracefulRestart, 1, (0.05, 1.0)),
    Kind(nemesis.ResignLeader, 1, (0.05, 1.0)),
)
OTHER_KINDS: Final = (
    Kind(nemesis.PauseOne, 2, (0.1, 10.0)),
    Kind(nemesis.PauseLeader, 3, (0.1, 10.0)),
    Kind(partitions.IsolateOne, 2, (0.5, 8.0)),
    Kind(partitions.IsolateLeader, 2, (0.5, 8.0)),
    Kind(partitions.Split, 2, (0.5, 8.0)),
    Kind(partitions.OneWayCut, 3, (0.5, 8.0)),
    Kind(partitions.SlowLink, 1, (1.0, 8.0)),
    Kind(partitions.FillDisk, 2, (1.0, 6.0)),
    Kind(nemesis.Calm, 4, (8.0, 14.0)),
)
PROCESS_REST_SECONDS: Final = (0.1, 1.0)
OTHER_REST_SECONDS: Final = (0.2, 1.5)


def schedule(random: Random, kinds: Sequence[Kind], rest_seconds: tuple[float, float]) -> Iterator[Episode]:
    """Yield episodes without end, the same for the same random numbers. The first ones have each kind once."""
    remaining = random.sample(kinds, len(kinds))
    while True:
        kind = remaining.pop() if remaining else random.choices(kinds, [kind.weight for kind in kinds])[0]
        yield Episode(
            fault=kind.fault,
            hold_seconds=_log_uniform(random, *kind.hold_seconds),
            rest_seconds=random.uniform(*rest_seconds),
            seed=random.getrandbits(32),
        )


def _log_uniform(random: Random, low: float, high: float) -> float:
    factor: float = (high / low) ** random.random()
    return low * factor
