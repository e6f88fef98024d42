"""Partitions as they are described, and files about them, in one line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statemachine.query.descriptions import PartitionDescription


def a_partition(
    partition_id: int = 0,
    *,
    leader: int = 1,
    replicas: Sequence[int] = (1, 2),
    isr: Sequence[int] = (1, 2),
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> PartitionDescription:
    return PartitionDescription(
        partition_id,
        leader,
        leader_epoch=4,
        partition_epoch=5,
        replicas=tuple(replicas),
        isr=tuple(isr),
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


def written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def an_entry(**changes: Any) -> dict[str, Any]:
    return {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], **changes}]}
