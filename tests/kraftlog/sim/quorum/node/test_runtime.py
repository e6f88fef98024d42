"""The simulated runtime: when it calls back after answers."""

from __future__ import annotations

from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.node.runtime import AFTER_ANSWERS_US_MAX
from kraftlog.sim.quorum.parameters import draw
from kraftlog.sim.quorum.world import World


def make_world() -> World:
    world = World(draw(1, Overrides(sizes={"voters": 3}, fault_kinds=())), marks=Marks())
    world.start_all()
    world.run_for(5_000_000)
    return world


def test_it_calls_back_after_answers_at_once_or_a_little_later_and_never_within_the_call() -> None:
    world = make_world()
    process = world.machines[1].process
    assert process is not None
    delays_us: list[int] = []
    for _ in range(60):
        began_us, count = world.event_queue.now_us, len(delays_us)

        def called_back(began_us: int = began_us) -> None:
            assert process.step.label == "after answers"
            delays_us.append(world.event_queue.now_us - began_us)

        process.runtime.call_after_answers(called_back)
        assert len(delays_us) == count
        world.run_for(50_000)
    assert len(delays_us) == 60
    at_once = sum(delay_us == 0 for delay_us in delays_us)
    soon = sum(0 < delay_us < AFTER_ANSWERS_US_MAX for delay_us in delays_us)
    assert at_once >= 10 and soon >= 10


def test_a_process_that_has_ended_is_not_called_back() -> None:
    world = make_world()
    process = world.machines[1].process
    assert process is not None
    called: list[str] = []
    process.runtime.call_after_answers(lambda: called.append("called back"))
    process.end("killed", Crash.KILLED)
    world.run_for(50_000)
    assert called == []
