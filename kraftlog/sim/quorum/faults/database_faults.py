"""Faults of state machines' databases: other contents than the others', rot, loss, damage."""

from __future__ import annotations

from random import Random

from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.faults.fault import any_machine, downtime_us, duration_us, fault
from kraftlog.sim.quorum.world import World


@fault("database: comes to something else")
def diverge(world: World, random: Random) -> str | None:
    """The digest of a node's tables differs from the others': the node must be detected, fenced and rebuilt."""
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
def rot_row(world: World, random: Random) -> str | None:
    """A value in a node's tables changes where SQLite does not look: the node must detect that and rebuild them."""
    machine = any_machine(world, random)
    process = machine.process
    others = [other for other in world.machines.values() if other.view.has_diverged]
    if process is None or others or process.state_machine.is_fenced or not world.atlas.may_harm(machine):
        return None
    changed = machine.database.rot()
    if changed is None:
        return None
    machine.view.has_diverged = machine.view.has_rotted = True
    world.kill(machine, Crash.KILLED, restart_after_us=1_000)  # before it is read: the next start scrubs
    return f"{machine.node_id}: {changed}"


@fault("database: lost")
def lose_database(world: World, random: Random) -> str | None:
    """The state machine's file is lost; the log fills a new one."""
    machine = any_machine(world, random)
    if not world.atlas.may_lose_database(machine):
        return None
    world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    machine.database.lose()
    return str(machine.node_id)


@fault("database: damaged")
def damage_database(world: World, random: Random) -> str | None:
    """Bits of the state machine's file flip."""
    machine = any_machine(world, random)
    if not world.atlas.may_lose_database(machine):
        return None
    world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    machine.database.damage()
    return str(machine.node_id)


@fault("database: cannot be written for a while")
def lock_database(world: World, random: Random) -> str | None:
    """Another process has locked it, or there is no room: what is committed waits, and is applied then."""
    machine = any_machine(world, random)
    database = machine.database
    database.is_locked = True

    def end() -> None:
        database.is_locked = False

    world.event_queue.after(duration_us(random), end)
    return str(machine.node_id)


@fault("database: a reader keeps its write-ahead log")
def hold_database(world: World, random: Random) -> str | None:
    """It cannot start over, grows to its bound, and then nothing is applied until the reader ends."""
    machine = any_machine(world, random)
    database = machine.database
    database.is_held = True

    def end() -> None:
        database.is_held = False

    world.event_queue.after(duration_us(random, high_ms=60_000), end)
    return str(machine.node_id)
