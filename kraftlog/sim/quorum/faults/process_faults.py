"""Faults of processes: killed at any point, paused, restarted repeatedly; and leaders that are asked to resign."""

from __future__ import annotations

from functools import partial
from random import Random

from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.faults.fault import POWER_CUTS, any_machine, downtime_us, duration_us, fault, running
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.world import World
from raft.core.events import ResignRequested


def _kill(world: World, random: Random, machine: Machine, crash: Crash) -> str:
    world.kill(machine, crash, restart_after_us=downtime_us(random))
    return f"{machine.node_id}: {crash.value}"


@fault("process: killed")
def kill(world: World, random: Random) -> str | None:
    """Kill a process. The page cache survives."""
    return _kill(world, random, any_machine(world, random), Crash.KILLED)


@fault("process: the leader is killed")
def kill_leader(world: World, random: Random) -> str | None:
    """Kill the leader."""
    leader = world.leader()
    return None if leader is None else _kill(world, random, leader, Crash.KILLED)


@fault("power: cut, nothing unsynced kept")
def cut_power_keep_nothing(world: World, random: Random) -> str | None:
    """Lose everything that was not synced."""
    return _kill(world, random, any_machine(world, random), Crash.NOTHING_KEPT)


@fault("power: cut, a torn write kept")
def cut_power_keep_prefix(world: World, random: Random) -> str | None:
    """Keep unsynced writes up to some byte."""
    return _kill(world, random, any_machine(world, random), Crash.PREFIX_KEPT)


@fault("power: cut, sectors kept in any order")
def cut_power_keep_sectors(world: World, random: Random) -> str | None:
    """Keep any of the unsynced sectors of 512 bytes, and the first few of the new file names."""
    return _kill(world, random, any_machine(world, random), Crash.SECTORS_KEPT)


@fault("power: cut, pages kept in any order")
def cut_power_keep_pages(world: World, random: Random) -> str | None:
    """Keep any of the unsynced pages of 4096 bytes, and the first few of the new file names."""
    return _kill(world, random, any_machine(world, random), Crash.PAGES_KEPT)


@fault("power: cut everywhere at once")
def cut_power_everywhere(world: World, random: Random) -> str | None:
    """Cut the power of all machines at the same moment."""
    for machine in list(world.machines.values()):
        _kill(world, random, machine, random.choice(POWER_CUTS))
    return "all"


@fault("power: cut at a majority")
def cut_power_of_a_majority(world: World, random: Random) -> str | None:
    """Cut the power of a majority of the voters at the same moment."""
    chosen = random.sample(world.voter_ids, world.majority)
    for node_id in chosen:
        _kill(world, random, world.machines[node_id], random.choice(POWER_CUTS))
    return str(sorted(chosen))


@fault("process: killed between two operations")
def kill_between_operations(world: World, random: Random) -> str | None:
    """Kill a process before some file operation, message or apply."""
    candidates = running(world)
    if not candidates:
        return None
    machine = random.choice(candidates)
    process = machine.process
    if process is None:
        return None
    process.crash_after = random.choice([0, 1, 2, 5, 20, 100])
    process.crash = random.choice([Crash.KILLED, *POWER_CUTS])
    return f"{machine.node_id} after {process.crash_after} more"


@fault("process: killed after granting a vote")
def kill_after_vote(world: World, random: Random) -> str | None:
    """Kill the next voter that grants a vote. After the restart it knows only what its disk holds."""
    for machine in running(world):
        if machine.process is not None:
            machine.process.killed_after_vote = random.choice(POWER_CUTS)
    return "the next voter"


@fault("power: cut before the leader's log is synced")
def cut_power_before_sync(world: World, random: Random) -> str | None:
    """Cut the leader's power before its next sync. Its followers may have the new records; its own disk does not."""
    leader = world.leader()
    if leader is None or leader.process is None:
        return None
    leader.process.killed_before_sync = random.choice(POWER_CUTS)
    return str(leader.node_id)


@fault("process: restarted again and again")
def restart_storm(world: World, random: Random) -> str | None:
    """Kill the same process repeatedly, soon after each start."""
    machine = any_machine(world, random)
    for number in range(8):
        world.event_queue.after(
            number * random.randrange(1, 900) * MICROSECONDS_PER_MS,
            lambda: world.kill(machine, random.choice([Crash.KILLED, *POWER_CUTS]), restart_after_us=1_000),
        )
    return str(machine.node_id)


@fault("process: restarted at another address")
def move(world: World, random: Random) -> str | None:
    """Restart a process at another address. The other nodes get the new address in their configuration one by one.

    No node connects to an address that a message names. So a voter that moved receives answers from the others, but no
    requests at its new address from nodes that were not restarted with it yet.
    """
    machine = any_machine(world, random)
    machine.move()
    for other in world.machines.values():
        if other is not machine:
            world.event_queue.after(duration_us(random), partial(_reconfigure, world, other))
    return _kill(world, random, machine, Crash.KILLED)


def _reconfigure(world: World, machine: Machine) -> None:
    if machine.process is not None and machine.process.configured_voters != world.configured_voters:
        world.kill(machine, Crash.KILLED, restart_after_us=1_000)


def _pause(world: World, machine: Machine, pause_us: int) -> str | None:
    process = machine.process
    if process is None or machine.view.is_paused:
        return None
    machine.view.is_paused = True

    def resume() -> None:
        if machine.process is process:
            machine.view.is_paused = False
            process.resume()

    world.event_queue.after(pause_us, resume)
    return str(machine.node_id)


@fault("process: paused")
def pause(world: World, random: Random) -> str | None:
    """Pause a process for a while. It then continues without noticing."""
    return _pause(world, any_machine(world, random), duration_us(random, 50, 30_000))


@fault("process: the leader is paused")
def pause_leader(world: World, random: Random) -> str | None:
    """Pause the leader, often for just longer than it may lead without fetches.

    It then continues as if it still led.
    """
    leader = world.leader()
    if leader is None:
        return None
    just_too_long_us = int(random.uniform(2, 3) * world.parameters.quorum.check_quorum_timeout_ms * MICROSECONDS_PER_MS)
    return _pause(world, leader, random.choice([duration_us(random, 50, 30_000), just_too_long_us]))


@fault("process: shut down")
def shut_down(world: World, random: Random) -> str | None:
    """Shut a process down: it resigns and ends, or is killed after 5 seconds."""
    machine = any_machine(world, random)
    process = machine.process
    if process is None:
        return None
    process.run("shut down", process.shut_down)

    def lose_patience() -> None:
        if machine.process is process:
            world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))

    world.event_queue.after(5_000 * MICROSECONDS_PER_MS, lose_patience)
    return str(machine.node_id)


@fault("process: the leader is asked to resign")
def resign(world: World, random: Random) -> str | None:
    """Ask the leader to resign."""
    leader = world.leader()
    if leader is None or leader.process is None:
        return None
    process = leader.process
    process.run("resign", lambda: process.shell.step(ResignRequested(process.shell.replica.epoch)))
    return str(leader.node_id)
