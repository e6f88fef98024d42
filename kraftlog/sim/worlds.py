"""All worlds of the simulator."""

from __future__ import annotations

from typing import Any, Final

from kraftlog.sim.broker_log.definition import BROKER_LOG
from kraftlog.sim.engine.world import World
from kraftlog.sim.quorum.definition import CLUSTERS
from kraftlog.sim.replication.definition import REPLICATION

WORLDS: Final[dict[str, World[Any]]] = {world.name: world for world in (CLUSTERS, BROKER_LOG, REPLICATION)}
"""By name. The first is the one that runs if none is named."""

DEFAULT: Final = next(iter(WORLDS))
