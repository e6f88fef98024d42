"""Faults of disks: slow, full, failing, corrupted, replaced. Damage stays within what the atlas allows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random

from kraftbase.files.files import SECTOR_BYTES, join, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.disk import DIRECTORY, QUICK_SYNC_US
from kraftlog.sim.quorum.faults.fault import any_machine, downtime_us, duration_us, fault
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.world import World
from raft.storage.directory import LOG_NAME, META_NAME, SNAPSHOTS_NAME
from raft.storage.frame import HEAD_BYTES, Frame, find_frames
from raft.storage.new_directory import NEW_DIRECTORY_NAME
from raft.storage.quorum_state import COPY_NAMES, decode_copy
from raft.storage.segment import parse_segment_name

LOG = join(DIRECTORY, LOG_NAME)
SNAPSHOTS = join(DIRECTORY, SNAPSHOTS_NAME)


@fault("disk: slow")
def slow(world: World, random: Random) -> str | None:
    """Make syncs take from milliseconds to seconds."""
    machine = any_machine(world, random)
    disk = machine.disk
    disk.sync_us = random.choice([(10_000, 60_000), (100_000, 500_000), (1_000_000, 10_000_000)])

    def end() -> None:
        disk.sync_us = QUICK_SYNC_US

    world.event_queue.after(duration_us(random), end)
    return f"{machine.node_id}: {disk.sync_us[0] // 1_000} to {disk.sync_us[1] // 1_000} ms"


@fault("disk: full")
def fill(world: World, random: Random) -> str | None:
    """Leave space for only a few hundred more bytes. There is enough again later."""
    machine = any_machine(world, random)
    files = machine.disk.files
    files.space_limit = files.used_bytes() + random.choice([0, 50, 300, 2_000])

    def end() -> None:
        files.space_limit = None

    world.event_queue.after(duration_us(random), end)
    return str(machine.node_id)


@fault("disk: syncs fail")
def fail_syncs(world: World, random: Random) -> str | None:
    """Make every sync of the log, the quorum state or both fail. The process must end; it starts again later."""
    machine = any_machine(world, random)
    files = machine.disk.files
    names = [join(LOG, name) for name in files.durable_files(LOG)] if files.exists(LOG) else []
    copies = [join(DIRECTORY, name) for name in COPY_NAMES]
    files.failing_syncs.update(random.choice([names, copies, [*names, *copies, LOG, SNAPSHOTS]]))
    world.event_queue.after(duration_us(random, 100, 5_000), files.failing_syncs.clear)
    return str(machine.node_id)


@fault("disk: reads fail")
def fail_reads(world: World, random: Random) -> str | None:
    """Make reads of a file of the log fail. That segment counts as damaged if the process starts during this time."""
    machine = any_machine(world, random)
    files = machine.disk.files
    if not files.exists(LOG) or not world.atlas.may_harm(machine):
        return None
    names = sorted(name for name in files.durable_files(LOG) if parse_segment_name(name) is not None)
    if not names:
        return None
    world.atlas.harm(machine)
    name = random.choice(names)
    files.failing_reads.add(join(LOG, name))
    world.event_queue.after(duration_us(random), files.failing_reads.clear)
    return f"{machine.node_id}: {name}"


def _frames(machine: Machine) -> list[tuple[str, Frame]]:
    """Return the frames on a disk, with the names of their segments."""
    files = machine.disk.files
    if not files.exists(LOG):
        return []
    return [
        (name, frame)
        for name, file in sorted(files.durable_files(LOG).items())
        if parse_segment_name(name) is not None
        for frame in find_frames(bytes(file.data), 0)
    ]


def _are_vouched(frames: list[tuple[str, Frame]], name: str, start: int, end: int) -> bool:
    """Whether a frame outside the given bytes shows that a frame in them was flushed.

    Only then is damage recognized as such.
    """
    hit = [(at, frame) for at, frame in frames if at == name and frame.position < end and start < frame.end_position]
    vouched = max((frame.durable_before for at, frame in frames if (at, frame) not in hit), default=0)
    return any(frame.batch is not None and frame.batch.end_offset <= vouched for _, frame in hit)


def _damage_log(world: World, random: Random, *, sector: bool) -> str | None:
    machine = any_machine(world, random)
    frames = _frames(machine)
    with_batches = [(name, frame) for name, frame in frames if frame.batch is not None]
    if not with_batches or not world.atlas.may_harm(machine):
        return None
    name, frame = random.choice(with_batches)
    path = join(LOG, name)
    files = machine.disk.files
    data = files.durable_files(LOG)[name].data
    if sector:
        start = random.randrange(frame.position, frame.end_position) // SECTOR_BYTES * SECTOR_BYTES
        changed = bytes(min(SECTOR_BYTES, len(data) - start))
        if changed == data[start : start + SECTOR_BYTES]:
            return None
    else:
        start = random.choice(
            [random.randrange(frame.position, frame.end_position), frame.position + random.randrange(HEAD_BYTES)]
        )
        changed = bytes([data[start] ^ 1 << random.randrange(8)])
    if not _are_vouched(frames, name, start, start + len(changed)):
        return None
    world.atlas.harm(machine)
    files.damage(path, start, changed)
    if random.random() < 0.5:
        world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
    return f"{machine.node_id}: {name} byte {start}"


@fault("disk: a bit of the log flips")
def flip_log_bit(world: World, random: Random) -> str | None:
    """Change a bit of data that was flushed long ago, in a frame's head or in its batch."""
    return _damage_log(world, random, sector=False)


