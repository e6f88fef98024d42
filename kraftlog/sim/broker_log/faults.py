"""The faults of the world: the process, the power, the disk, the clock, the network."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS

SLOW_SYNC_US: Final = (5_000, 60_000)
MINUTE_MS: Final = 60_000
_JUMPS_MS: Final = (5 * MINUTE_MS, 1_440 * MINUTE_MS, 525_600 * MINUTE_MS)

_POWER_CUTS: Final = {
    "power: cut, nothing unsynced kept": Crash.NOTHING_KEPT,
    "power: cut, a torn write kept": Crash.PREFIX_KEPT,
    "power: cut, sectors kept in any order": Crash.SECTORS_KEPT,
    "power: cut, pages kept in any order": Crash.PAGES_KEPT,
}
_CRASHES: Final = (Crash.KILLED, *_POWER_CUTS.values())


class Faults:
    """Starts faults of the drawn kinds, one after the other, until the quiet phase."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.new_random()

    def start(self) -> None:
        """Schedule the next fault."""
        if self._world.parameters.fault_kinds:
            mean_ms = self._world.parameters.fault_interval_ms
            self._world.event_queue.after(int(self._random.expovariate(1 / mean_ms) * 1_000), self._next)

    def _next(self) -> None:
        if self._world.is_quiet:
            return
        kind = self._random.choice(self._world.parameters.fault_kinds)
        if self._begin(kind):
            self._world.marks.hit(f"fault: {kind}")
            self._world.note(f"fault: {kind}")
        self.start()

    def _begin(self, kind: str) -> bool:
        """Start a fault. Return False if it cannot happen now."""
        world, random = self._world, self._random
        if kind.startswith(("process", "power")):
            return world.broker is not None and self._end_process(kind)
        if kind in DAMAGES:
            return world.broker is not None and self._damage_files(kind)
        match kind:
            case "disk: full":
                world.fill_disk(random.choice([0, 100, 600]))
                self._later(self._make_room)
            case "disk: a directory fails":
                if world.broker is None:
                    return False
                world.fail_directory(random.randrange(world.parameters.directories))
                self._later(self._end_broker)
            case "disk: slow":
                world.disk.sync_us = SLOW_SYNC_US
                self._later(world.mend_slow_disk)
            case "disk: a bit of an index changes":
                return world.corrupt_index(random)
            case "clock: the wall clock jumps ahead":
                world.clock.wall_offset_ms = random.choice(_JUMPS_MS)
                self._later(self._set_clock)
            case "clock: the wall clock jumps back":
                world.clock.wall_offset_ms = -random.choice(_JUMPS_MS)
                self._later(self._set_clock)
            case _:
                world.lost_answers_rate = 0.4
                self._later(lambda: setattr(world, "lost_answers_rate", 0.02))
        return True

    def _end_process(self, kind: str) -> bool:
        world = self._world
        match kind:
            case "process: shut down":
                world.shut_down()
            case "process: killed":
                world.end_broker(Crash.KILLED)
            case "process: killed between two operations":
                world.kill_within(self._random.choice(_CRASHES))
            case "process: killed at its start":
                world.kills_at_start = True
                world.next_crash = self._random.choice(_CRASHES)
                world.end_broker(self._random.choice(_CRASHES))
            case _:
                world.end_broker(_POWER_CUTS[kind])
        return True

    def _damage_files(self, kind: str) -> bool:
        """Damage a log while the broker is down. Put its files back later."""

        def damage() -> None:
            if world.damage_files(kind, self._random) and world.damage is not None and world.damage.is_loss:
                self._later(world.put_files_back)

        world = self._world
        world.while_down = damage
        if self._random.random() < 0.5:
            world.shut_down()
        else:
            world.end_broker(Crash.KILLED)
        return True

    def _later(self, work: Callable[[], object]) -> None:
        delay_ms = self._random.choice([300, 2_000, 8_000])
        self._world.event_queue.after(delay_ms * MICROSECONDS_PER_MS, lambda: _do(work))

    def _end_broker(self) -> None:
        if self._world.broker is not None:
            self._world.end_broker(Crash.KILLED)

    def _make_room(self) -> None:
        self._world.make_room()

    def _set_clock(self) -> None:
        self._world.clock.wall_offset_ms = 0


def _do(work: Callable[[], object]) -> None:
    work()
