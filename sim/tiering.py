"""Remote storage, and what leaders do with it: copy segments, forget them here, delete the oldest (KIP-405).

A partition's log consists of segments of ten offsets. Its leader copies the next one that is not copied as far as it
knows: the metadata first, then the object, then the metadata again; only when that is acknowledged does the log here
begin behind it. What is deleted goes the other way around. Leaders that know little copy what is copied already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from sim.calls import Call
from sim.plain_metadata import DELETED, DELETING, FINISHED, Key

if TYPE_CHECKING:
    from sim.brokers import Broker

SEGMENT_OFFSETS: Final = 10

SEGMENTS_KEPT: Final = 1
"""A leader deletes the oldest segments in remote storage beyond so many."""

REMOVAL_STARTED, REMOVAL_FINISHED = 1, 2
"""States of the deletion of a partition's remote data."""

SegmentKey = tuple[bytes, int, bytes]


class RemoteStorage:
    """Where the objects are. It fails at nothing."""

    def __init__(self) -> None:
        self.objects: set[SegmentKey] = set()
        self.removed: list[SegmentKey] = []
        """Since somebody looked last."""
        self.local_starts: dict[tuple[int, Key], int] = {}
        """By broker and partition: where the log on its own disk begins."""

    def remove(self, key: SegmentKey) -> None:
        """Delete an object; twice changes nothing."""
        if key in self.objects:
            self.objects.remove(key)
            self.removed.append(key)


class Tiering:
    """One broker's part of it."""

    def __init__(self, broker: Broker, storage: RemoteStorage, random: Random) -> None:
        self._broker = broker
        self._storage = storage
        self._random = random
        self._updates: deque[Operation] = deque(maxlen=4)
        """The last ones: one whose answer was lost is sent again."""

    def act(self) -> None:
        """Do one thing."""
        if self._updates and self._random.random() < 0.2:
            self._ask(self._random.choice(self._updates), lambda: None)
        elif self._broker.led and self._random.random() < 0.8:
            key = self._random.choice(sorted(self._broker.led))
            if len(self._finished(key)) > SEGMENTS_KEPT:
                self._delete_oldest(key)
            else:
                self._copy(key)
        elif self._broker.metadata.partition_deletes:
            self._remove_partition(self._random.choice(sorted(self._broker.metadata.partition_deletes)))

    def _finished(self, key: Key) -> list[SegmentKey]:
        segments = self._broker.metadata.segments
        found = [place for place, one in segments.items() if place[:2] == key and one.state == FINISHED]
        return sorted(found, key=lambda place: (segments[place].start_offset, place))

    def _ask(self, operation: Operation, then: Callable[[], None]) -> None:
        """Ask the controller, and go on when it has acknowledged."""

        def answered(call: Call) -> None:
            if call.is_acknowledged:
                then()

        self._broker.ask(operation, answered)

    def _copy(self, key: Key) -> None:
        start_offset = self._broker.metadata.copied_ends.get(key, 0)
        end_offset = start_offset + SEGMENT_OFFSETS
        place = (*key, self._random.randbytes(16))
        begun = RemoteLogSegmentMetadataRecord(
            topic_id=key[0],
            partition_id=key[1],
            segment_id=place[2],
            start_offset=start_offset,
            end_offset=end_offset - 1,
            broker_id=self._broker.broker_id,
            segment_leader_epochs=[
                SegmentLeaderEpoch(leader_epoch=self._broker.led[key].leader_epoch, start_offset=start_offset)
            ],
        )

        def copy() -> None:
            self._storage.objects.add(place)
            self._ask(self._update(place, FINISHED), forget_here)

        def forget_here() -> None:
            starts = self._storage.local_starts
            local = (self._broker.broker_id, key)
            starts[local] = max(starts.get(local, 0), end_offset)
            self._broker.mark("a segment was copied")

        self._ask(Operation(add_remote_log_segment=begun), copy)

    def _delete_oldest(self, key: Key) -> None:
        place = self._finished(key)[0]

        def delete() -> None:
            self._storage.remove(place)
            self._ask(self._update(place, DELETED), lambda: self._broker.mark("a segment was deleted"))

        self._ask(self._update(place, DELETING), delete)

    def _update(self, place: SegmentKey, state: int) -> Operation:
        update = RemoteLogSegmentMetadataUpdateRecord(
            topic_id=place[0],
            partition_id=place[1],
            segment_id=place[2],
            broker_id=self._broker.broker_id,
            state=state,
        )
        operation = Operation(update_remote_log_segment=update)
        self._updates.append(operation)
        return operation

    def _remove_partition(self, key: Key) -> None:
        """Its topic is gone: everything that is left of it goes."""

        def delete() -> None:
            for place in sorted(place for place in self._storage.objects if place[:2] == key):
                self._storage.remove(place)
            mark = "the remote data of a deleted partition was deleted"
            self._ask(self._removal(key, REMOVAL_FINISHED), lambda: self._broker.mark(mark))

        self._ask(self._removal(key, REMOVAL_STARTED), delete)

    def _removal(self, key: Key, state: int) -> Operation:
        removal = RemotePartitionDeleteMetadataRecord(
            topic_id=key[0], partition_id=key[1], broker_id=self._broker.broker_id, state=state
        )
        return Operation(put_remote_partition_delete=removal)
