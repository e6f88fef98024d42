"""The kinds of resources that have configs, by Kafka's names and numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ResourceType(IntEnum):
    """Kafka's ConfigResource.Type, as far as there are such resources here."""

    TOPIC = 2
    BROKER = 4


CLUSTER_DEFAULT: Final = ""
"""The resource name that stands for every broker that has no value of its own."""

FROM_DEFAULT: Final = -1
"""A partition count or replication factor that the cluster's default decides, as in Kafka's CreateTopics."""
