"""One run: clients and faults for a while, then a quiet phase, a clean shutdown and a start, and all checks again."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.broken_producer import BrokenProducer
from kraftlog.sim.broker_log.byte_client import ByteClient
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.broker_log.clients import Administrator, Producer, Reader
from kraftlog.sim.broker_log.faults import Faults
from kraftlog.sim.broker_log.parameters import LogParameters
from kraftlog.sim.broker_log.rewriter import Rewriter
from kraftlog.sim.broker_log.transactions import TransactionalProducer
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.outcome import Outcome
from kraftlog.sim.engine.running import run_to_end
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND

PEACE_US: Final = 15 * MICROSECONDS_PER_SECOND
FIRST_TRANSACTIONAL_ID: Final = 1_000
ONE_WITHOUT_REWRITES: Final = 3
"""One seed in this number runs without rewrites, so its segments stay as they were rolled."""
START_US: Final = 5 * MICROSECONDS_PER_SECOND


def run(parameters: LogParameters, *, echo: bool = False) -> Outcome:
    """Run from start to end and return the outcome. A violation is part of the outcome and is not raised."""
    world = World(parameters, Marks(), echo=echo)
    return run_to_end(parameters, world, lambda: _run(world))


def _run(world: World) -> None:
    parameters, random = world.parameters, world.random
    names = [f"topic{number}" for number in range(len(parameters.topics))]
    world.start_broker()
    for name, topic in zip(names, parameters.topics, strict=True):
        world.create_topic(name, topic)
    for number in range(parameters.producers):
        acks, is_idempotent = random.choice([(0, False), (1, False), (-1, False), (-1, True), (-1, True), (1, True)])
        index = random.randrange(parameters.partitions)
        Producer(world, number, random.choice(names), index, acks, is_idempotent=is_idempotent).start()
    for _ in range(parameters.readers):
        Reader(world, random.choice(names), random.randrange(parameters.partitions)).start()
    if parameters.has_transactions:
        TransactionalProducer(world, FIRST_TRANSACTIONAL_ID, names[0], 0).start()
    Administrator(world).start()
    Faults(world).start()
    BrokenProducer(world).start()
    ByteClient(world).start()
    if parameters.seed % ONE_WITHOUT_REWRITES:
        Rewriter(world).start()
    world.run_for(parameters.seconds * MICROSECONDS_PER_SECOND)
    world.is_quiet = True
    world.kills_at_start = False
    world.run_for(PEACE_US)
    world.end_in_peace()
    world.run_for(START_US)
    if world.broker is None:
        raise Violation(f"{GOES_ON}: it does not serve after a clean shutdown and a start")
    world.check(world.broker)
