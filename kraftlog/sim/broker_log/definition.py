"""The world of a broker's log, in the form that the engine runs."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.checkers.rules import RULES
from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.broker_log.marks import REQUIRED
from kraftlog.sim.broker_log.parameters import FAULT_KINDS, draw
from kraftlog.sim.broker_log.run import run
from kraftlog.sim.broker_log.zoo import broker_log_bugs, connection_bugs
from kraftlog.sim.engine.mutation import bugs_of
from kraftlog.sim.engine.world import World

BROKER_LOG: Final = World(
    name="broker-log",
    subject="a broker's log",
    draw=draw,
    run=run,
    invariants=len(RULES),
    marks=REQUIRED,
    covering_seeds=300,
    fault_kinds=(*FAULT_KINDS, *DAMAGES),
    bugs=bugs_of(broker_log_bugs, connection_bugs),
)
