"""All kinds of faults."""

from __future__ import annotations

from typing import Final

from kraftlog.sim.faults import clock_faults, disk_faults, impostor_faults, input_faults, network_faults, process_faults
from kraftlog.sim.faults.fault import FAULTS

MODULES: Final = (network_faults, process_faults, disk_faults, clock_faults, input_faults, impostor_faults)

KINDS: Final = tuple(sorted(FAULTS))
"""The names of all kinds."""
