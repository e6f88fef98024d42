"""The states of remote segments (TS-57) and of partitions whose remote data is deleted (TS-58), and their order."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """Kafka's RemotePartitionDeleteState."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_SEGMENT: Final[dict[int | None, frozenset[int]]] = {
    None: frozenset({SegmentState.COPY_STARTED}),
    SegmentState.COPY_STARTED: frozenset(
        {SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}
    ),
    SegmentState.COPY_FINISHED: frozenset({SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED}),
    SegmentState.DELETE_STARTED: frozenset({SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED}),
}

_PARTITION: Final[dict[int | None, frozenset[int]]] = {
    None: frozenset({PartitionDeleteState.DELETE_PARTITION_MARKED}),
    PartitionDeleteState.DELETE_PARTITION_MARKED: frozenset(
        {PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED}
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: frozenset(
        {PartitionDeleteState.DELETE_PARTITION_STARTED, PartitionDeleteState.DELETE_PARTITION_FINISHED}
    ),
}


def segment_may_become(before: int | None, after: int) -> bool:
    """Whether a segment in the state `before` (None: it does not exist) may enter `after`."""
    return after in _SEGMENT.get(before, ())


def partition_may_become(before: int | None, after: int) -> bool:
    """Whether a partition in the state `before` (None: it is not being deleted) may enter `after`."""
    return after in _PARTITION.get(before, ())


def segment_state_name(state: int | None) -> str:
    """For messages."""
    return _name(SegmentState, state)


def partition_state_name(state: int | None) -> str:
    """For messages."""
    return _name(PartitionDeleteState, state)


def _name(states: type[IntEnum], state: int | None) -> str:
    if state is None:
        return "none"
    return states(state).name if state in list(states) else str(state)
