"""All kinds of faults."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.quorum.fault_kinds import KINDS
from kraftlog.sim.quorum.faults import (
    clock_faults,
    database_faults,
    disk_faults,
    impostor_faults,
    input_faults,
    network_faults,
    process_faults,
    snapshot_faults,
)
from kraftlog.sim.quorum.faults.fault import REGISTERED, Fault

MODULES: Final = (
    network_faults,
    process_faults,
    disk_faults,
    snapshot_faults,
    database_faults,
    clock_faults,
    input_faults,
    impostor_faults,
)

FAULTS: Final[dict[str, Fault]] = {kind: REGISTERED[kind] for kind in KINDS}
"""Every kind, by name, in the order in which seeds draw them."""
