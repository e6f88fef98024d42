"""The brokers' use of remote storage: leaders copy segments, then delete them locally, later remotely (KIP-405).

A partition's log consists of segments of ten or twenty offsets, which differ between brokers. Its leader copies the
next segment that has not been copied as far as it knows: first the metadata, then the object, then the metadata again.
Only when that is acknowledged does the local log start after the segment. Deletion uses the reverse order. Leaders that
lag copy what has been copied already, and may copy in one segment what other leaders copied in two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from kraftlog.sim.quorum.model.keys import Key, SegmentKey
from kraftlog.sim.quorum.model.metadata import MetadataModel
from kraftlog.sim.quorum.model.tiering import DELETED, DELETING, FINISHED, REMOVAL_FINISHED, REMOVAL_STARTED
from kraftlog.sim.quorum.observation.broker_view import Led
from kraftlog.sim.quorum.observation.call import Call
from kraftlog.sim.quorum.remote_storage import RemoteStorage
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)

SEGMENT_OFFSETS: Final = (10, 20)
"""The lengths of segments. Each begins at a multiple of its length: of two that overlap, one contains the other."""

STEPS_BACK: Final = (0, 0, 0, 10, 20)
"""The number of offsets that a leader copies again although it knows of their copy, as a leader that lags would."""

SEGMENTS_KEPT: Final = 2
"""A leader keeps this number of segments in remote storage and deletes older ones."""

COPY_FAILS_RATE: Final = 0.15
"""The share of copies whose object cannot be written in full. The partial object is deleted (TS-43)."""

TIMESTAMP_MS_MAX: Final = 1 << 41
"""The maximum of the random timestamps of brokers. Nothing depends on them."""


class TieringBroker(Protocol):
    """The broker whose segments are copied (`kraftlog.sim.quorum.users.broker.Broker`)."""

    @property
    def broker_id(self) -> int:
        """The broker id."""

    @property
    def metadata(self) -> MetadataModel:
        """The metadata that the broker knows."""

    @property
    def led(self) -> Mapping[Key, Led]:
        """The partitions that the broker leads, as far as it knows."""

    def request(self, operation: Operation, on_answer: Callable[[Call], None]) -> None:
        """Send an operation to the controller."""

    def mark(self, name: str) -> None:
        """Hit a coverage mark."""


class Tiering:
    """The tiering of one broker."""

    def __init__(self, broker: TieringBroker, storage: RemoteStorage, random: Random) -> None:
        self._broker = broker
        self._storage = storage
        self._random = random
        self._updates: deque[Operation] = deque(maxlen=4)
        """The last updates. One whose answer may have been lost is sent again."""

    def act(self) -> None:
        """Do one random piece of work: send an update again, copy, delete, or remove a partition."""
        tiering = self._broker.metadata.tiering
        if tiering.replaced:
            self._broker.mark("a copy took another's place")
        if self._updates and self._random.random() < 0.2:
            self._send_again(self._random.choice(self._updates))
        elif self._broker.led and self._random.random() < 0.8:
            key = self._random.choice(sorted(self._broker.led))
            finished = self._finished(key)
            if finished and self._random.random() < 0.15:
                self._update_custom_metadata(self._random.choice(finished))
            elif len(finished) > SEGMENTS_KEPT:
                self._delete(finished[0], "a segment was deleted")
            else:
                self._copy(key)
        elif tiering.removals:
            self._remove_partition(self._random.choice(sorted(tiering.removals)))

    def _send_again(self, operation: Operation) -> None:
        # A late duplicate of a segment's first record can bring a deleted segment back. Only a broker that claims a
        # copy without having the object would then make the segment a finished one, so this broker does not.
        update = operation.update_remote_log_segment
        place = (update.topic_id, update.partition_id, update.segment_id)
        if update.state != FINISHED or place in self._storage.objects:
            self._ask(operation, lambda: None)

    def _finished(self, key: Key) -> list[SegmentKey]:
        """Return the finished segments, those that end first first.

        A segment within another is then deleted before it.
        """
        segments = self._broker.metadata.tiering.segments
        found = [place for place, segment in segments.items() if place[:2] == key and segment.state == FINISHED]
        return sorted(found, key=lambda place: (segments[place].end_offset, place))

    def _ask(self, operation: Operation, then: Callable[[], None]) -> None:
        """Send an operation to the controller; call `then` when it is acknowledged."""

        def answered(call: Call) -> None:
            if call.is_acknowledged:
                then()

        self._broker.request(operation, answered)

    def _copy(self, key: Key) -> None:
        copied_end = self._broker.metadata.tiering.copied_ends.get(key, 0)
        copied_end = max(0, copied_end - self._random.choice(STEPS_BACK))
        segment_offsets = self._random.choice(SEGMENT_OFFSETS)
        start_offset = copied_end - copied_end % segment_offsets
        end_offset = start_offset + segment_offsets
        place = (*key, self._random.randbytes(16))
        epochs = self._storage.leader_epochs.epochs(
            key, self._broker.led[key].leader_epoch, start_offset, end_offset - 1, self._random
        )
        begun = RemoteLogSegmentMetadataRecord(
            topic_id=key[0],
            partition_id=key[1],
            segment_id=place[2],
            start_offset=start_offset,
            end_offset=end_offset - 1,
            broker_id=self._broker.broker_id,
            max_timestamp_ms=self._random.randrange(TIMESTAMP_MS_MAX),
            event_timestamp_ms=self._random.randrange(TIMESTAMP_MS_MAX),
            segment_leader_epochs=epochs,
            segment_size_bytes=self._random.randrange(1 << 30),
            custom_metadata=self._custom_metadata(),
            txn_index_empty=self._random.random() < 0.5,
        )

        def copy() -> None:
            self._storage.objects.add(place)
            if self._random.random() < COPY_FAILS_RATE:
                self._delete(place, "a copy that failed was deleted")
            else:
                self._ask(self._update(place, FINISHED), forget_here)

        def forget_here() -> None:
            starts = self._storage.local_starts
            local = (self._broker.broker_id, key)
            starts[local] = max(starts.get(local, 0), end_offset)
            self._broker.mark("a segment was copied")
            if len(epochs) > 1:
                self._broker.mark("a segment of several leader epochs was copied")

        self._ask(Operation(add_remote_log_segment=begun), copy)

    def _custom_metadata(self) -> bytes | None:
        """Return random custom metadata, which the storage must get back unchanged: None differs from empty."""
        return self._random.choice([None, None, b"", self._random.randbytes(8)])

    def _update_custom_metadata(self, place: SegmentKey) -> None:
        """Give a finished copy other custom metadata."""
        self._ask(self._update(place, FINISHED), lambda: self._broker.mark("a finished copy was described again"))

    def _delete(self, place: SegmentKey, mark: str) -> None:
        def delete() -> None:
            self._storage.remove(place)
            self._ask(self._update(place, DELETED), lambda: self._broker.mark(mark))

        self._ask(self._update(place, DELETING), delete)

    def _update(self, place: SegmentKey, state: int) -> Operation:
        update = RemoteLogSegmentMetadataUpdateRecord(
            topic_id=place[0],
            partition_id=place[1],
            segment_id=place[2],
            broker_id=self._broker.broker_id,
            event_timestamp_ms=self._random.randrange(TIMESTAMP_MS_MAX),
            custom_metadata=self._custom_metadata(),
            state=state,
        )
        operation = Operation(update_remote_log_segment=update)
        self._updates.append(operation)
        return operation

    def _remove_partition(self, key: Key) -> None:
        """Delete all remaining objects of a partition whose topic was deleted."""

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
        removal.event_timestamp_ms = self._random.randrange(TIMESTAMP_MS_MAX)
        return Operation(put_remote_partition_delete=removal)
