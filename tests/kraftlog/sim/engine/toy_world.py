"""The smallest world: counters that are counted up, killed, and started again with what they have saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from kraftlog.sim.engine.event_world import EventWorld
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.mutation import MUTATIONS, instead, mutation
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.parameters import Overrides, Parameters
from kraftlog.sim.engine.running import run_to_end
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.engine.world import Size, World

# --- what is simulated: elsewhere it is production code ---------------------------------------------------------------


class Counter:
    """It counts, and saves its value each time."""

    def __init__(self) -> None:
        self.value = self.saved = 0

    def count(self) -> None:
        self.value += 1
        self.save()

    def save(self) -> None:
        self.saved = self.value

    def restart(self) -> None:
        self.value = self.saved


# --- what a seed draws ------------------------------------------------------------------------------------------------

KILLED: Final = "process: killed"
IDLE: Final = "client: idle"
FAULT_KINDS: Final = (KILLED, IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyParameters(Parameters):
    """One run's."""

    counters: int

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"counters": self.counters}


def draw(seed: int, overrides: Overrides) -> ToyParameters:
    random = Random(f"toy {seed}")
    kinds, counters = overrides.kinds_to_draw(FAULT_KINDS), random.choice([2, 3])
    return ToyParameters(
        seed=seed,
        seconds=random.choice([20, 40]),
        fault_kinds=tuple(random.sample(kinds, len(kinds))),
        counters=overrides.sizes.get("counters", counters),
    )


# --- the world, and one run of it -------------------------------------------------------------------------------------


class ToyWorld(EventWorld):
    """Each second a counter is counted up or meets a fault, and is judged."""

    def __init__(self, parameters: ToyParameters, marks: Marks, *, echo: bool) -> None:
        super().__init__(Random(f"world of toys {parameters.seed}"), marks, echo=echo)
        self.parameters = parameters
        self.counters = [Counter() for _ in range(parameters.counters)]
        self.promised = [0 for _ in self.counters]
        self.checks = 0

    @property
    def figures(self) -> Mapping[str, int]:
        return {"counted_up": sum(self.promised)}

    def describe_nodes(self) -> list[str]:
        return [f"counter {number}: {counter.value}" for number, counter in enumerate(self.counters)]

    def act(self) -> None:
        """One second."""
        number = self.random.randrange(len(self.counters))
        counter, kinds = self.counters[number], self.parameters.fault_kinds
        fault = self.random.choice(kinds) if kinds and self.random.random() < 0.3 else None
        if fault is not None:
            self.marks.hit(f"fault: {fault}")
            self.note(f"fault: {fault}, counter {number}")
        if fault == KILLED:
            counter.restart()
        elif fault is None:
            counter.count()
            self.promised[number] = counter.value
            self.marks.hit("counted up")
            self.note(f"counter {number} is at {counter.value}")
        self.check()
        self.event_queue.after(MICROSECONDS_PER_SECOND, self.act)

    def check(self) -> None:
        """Raises Violation."""
        for counter, promised in zip(self.counters, self.promised, strict=True):
            self.checks += 1
            if counter.value < promised:
                raise Violation(f"a counter does not go back (1): it is at {counter.value}, and was at {promised}")


def run(parameters: ToyParameters, *, echo: bool = False) -> Outcome:
    """One run from beginning to end."""
    world = ToyWorld(parameters, Marks(), echo=echo)
    world.event_queue.after(0, world.act)
    return run_to_end(parameters, world, lambda: world.run_for(parameters.seconds * MICROSECONDS_PER_SECOND))


# --- its bugs, and what the engine gets -------------------------------------------------------------------------------


@mutation("nothing is saved", "our own", faults=(KILLED,), counters=1)
def nothing_saved() -> list[Any]:
    """What was counted is gone with the process."""
    return [instead(Counter, "save", lambda self: None)]


TOY: Final = World(
    name="toy",
    subject="counters",
    draw=draw,
    run=run,
    invariants=1,
    marks=("counted up", *(f"fault: {kind}" for kind in FAULT_KINDS)),
    covering_seeds=5,
    fault_kinds=FAULT_KINDS,
    bugs=(MUTATIONS["nothing is saved"],),
    sizes=(Size("counters", least=1, most=9, smaller=(1,)),),
    hunt_seconds=30,
)


def run_with_bug(parameters: ToyParameters, *, echo: bool = False) -> Outcome:
    """One run of a program that has the bug, in whatever process it runs."""
    with TOY.bugs[0].put_in():
        return run(parameters, echo=echo)


BROKEN: Final = replace(TOY, run=run_with_bug)
"""A world in which many seeds fail."""
