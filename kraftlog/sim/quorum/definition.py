"""The world of clusters, in the form that the engine runs."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.engine.mutation import bugs_of
from kraftlog.sim.engine.world import Size, World
from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.invariants.catalogue import ALL
from kraftlog.sim.quorum.marks import required
from kraftlog.sim.quorum.parameters import draw
from kraftlog.sim.quorum.runs.run import run
from kraftlog.sim.quorum.zoo import (
    controller_bugs,
    election_bugs,
    evidence_bugs,
    parking_bugs,
    replication_bugs,
    snapshot_bugs,
    state_machine_bugs,
    storage_bugs,
)

CLUSTERS: Final = World(
    name="clusters",
    subject="clusters",
    draw=draw,
    run=run,
    invariants=len(ALL),
    marks=tuple(required(KINDS)),
    covering_seeds=300,
    fault_kinds=KINDS,
    bugs=bugs_of(
        election_bugs, replication_bugs, parking_bugs, storage_bugs, snapshot_bugs, controller_bugs, evidence_bugs,
        state_machine_bugs,
    ),
    sizes=(
        Size("voters", least=1, most=9, smaller=(3, 2)),
        Size("observers", least=0, most=9, smaller=(0,)),
        Size("brokers", least=0, most=9, smaller=(1, 0)),
    ),
    hunt_seconds=60,
)  # fmt: skip
"""The hunt's runs are short: bugs show early or not at all, and there are many bugs."""
