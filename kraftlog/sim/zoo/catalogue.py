"""All bugs of the zoo."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.broker_log.zoo import broker_log_bugs
from kraftlog.sim.engine.mutation import MUTATIONS
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
from kraftlog.sim.replication.zoo import partition_replication_bugs, start_and_end_bugs

MODULES: Final = (
    election_bugs,
    replication_bugs,
    parking_bugs,
    storage_bugs,
    snapshot_bugs,
    controller_bugs,
    evidence_bugs,
    state_machine_bugs,
    broker_log_bugs,
    partition_replication_bugs,
    start_and_end_bugs,
)

NAMES: Final = tuple(MUTATIONS)
"""The names of all bugs, in the order of their modules."""
