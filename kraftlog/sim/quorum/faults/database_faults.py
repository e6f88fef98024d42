"""Faults of state machines' databases: diverged content, bit rot, loss, damage."""

from __future__ import annotations

from random import Random

from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.faults.fault import any_machine, downtime_us, duration_us, fault
from kraftlog.sim.quorum.world import World


@fault("database: comes to something else")
def diverge(world: World, random: Random) -> str | None:
    """Change the digest of a node's tables. The divergence must be detected, and the node fenced and rebuilt."""
    machine = any_machine(world, random)
    process = machine.process
    others = [other for other in world.machines.values() if other.view.has_diverged]
    if process is None or others or len(world.voter_ids) < 3 or process.store.applied_end_offset == 0:
        return None
    if not world.atlas.may_harm(machine):
        return None
    machine.view.has_diverged = True
    machine.database.diverge()
    world.kill(machine, Crash.KILLED, restart_after_us=1_000)
    return str(machine.node_id)


@fault("database: a stored row changes")
def corrupt_row(world: World, random: Random) -> str | None:
    """Change a value in a node's tables where SQLite does not check.

    The node must detect that and rebuild the tables.
    """
    machine = any_machine(world, random)
    process = machine.process
    others = [other for other in world.machines.values() if other.view.has_diverged]
    if process is None or others or process.state_machine.is_fenced or not world.atlas.may_harm(machine):
        return None
    changed = machine.database.corrupt()
    if changed is None:
        return None
    machine.view.has_diverged = machine.view.has_bit_rot = True
    world.kill(machine, Crash.KILLED, restart_after_us=1_000)  # before it is read: the next start scrubs
    return f"{machine.node_id}: {changed}"


@fault("database: lost")
def lose_database(world: World, random: Random) -> str | None:
    """Lose the state machine's file. The log fills a new one."""
    machine = any_machine(world, random)
    if not world.atlas.may_lose_database(machine):
        return None
    world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    machine.database.lose()
    return str(machine.node_id)


@fault("database: damaged")
def damage_database(world: World, random: Random) -> str | None:
    """Flip bits of the state machine's file."""
    machine = any_machine(world, random)
    if not world.atlas.may_lose_database(machine):
        return None
    world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    machine.database.damage()
    return str(machine.node_id)


@fault("database: cannot be written for a while")
def lock_database(world: World, random: Random) -> str | None:
    """Make writes fail, as another process's lock or a full disk does. Committed records wait and are applied later."""
    machine = any_machine(world, random)
    database = machine.database
    database.is_locked = True

    def end() -> None:
        database.is_locked = False

    world.event_queue.after(duration_us(random), end)
    return str(machine.node_id)


@fault("database: a reader keeps its write-ahead log")
def hold_database(world: World, random: Random) -> str | None:
    """Hold the write-ahead log.

    It cannot start over and grows to its bound; then nothing is applied until the reader ends.
    """
    machine = any_machine(world, random)
    database = machine.database
    database.is_held = True

    def end() -> None:
        database.is_held = False

    world.event_queue.after(duration_us(random, high_ms=60_000), end)
    return str(machine.node_id)
