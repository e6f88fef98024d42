"""One run: clients and faults for a while, then a quiet phase, in which all replicas must get in sync and agree."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final
from unittest import mock

from kraftlog.replicas.replication import replica_fetcher
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.running import run_to_end
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.replication.administrator import Administrator
from kraftlog.sim.replication.checkers.rules import PEACE
from kraftlog.sim.replication.clients import Producer, Reader
from kraftlog.sim.replication.faults import Faults
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.sim.replication.transactions import TransactionalProducer
from kraftlog.sim.replication.world import World

FIRST_TRANSACTIONAL_ID: Final = 1_000
STEP_US: Final = MICROSECONDS_PER_SECOND // 2
START_MAX: Final = 40
"""The longest time until all topics exist, in half seconds."""
PEACE_MAX: Final = 80
"""The longest time until everything is in sync again, in half seconds."""
PUT_BACK_AFTER: Final = 30
"""The time until an operator repairs logs that are damaged and were not copied again, in half seconds."""


def run(parameters: ReplicationParameters, *, echo: bool = False) -> Outcome:
    """Run from start to end and return the outcome. A violation is part of the outcome and is not raised."""
    world = World(parameters, Marks(), echo=echo)
    with mock.patch.object(replica_fetcher, "logger", FetcherLog()):
        return run_to_end(parameters, world, lambda: _run(world))


class FetcherLog:
    """The logger of fetchers. A fetcher continues after a bug of its own, which ends the run here."""

    def exception(self, message: str, **details: object) -> None:
        """End the run with the bug."""
        raise Violation(f"{GOES_ON}: a fetcher reports a bug: {message} {details}") from sys.exc_info()[1]

    def error(self, message: str, **details: object) -> None:
        """Ignore the event: the checkers see what the fetcher does."""

    info = warning = error


def _run(world: World) -> None:
    parameters, random = world.parameters, world.random
    administrator = Administrator(world)
    world.start()
    administrator.create_all()
    if not _wait(world, START_MAX, lambda: len(world.metadata.topics) == len(parameters.topics)):
        raise Violation(f"{PEACE}: the topics do not exist")
    names = sorted(world.metadata.parameters)
    for number in range(parameters.producers):
        acks, is_idempotent = random.choice([(1, False), (-1, False), (-1, True), (-1, True), (1, True)])
        name = random.choice(names)
        index = random.randrange(world.metadata.parameters[name].partitions)
        Producer(world, number, name, index, acks, is_idempotent=is_idempotent).start()
    for _ in range(parameters.readers):
        name = random.choice(names)
        index = random.randrange(world.metadata.parameters[name].partitions)
        Reader(world, name, index, random.choice(["", "", "rack-0", "rack-1"])).start()
    administrator.start()
    Faults(world, administrator).start()
    if parameters.has_transactions:
        TransactionalProducer(world, FIRST_TRANSACTIONAL_ID, names[0], 0).start()
    world.run_for(parameters.seconds * MICROSECONDS_PER_SECOND)
    world.is_quiet = True
    world.heal()
    administrator.end_throttles()
    if not _wait(world, PUT_BACK_AFTER, lambda: not world.checker.unsettled()):
        world.bit_rot.put_back()
        world.older_disks.elect_where_stuck(administrator)
    if not _wait(world, PEACE_MAX - PUT_BACK_AFTER, lambda: _is_settled(world)):
        raise Violation(f"{PEACE}: {'; '.join(world.checker.unsettled())}")
    world.check_now()
    world.bit_rot.count_copied()
    world.damaged_files.count_copied()


def _is_settled(world: World) -> bool:
    """Whether everything is in sync. If not, put files back as soon as the broker that lacks them is up."""
    if not world.checker.unsettled():
        return True
    world.damaged_files.put_back()
    return False


def _wait(world: World, steps: int, is_done: Callable[[], bool]) -> bool:
    for _ in range(steps):
        if is_done():
            return True
        world.run_for(STEP_US)
    return is_done()
