"""The faults of the world: processes, power, disks, clocks, the network, the delivery of metadata, elections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from random import Random
from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.replication.administrator import Administrator
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.parameters import (
    ASKED_AT_START,
    AWAY,
    BIT_ROT,
    CUT_OFF,
    ELIGIBLE,
    KILLED_AT_END,
    OLDER_COPY,
)
from kraftlog.sim.replication.wire import CLIENTS, CONTROLLER
from kraftlog.sim.replication.world import World

SLOW_SYNC_US: Final = (5_000, 60_000)
MINUTE_MS: Final = 60_000
_JUMPS_MS: Final = (5 * MINUTE_MS, 1_440 * MINUTE_MS)

_POWER_CUTS: Final = {
    "power: cut, nothing unsynced kept": Crash.NOTHING_KEPT,
    "power: cut, a torn write kept": Crash.PREFIX_KEPT,
    "power: cut, sectors kept in any order": Crash.SECTORS_KEPT,
    "power: cut, pages kept in any order": Crash.PAGES_KEPT,
}
_CRASHES: Final = (Crash.KILLED, *_POWER_CUTS.values())

Link = tuple[int, int]


class Faults:
    """Starts faults of the drawn kinds, one after the other, until the quiet phase."""

    def __init__(self, world: World, administrator: Administrator) -> None:
        self._world = world
        self._administrator = administrator
        self._random: Random = world.new_random()

    def start(self) -> None:
        """Schedule the next fault."""
        if self._world.parameters.fault_kinds:
            mean_ms = self._world.parameters.fault_interval_ms
            self._world.event_queue.after(int(self._random.expovariate(1 / mean_ms) * MICROSECONDS_PER_MS), self._next)

    def _next(self) -> None:
        if self._world.is_quiet:
            return
        kind = self._random.choice(self._world.parameters.fault_kinds)
        machine = self._world.machines[self._random.choice(sorted(self._world.machines))]
        if self._begin(kind, machine):
            self._world.marks.hit(f"fault: {kind}")
            self._world.note(f"fault: {kind}, broker {machine.broker_id}")
        self.start()

    def _begin(self, kind: str, machine: Machine) -> bool:
        """Start a fault. Return False if it cannot happen now."""
        if kind == ELIGIBLE:
            return self._world.eligible_replicas.begin(self._random)
        if kind.startswith(("process", "power")):
            return self._end_process(kind, machine)
        if kind in DAMAGES:
            if machine.is_up:
                self._world.damaged_files.begin(machine, kind, self._random)
            return machine.is_up
        if kind.startswith("network"):
            return self._harm_network(kind, machine)
        if kind.startswith("disk"):
            return self._harm_disk(kind, machine)
        match kind:
            case "clock: the wall clock jumps ahead":
                machine.clock.wall_offset_ms = self._random.choice(_JUMPS_MS)
                self._later(partial(setattr, machine.clock, "wall_offset_ms", 0))
            case "clock: the wall clock jumps back":
                machine.clock.wall_offset_ms = -self._random.choice(_JUMPS_MS)
                self._later(partial(setattr, machine.clock, "wall_offset_ms", 0))
            case "metadata: slow to a broker":
                self._world.slow_metadata[machine.broker_id] = self._random.choice([300, 1_500, 5_000])
                self._later(lambda: self._world.slow_metadata.pop(machine.broker_id, None))
            case _:
                self._administrator.change_leaders_fast()
        return True

    def _end_process(self, kind: str, machine: Machine) -> bool:
        random = self._random
        if kind == "power: cut everywhere":
            crash = random.choice(list(_POWER_CUTS.values()))
            up = [candidate for candidate in self._world.machines.values() if candidate.is_up]
            for candidate in up:
                candidate.end(crash)
            return bool(up)
        if kind == "process: a leader is killed":
            leaders = sorted({checker.state.leader for checker in self._world.checker.partitions.values()} - {-1})
            if not leaders:
                return False
            machine = self._world.machines[random.choice(leaders)]
        if not machine.is_up:
            return False
        match kind:
            case "process: shut down":
                machine.shut_down()
            case _ if kind == KILLED_AT_END:
                machine.kills_at_end = True
                machine.shut_down()
            case _ if kind == ASKED_AT_START:
                machine.asks_at_start = True
                machine.end(random.choice(_CRASHES), 1)
            case "process: killed" | "process: a leader is killed":
                machine.end(Crash.KILLED)
            case "process: killed between two operations":
                machine.kill_within(random.choice(_CRASHES))
            case "process: killed at its start":
                machine.end(random.choice(_CRASHES))
                machine.kills_at_start = True
                machine.next_crash = random.choice(_CRASHES)
            case "process: killed, with its requests under way":
                self._kill_late(machine)
            case "process: paused":
                session_ms = self._world.parameters.session_timeout_ms
                machine.process.pause(int(random.choice([0.2, 1.1, 2.0]) * session_ms) * MICROSECONDS_PER_MS)
            case _:
                machine.end(_POWER_CUTS[kind])
        return True

    def _kill_late(self, machine: Machine) -> None:
        """Kill a broker while its requests to other brokers are in flight.

        They arrive when it may have registered again.
        """
        random, world, process = self._random, self._world, machine.process
        delay_us = int(random.choice([1.2, 2.0, 3.0]) * world.parameters.session_timeout_ms) * MICROSECONDS_PER_MS
        for other in sorted(world.machines):
            if other != machine.broker_id:
                link = (machine.broker_id, other)
                world.network.clogged_until_us[link] = world.event_queue.now_us + delay_us
        crash = random.choice(_CRASHES)
        wait_us = random.randint(1, world.parameters.fetch_wait_ms) * MICROSECONDS_PER_MS
        world.event_queue.after(
            wait_us, lambda: machine.end(crash, 1) if machine.process is process and machine.is_up else None
        )

    def _harm_disk(self, kind: str, machine: Machine) -> bool:
        random = self._random
        if kind == BIT_ROT:
            return machine.is_up and self._world.bit_rot.begin(machine, random)
        if kind == OLDER_COPY:
            return self._world.older_disks.begin(machine, random)
        if kind == AWAY:
            return self._world.away_disks.begin(machine, random)
        if kind == "disk: full":
            machine.files.space_limit = machine.files.used_bytes() + random.choice([0, 100, 2_000])
            self._later(partial(setattr, machine.files, "space_limit", None))
        elif kind == "disk: slow":
            machine.disk.sync_us = SLOW_SYNC_US
            self._later(machine.mend_slow_disk)
        else:
            if not machine.is_up:
                return False
            machine.failing_directory = f"logs-{random.randrange(self._world.parameters.directories)}"
            process = machine.process
            # The disk is repaired, and the broker restarted.
            self._later(lambda: machine.end(Crash.KILLED) if machine.process is process and machine.is_up else None)
        return True

    # --- the network --------------------------------------------------------------------------------------------------

    def _harm_network(self, kind: str, machine: Machine) -> bool:
        random, broker_ids = self._random, sorted(self._world.machines)
        this = machine.broker_id
        other = random.choice([broker_id for broker_id in broker_ids if broker_id != this])
        if kind == CUT_OFF:
            self._world.nodes.cut_off(this, random)
            self._later(self._world.nodes.heal)
            return True
        match kind:
            case "network: a link between brokers is cut":
                self._cut([(this, other), (other, this)])
            case "network: a link between brokers is cut one way":
                self._cut([(this, other)])
            case "network: a broker is isolated":
                others = [*(node_id for node_id in broker_ids if node_id != this), CONTROLLER]
                places = random.choice([others, [*others, CLIENTS]])
                self._cut([link for place in places for link in ((this, place), (place, this))])
            case "network: a broker does not reach the controller":
                links = [(this, CONTROLLER), (CONTROLLER, this)]
                self._cut(random.choice([links, links[:1], links[1:]]))
            case "network: split in two":
                group = random.sample(broker_ids, len(broker_ids) // 2)
                with_controller = random.choice([True, False])
                apart = [*group, *([CONTROLLER] if with_controller else [])]
                rest = [node_id for node_id in (*broker_ids, CONTROLLER) if node_id not in apart]
                self._cut(
                    [link for link in permutations((*apart, *rest), 2) if (link[0] in apart) != (link[1] in apart)]
                )
            case _:
                until_us = self._world.event_queue.now_us + random.choice([200, 1_000, 3_000]) * MICROSECONDS_PER_MS
                for link in random.choice([[(this, other)], [(this, other), (other, this)]]):
                    self._world.network.clogged_until_us[link] = until_us
        return True

    def _cut(self, links: list[Link]) -> None:
        self._world.network.cut_links(links)
        self._later(lambda: self._world.network.heal_links(links))

    def _later(self, work: Callable[[], object]) -> None:
        session_ms = self._world.parameters.session_timeout_ms
        delay_ms = int(self._random.choice([0.1, 0.6, 1.5, 3.0]) * session_ms)
        self._world.event_queue.after(delay_ms * MICROSECONDS_PER_MS, lambda: _do(work))


def _do(work: Callable[[], object]) -> None:
    work()
