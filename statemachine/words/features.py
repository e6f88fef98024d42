"""The features of a cluster: metadata.version and the features that depend on it, with Kafka's names and levels (CT-61,
CT-62).

A feature has a finalized level for the whole cluster, in the log. Nodes and brokers report which levels they support.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"

METADATA_VERSION_MIN: Final = 7
METADATA_VERSION_LATEST: Final = 30

TRANSACTIONS: Final = 13
"""The metadata.version from which batches of records may be one transaction (KIP-868)."""

CONTROLLER_REGISTRATION: Final = 15
"""The metadata.version from which controllers register."""

FETCH_VERSION_18: Final = 27
"""The metadata.version from which a fetch carries the replica's high watermark (KIP-1166)."""

ELIGIBLE_LEADER_REPLICAS_BY_DEFAULT: Final = 26
"""From this one on, new clusters have eligible leader replicas (Kafka's bootstrap version of their level 1)."""

METADATA_VERSION_NAMES: Final[dict[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    **{9 + index: f"3.5-IV{index}" for index in range(3)},
    **{12 + index: f"3.6-IV{index}" for index in range(3)},
    **{15 + index: f"3.7-IV{index}" for index in range(5)},
    20: "3.8-IV0",
    21: "3.9-IV0",
    **{22 + index: f"4.0-IV{index}" for index in range(4)},
    **{26 + index: f"4.1-IV{index}" for index in range(2)},
    **{28 + index: f"4.2-IV{index}" for index in range(2)},
    30: "4.3-IV0",
}
"""Kafka's releases, by level."""


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The levels of a feature that this program supports. 0 is always "off", and not a level."""

    name: str
    min_level: int
    max_level: int


SUPPORTED: Final = (
    FeatureRange(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    FeatureRange(ELIGIBLE_LEADER_REPLICAS, 0, 1),
)
"""The features that this program supports, as a controller and as a broker."""

BOOTSTRAP: Final[dict[str, int]] = {METADATA_VERSION: METADATA_VERSION_LATEST, ELIGIBLE_LEADER_REPLICAS: 1}
"""The levels that a new cluster starts with (CT-14)."""


def _levels_by_release() -> dict[str, dict[str, int]]:
    levels = {}
    for level, name in sorted(METADATA_VERSION_NAMES.items()):  # so that the newest version of a release stays
        has_eligible_leaders = level >= ELIGIBLE_LEADER_REPLICAS_BY_DEFAULT
        levels[name.partition("-")[0]] = {METADATA_VERSION: level, ELIGIBLE_LEADER_REPLICAS: int(has_eligible_leaders)}
    return levels


LEVELS_BY_RELEASE: Final = _levels_by_release()
"""The levels that a new cluster of each of Kafka's releases has (OT-40), the oldest release first."""