@fault("disk: a sector of the log is lost")
def lose_log_sector(world: World, random: Random) -> str | None:
    """Zero a sector that was written and synced, as after a misdirected or lost write."""
    return _damage_log(world, random, sector=True)


@fault("disk: a copy of the quorum state rots")
def damage_quorum_state(world: World, random: Random) -> str | None:
    """Flip a bit in one of the two copies. The process starts from the other one and repairs the damaged one."""
    machine = any_machine(world, random)
    files = machine.disk.files
    named = files.durable_files(DIRECTORY)
    if any(name not in named or not named[name].data for name in COPY_NAMES) or machine.process is not None:
        return None
    name = random.choice(COPY_NAMES)
    states = [decode_copy(bytes(named[copy].data), copy) for copy in COPY_NAMES]
    if states[0] is None or states[0] != states[1]:
        return None  # a crash during a save plus damage of the newer copy would bring back the previous state
    position = random.randrange(len(named[name].data))
    files.damage(join(DIRECTORY, name), position, bytes([named[name].data[position] ^ 1 << random.randrange(8)]))
    return f"{machine.node_id}: {name}"


@fault("disk: the meta file rots")
def damage_meta(world: World, random: Random) -> str | None:
    """Damage the meta file, so that the directory's owner is unknown. The node must not start until it is restored."""
    machine = any_machine(world, random)
    files = machine.disk.files
    named = files.durable_files(DIRECTORY)
    if META_NAME not in named or not world.atlas.may_harm(machine):
        return None
    world.atlas.harm(machine)
    path = join(DIRECTORY, META_NAME)
    position = random.randrange(len(named[META_NAME].data))
    right = named[META_NAME].data[position]
    files.damage(path, position, bytes([right ^ 1 << random.randrange(8)]))
    world.kill(machine, Crash.KILLED, restart_after_us=1_000)

    def bring_back() -> None:
        if machine.disk.files is files:
            files.damage(path, position, bytes([right]))

    machine.repairs.append(bring_back)
    world.event_queue.after(duration_us(random), bring_back)
    return str(machine.node_id)


@fault("disk: the log is rolled back to an older copy")
def roll_back_log(world: World, random: Random) -> str | None:
    """Restore the log's directory to an older copy, of whatever history. The database is not rolled back.

    Sometimes the snapshots are rolled back, too. The fault happens only where the database reveals it: if the database
    were rolled back as well, nothing on this disk would. The quorum state stays, because forgetting the vote is another
    fault. The copy must not be from before the voter took part: the voter would start as a new voter, and a majority of
    such voters never elects. Nor may it contain a snapshot that another fault has damaged.
    """
    machine = any_machine(world, random)
    files = machine.disk.files
    if not files.exists(LOG) or files.exists(join(LOG, NEW_DIRECTORY_NAME)) or machine.view.has_damaged_snapshots:
        return None
    directories = [LOG, SNAPSHOTS] if random.random() < 0.5 and files.exists(SNAPSHOTS) else [LOG]
    copies = {directory: _contents(files, directory) for directory in directories}
    copied_end_offset = machine.view.durable_log.end_offset
    key = machine.key

    def roll_back(attempts: int) -> None:
        if world.are_faults_over:
            return
        applied = machine.view.applied
        if applied is None or applied.end_offset <= copied_end_offset or not world.atlas.may_harm(machine):
            if attempts > 1:
                world.event_queue.after(1_000_000, partial(roll_back, attempts - 1))
            return
        if machine.key != key or machine.disk.files.failing_syncs or machine.disk.files.space_limit is not None:
            return
        world.atlas.harm(machine)
        world.kill(machine, Crash.KILLED, restart_after_us=downtime_us(random))
        for directory, contents in copies.items():
            _put_back(machine.disk.files, directory, contents)
        world.marks.hit("a log was rolled back below what was applied")

    world.event_queue.after(duration_us(random), partial(roll_back, 20))
    return f"{machine.node_id} at {copied_end_offset}"


def _contents(files: MemoryFileSystem, directory: str) -> dict[str, bytes]:
    return {name: bytes(file.data) for name, file in files.durable_files(directory).items()}


def _put_back(files: MemoryFileSystem, directory: str, contents: Mapping[str, bytes]) -> None:
    for name in files.list_directory(directory):
        files.remove(join(directory, name))
    files.fsync_directory(directory)
    for name, data in contents.items():
        write_new_file(files, join(directory, name), data)


@fault("disk: wiped, a new directory id")
def wipe(world: World, random: Random) -> str | None:
    """Replace the disk by an empty one. A voter set with directory ids recognizes the node as another replica."""
    machine = any_machine(world, random)
    if machine.view.is_voter and not (world.parameters.voters_know_directories and world.atlas.may_harm(machine)):
        return None
    world.atlas.lose(machine)
    world.kill(machine, Crash.NOTHING_KEPT, restart_after_us=downtime_us(random))
    machine.replace_disk()
    world.write_voters(machine)
    return str(machine.node_id)


@fault("disk: wiped under the same id")
def wipe_unnoticed(world: World, random: Random) -> str | None:
    """Replace a voter's disk by an empty one while the other nodes know the voter only by its node id."""
    machine = any_machine(world, random)
    is_static = not world.parameters.voters_know_directories
    if not is_static or not machine.view.is_voter or len(world.voter_ids) < 3 or not world.atlas.may_harm(machine):
        return None
    world.atlas.harm(machine)
    world.kill(machine, Crash.NOTHING_KEPT, restart_after_us=downtime_us(random))
    # An operator who runs `format` when a cluster exists uses --replace: the command asks the other voters.
    machine.replace_disk(is_replacement=world.committed_end_offset > 0 or random.random() < 0.5)
    return str(machine.node_id)
