"""The metadata of tiered storage (KIP-405) in plain dictionaries: a part of `kraftlog.sim.quorum.model.metadata`.

Each leader epoch has its own index, as in Kafka (TS-60): the segment that a lookup finds from each offset on, and the
highest offset that was ever copied. The state machine keeps neither; it has a flag in each part of a segment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kraftlog.sim.quorum.model.keys import Contradiction, Key, SegmentKey

STARTED, FINISHED, DELETING, DELETED = 0, 1, 2, 3
"""States of the copy of a segment in remote storage."""

MARKED, REMOVAL_STARTED, REMOVAL_FINISHED = 0, 1, 2
"""States of the deletion of a partition's remote data."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in remote storage."""

    start_offset: int
    end_offset: int
    """Inclusive."""
    state: int
    leader_epochs: tuple[tuple[int, int], ...]
    """Each epoch with its first offset in the segment."""
    broker_id: int
    """The broker that last set its state."""
    max_timestamp_ms: int
    event_timestamp_ms: int
    """The timestamp of the last change of the state."""
    size_bytes: int
    custom_metadata: bytes | None
    txn_index_empty: bool

    def parts(self) -> Iterator[Part]:
        """Yield the offsets of each epoch: a part ends where the next one begins."""
        ends = [start_offset - 1 for _, start_offset in self.leader_epochs[1:]] + [self.end_offset]
        for (leader_epoch, start_offset), end_offset in zip(self.leader_epochs, ends, strict=True):
            yield Part(leader_epoch, start_offset, end_offset)


class Part(NamedTuple):
    """The offsets of one leader epoch in a segment."""

    leader_epoch: int
    start_offset: int
    end_offset: int
    """Inclusive."""


class Removal(NamedTuple):
    """The progress of the deletion of a partition's remote data."""

    state: int
    broker_id: int
    """The broker that set the state; -1: the controller."""
    event_timestamp_ms: int


@dataclass(slots=True)
class EpochIndex:
    """The index for lookups in one leader epoch of a partition."""

    found: dict[int, tuple[SegmentKey, int]] = field(default_factory=dict)
    """By first offset in the epoch: the segment that lookups find from there on, and its last offset in the epoch."""
    highest_offset: int | None = None
    """The highest offset ever copied; None if there is none, or the topic was deleted since."""

    def finish(self, place: SegmentKey, part: Part) -> list[SegmentKey]:
        """Enter a finished copy. Return the segments that it replaces, which lookups no longer find."""
        covered = [
            start_offset
            for start_offset, (_, end_offset) in self.found.items()
            if start_offset == part.start_offset or (start_offset > part.start_offset and end_offset <= part.end_offset)
        ]
        gone = [self.found.pop(start_offset)[0] for start_offset in covered]
        self.found[part.start_offset] = (place, part.end_offset)
        self.highest_offset = max(part.end_offset, self.highest_offset or 0)
        return gone

    def forget(self, place: SegmentKey) -> None:
        """Remove a segment. The segments that it replaced stay hidden."""
        self.found = {start_offset: entry for start_offset, entry in self.found.items() if entry[0] != place}


