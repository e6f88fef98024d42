"""Faults of clocks. Safety depends on no clock, and elections only on clocks that are not wrong forever."""

from __future__ import annotations

from random import Random

from kraftlog.sim.quorum.faults.fault import any_machine, duration_us, fault
from kraftlog.sim.quorum.world import World


@fault("clock: runs fast or slow")
def drift(world: World, random: Random) -> str | None:
    """Make a machine's time pass up to ten times as fast, or as slowly, as the others'."""
    machine = any_machine(world, random)
    rate = random.choice([0.1, 0.5, 0.9, 1.1, 2.0, 10.0])
    machine.clock.drift(world.event_queue.now_us, rate)
    world.event_queue.after(duration_us(random), lambda: machine.clock.drift(world.event_queue.now_us, 1.0))
    return f"{machine.node_id}: {rate} times"


@fault("clock: leaps forward")
def leap(world: World, random: Random) -> str | None:
    """Move a machine's monotonic clock forward, as when it slept."""
    machine = any_machine(world, random)
    forward_ms = random.choice([100, 1_000, 10_000, 3_600_000])
    machine.clock.jump(forward_ms)
    machine.view.has_leapt = True
    return f"{machine.node_id}: {forward_ms} ms"


@fault("clock: the wall clock jumps")
def jump(world: World, random: Random) -> str | None:
    """Set a machine's wall clock forward or back. Timestamps in the log must not go back."""
    machine = any_machine(world, random)
    machine.clock.wall_offset_ms += random.choice([-3_600_000, -1_000, 1_000, 3_600_000])
    return f"{machine.node_id}: {machine.clock.wall_offset_ms} ms off"
