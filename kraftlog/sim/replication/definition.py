"""The world of brokers that replicate, in the form that the engine runs."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.file_damage import DAMAGES
from kraftlog.sim.engine.mutation import bugs_of
from kraftlog.sim.engine.world import Size, World
from kraftlog.sim.replication.checkers.rules import RULES
from kraftlog.sim.replication.marks import REQUIRED
from kraftlog.sim.replication.parameters import AWAY, BIT_ROT, FAULT_KINDS, LATER_KINDS, OLDER_COPY, draw
from kraftlog.sim.replication.run import run
from kraftlog.sim.replication.zoo import partition_replication_bugs, start_and_end_bugs, trust_bugs

REPLICATION: Final = World(
    name="replication",
    subject="brokers that replicate",
    draw=draw,
    run=run,
    invariants=len(RULES),
    marks=REQUIRED,
    covering_seeds=500,
    fault_kinds=(*FAULT_KINDS, BIT_ROT, OLDER_COPY, AWAY, *DAMAGES, *LATER_KINDS),
    bugs=bugs_of(partition_replication_bugs, start_and_end_bugs, trust_bugs),
    sizes=(Size("brokers", least=3, most=9, smaller=(3,)),),
)
