"""A partition, by the name of its topic."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition by the name of its topic."""

    topic: str
    partition_id: int