class TieringModel:
    """The tiered storage of all partitions."""

    def __init__(self) -> None:
        self.segments: dict[SegmentKey, Segment] = {}
        self.indexes: defaultdict[tuple[bytes, int, int], EpochIndex] = defaultdict(EpochIndex)
        """By topic id, partition and leader epoch."""
        self.replaced: set[tuple[SegmentKey, int]] = set()
        """Existing segments, each with an epoch in which another segment replaced it."""
        self.removals: dict[Key, Removal] = {}
        self.copied_ends: dict[Key, int] = {}
        """The exclusive end of what was ever copied of each partition. It is kept when the remote data is deleted."""
        self.log_starts: dict[Key, int] = {}
        """The exclusive end of the segments whose deletion has begun: nothing below it may be relied on (TS-47)."""

    def begin_copy(self, offset: int, record: Any) -> tuple[SegmentKey, Segment | None, Segment]:
        """Apply the start of a copy.

        Return the segment's key, and the segment before and after. Raises Contradiction.
        """
        place = (record.topic_id, record.partition_id, record.segment_id)
        before = self.segments.get(place)
        after = Segment(
            start_offset=record.start_offset,
            end_offset=record.end_offset,
            state=record.state,
            leader_epochs=tuple((entry.leader_epoch, entry.start_offset) for entry in record.segment_leader_epochs),
            broker_id=record.broker_id,
            max_timestamp_ms=record.max_timestamp_ms,
            event_timestamp_ms=record.event_timestamp_ms,
            size_bytes=record.segment_size_bytes,
            custom_metadata=record.custom_metadata if record.HasField("custom_metadata") else None,
            txn_index_empty=record.txn_index_empty,
        )
        if record.state != STARTED or before not in (None, after):
            raise Contradiction(f"the segment at offset {offset} is {before}, and a copy begins as {after}")
        starts = [start_offset for _, start_offset in after.leader_epochs]
        if starts[:1] != [after.start_offset] or any(later <= earlier for earlier, later in pairwise(starts)):
            raise Contradiction(
                f"the segment at offset {offset} has leader epochs that do not match its offsets: {after}"
            )
        self.segments[place] = after
        return place, before, after

    def update_copy(self, offset: int, record: Any) -> tuple[SegmentKey, Segment, Segment]:
        """Apply a new state of a segment.

        Return its key, and the segment before and after. KeyError: no such segment.
        """
        place = (record.topic_id, record.partition_id, record.segment_id)
        before = self.segments[place]
        if record.state not in _FOLLOWS[before.state]:
            raise Contradiction(f"the segment at offset {offset} goes from state {before.state} to {record.state}")
        after = self.segments[place] = replace(
            before,
            state=record.state,
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            custom_metadata=record.custom_metadata if record.HasField("custom_metadata") else before.custom_metadata,
        )
        if (before.state, after.state) == (STARTED, FINISHED):
            self._finish(place, after)
        if (before.state, after.state) == (FINISHED, DELETING):
            self.log_starts[place[:2]] = max(self.log_starts.get(place[:2], 0), after.end_offset + 1)
        if after.state in (DELETING, DELETED):
            self._forget(place, after)
        if after.state == DELETED:
            self.replaced = {entry for entry in self.replaced if entry[0] != place}
            del self.segments[place]
        return place, before, after

    def _finish(self, place: SegmentKey, segment: Segment) -> None:
        partition = place[:2]
        self.copied_ends[partition] = max(self.copied_ends.get(partition, 0), segment.end_offset + 1)
        for part in segment.parts():
            gone = self.indexes[*partition, part.leader_epoch].finish(place, part)
            self.replaced.update((other, part.leader_epoch) for other in gone)

    def _forget(self, place: SegmentKey, segment: Segment) -> None:
        for part in segment.parts():
            self.indexes[*place[:2], part.leader_epoch].forget(place)

    def is_found(self, place: SegmentKey, part: Part) -> bool:
        """Whether lookups in the part's epoch find the segment. They find it in the state FINISHED only (TS-60)."""
        index = self.indexes.get((*place[:2], part.leader_epoch), EpochIndex())
        return part.start_offset in index.found and index.found[part.start_offset][0] == place

    def remove_partition(self, offset: int, record: Any) -> tuple[Key, Removal | None, Removal]:
        """Apply a step of the deletion of a partition's remote data.

        Return the partition, and its state before and after.
        """
        key = (record.topic_id, record.partition_id)
        before = self.removals.get(key)
        after = Removal(record.state, record.broker_id, record.event_timestamp_ms)
        state = -1 if before is None else before.state
        if after.state not in (state, state + 1):
            raise Contradiction(f"the deletion of a partition at offset {offset} goes from {before} to {after}")
        self.removals[key] = after
        if after.state == REMOVAL_FINISHED:
            del self.removals[key]
            self.segments = {place: segment for place, segment in self.segments.items() if place[:2] != key}
            self.replaced = {entry for entry in self.replaced if entry[0][:2] != key}
            for epoch in [epoch for epoch in self.indexes if epoch[:2] == key]:
                del self.indexes[epoch]
        return key, before, after

    def remove_topic(self, topic_id: bytes) -> None:
        """Drop the highest copied offsets of a topic. Its segments stay until they are deleted."""
        for epoch, index in self.indexes.items():
            if epoch[0] == topic_id:
                index.highest_offset = None


_FOLLOWS: Final = {STARTED: (FINISHED, DELETING), FINISHED: (FINISHED, DELETING), DELETING: (DELETING, DELETED)}
