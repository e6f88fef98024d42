"""Faults of snapshots: bit rot, loss, and crashes and full disks during work on them."""

from __future__ import annotations

from functools import partial
from random import Random

from kraftbase.files.files import join
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.quorum.faults.ambushes import NEEDS_ROOM, SnapshotWork
from kraftlog.sim.quorum.faults.disk_faults import SNAPSHOTS
from kraftlog.sim.quorum.faults.fault import POWER_CUTS, any_machine, downtime_us, duration_us, fault
from kraftlog.sim.quorum.node.process import Process
from kraftlog.sim.quorum.world import World
from snapshot.names import parse_snapshot_name


@fault("process: killed at work on a snapshot")
def kill_at_work(world: World, random: Random) -> str | None:
    """Kill the next node that does a chosen kind of work on a snapshot, or on its log because of one.

    It dies during the work.
    """
    work = random.choice(list(SnapshotWork))
    for machine in world.machines.values():
        after, crash = random.choice([0, 0, 1, 1, 2, 3, 5]), random.choice([Crash.KILLED, *POWER_CUTS])
        machine.ambushes[work] = partial(_let_be_killed, after % 2 if work is SnapshotWork.LOADS else after, crash)
    if work is SnapshotWork.LOADS:  # loading is rare: make one node need a snapshot now
        machine = any_machine(world, random)
        world.kill(machine, Crash.KILLED, restart_after_us=1_000)
        machine.database.lose()
    return f"when {work}"


def _let_be_killed(after: int, crash: Crash, process: Process) -> None:
    process.crash_after, process.crash = after, crash


@fault("disk: full in the middle of a snapshot")
def fill_at_work(world: World, random: Random) -> str | None:
    """Leave hardly any free space when a node next writes or receives a snapshot. There is enough again later."""
    work = random.choice(NEEDS_ROOM)
    for machine in world.machines.values():
        machine.ambushes[work] = partial(_leave_little_room, world, random)
    return f"when {work}"


def _leave_little_room(world: World, random: Random, process: Process) -> None:
    files = process.machine.disk.files
    files.space_limit = files.used_bytes() + random.choice([0, 50, 300])

    def end() -> None:
        files.space_limit = None

    world.event_queue.after(duration_us(random), end)


@fault("snapshot: a bit rots")
def damage_snapshot(world: World, random: Random) -> str | None:
    """Flip a bit of a snapshot. It must be neither loaded nor sent, and another snapshot must replace it."""
    machine = any_machine(world, random)
    files = machine.disk.files
    named = files.durable_files(SNAPSHOTS) if files.exists(SNAPSHOTS) else {}
    names = sorted(name for name in named if parse_snapshot_name(name) is not None and named[name].data)
    if not names or not world.atlas.may_harm(machine):
        return None
    name = random.choice(names)
    position = random.randrange(len(named[name].data))
    machine.view.has_damaged_snapshots = True
    files.damage(join(SNAPSHOTS, name), position, bytes([named[name].data[position] ^ 1 << random.randrange(8)]))
    return f"{machine.node_id}: {name}"


@fault("snapshot: lost")
def lose_snapshot(world: World, random: Random) -> str | None:
    """Delete a snapshot's file while the process is down."""
    machine = any_machine(world, random)
    files = machine.disk.files
    names = sorted(files.durable_files(SNAPSHOTS)) if files.exists(SNAPSHOTS) else []
    names = [name for name in names if parse_snapshot_name(name) is not None]
    if not names or SNAPSHOTS in files.failing_syncs or not world.atlas.may_harm(machine):
        return None
    name = random.choice(names)
    machine.view.has_damaged_snapshots = True
    world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    files.remove(join(SNAPSHOTS, name))
    files.fsync_directory(SNAPSHOTS)
    return f"{machine.node_id}: {name}"
