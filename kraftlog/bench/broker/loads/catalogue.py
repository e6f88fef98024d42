"""All loads by their names. A client's process gets the name of its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraftlog.bench.broker.loads.connections import Connections
from kraftlog.bench.broker.loads.consume import Consume
from kraftlog.bench.broker.loads.hostile import Fill, Hostile
from kraftlog.bench.broker.loads.interruption import Interruption
from kraftlog.bench.broker.loads.load import Load
from kraftlog.bench.broker.loads.one_record import OneRecord
from kraftlog.bench.broker.loads.produce import Produce

LOADS: Final[Mapping[str, type[Load]]] = {
    load.__name__: load for load in (Produce, Consume, OneRecord, Connections, Fill, Hostile, Interruption)
}


def load_of(name: str, fields: Mapping[str, Any]) -> Load:
    """Return the load with this name and these fields."""
    return LOADS[name](**fields)
