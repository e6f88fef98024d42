"""ListOffsets and OffsetForLeaderEpoch: offsets by time or position, and where a leader epoch ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final, NamedTuple, cast

from kraftbase.errors import ApiError, ErrorCode, invalid_request
from kraftbase.sentinels import NO_TIMESTAMP, UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kraftlog.broker.apis.services import RecordServices
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftlog.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftlog.replicas.partitions.reading import Isolation, readable_end
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.timestamps import FoundRecord

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

FIRST_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""By special timestamp, the first version of ListOffsets that has it; the others are valid in all versions."""

FIRST_VERSION_WITH_EPOCH: Final = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5
"""Older versions get LEADER_NOT_AVAILABLE instead, which also makes clients retry."""

CONSUMER: Final = -1
"""The replica id of a consumer. Other ids, of brokers and debugging tools, may see the whole log."""
DEBUGGING_CONSUMER: Final = -2
"""The replica id of a debugging consumer, which may also ask a broker that does not lead."""


class FoundOffset(NamedTuple):
    """The answer for a partition; every field is -1 if there is no such record."""

    timestamp_ms: int = NO_TIMESTAMP
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = UNKNOWN_EPOCH


class ListOffsetsApi:
    """Handles ListOffsets (DB-50, DB-51)."""

    def __init__(self, services: RecordServices) -> None:
        self._lookup = services.lookup

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer, in slices because a search by time may read many records."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(ListOffsetsRequest, request.body)
        counts: Counter[tuple[str, int]] = Counter()
        for topic in body.topics:
            for partition in topic.partitions:
                counts[topic.name, partition.partition_index] += 1
                yield
        topics = []
        for topic in body.topics:
            partitions = []
            for partition in topic.partitions:
                count = counts[topic.name, partition.partition_index]
                search = self._answer(request.version, body, topic.name, partition, count)
                partitions.append((yield from search))
                yield
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
        reply(ListOffsetsResponse(topics=tuple(topics)))

    def _answer(
        self, version: int, body: ListOffsetsRequest, topic: str, requested: ListOffsetsPartition, count: int
    ) -> Generator[bool, None, ListOffsetsPartitionResponse]:
        """Search in steps, then return the answer. A step yields whether the search waits for memory."""
        try:
            if count > 1:
                raise invalid_request(f"partition {requested.partition_index} of {topic} is named {count} times")
            _check_timestamp(version, requested.timestamp)
            found = yield from self._find(body, topic, requested)
        except ApiError as error:
            code = error.code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return ListOffsetsPartitionResponse(partition_index=requested.partition_index, error_code=code)
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch if version >= FIRST_VERSION_WITH_EPOCH else UNKNOWN_EPOCH,
        )

    def _find(self, body: ListOffsetsRequest, topic: str, requested: ListOffsetsPartition) -> OffsetSearch:
        partition = self._lookup.named(topic, requested.partition_index)
        must_lead = body.replica_id != DEBUGGING_CONSUMER
        log = partition.leader_log(requested.current_leader_epoch, must_lead=must_lead)
        isolation: Isolation | None = None
        if body.replica_id == CONSUMER:
            isolation = Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED
        return (yield from search_offset(log, partition.leader_epoch, requested.timestamp, isolation))


def _check_timestamp(version: int, timestamp_ms: int) -> None:
    if timestamp_ms < EARLIEST_PENDING_UPLOAD or version < FIRST_VERSIONS.get(timestamp_ms, 0):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp_ms} has no meaning in version {version} of ListOffsets",
        )


OffsetSearch = Generator[bool, None, FoundOffset]
"""A search in steps that returns the offset. A step yields whether the search waits for memory."""


def search_offset(log: PartitionLog, leader_epoch: int, timestamp_ms: int, isolation: Isolation | None) -> OffsetSearch:
    """Search for the offset of a timestamp, or of one of the special timestamps.

    Raises ApiError: OFFSET_NOT_AVAILABLE while a new leader does not know how far its predecessors had committed;
    KAFKA_STORAGE_ERROR.
    """
    match timestamp_ms:
        case -1:
            _check_known(log, leader_epoch, isolation)
            return FoundOffset(NO_TIMESTAMP, _end_offset(log, isolation), leader_epoch)
        case -2 | -4:
            return FoundOffset(NO_TIMESTAMP, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset))
        case -5 | -6:
            return FoundOffset()  # nothing of this log is in remote storage
        case -3:
            found = yield from log.reader.search_newest()
        case _:
            found = yield from log.reader.search_timestamp(timestamp_ms)
    if found is None:
        _check_known(log, leader_epoch, isolation)
        return FoundOffset()
    return _visible(log, leader_epoch, found, isolation)


def _end_offset(log: PartitionLog, isolation: Isolation | None) -> int:
    return log.log_end_offset if isolation is None else readable_end(log, isolation)


def _visible(log: PartitionLog, leader_epoch: int, found: FoundRecord, isolation: Isolation | None) -> FoundOffset:
    """Return the found record's offset if readers may see it, else an empty answer."""
    if isolation is not None and found.offset >= _end_offset(log, isolation):
        _check_known(log, leader_epoch, isolation)
        return FoundOffset()
    return FoundOffset(found.timestamp_ms, found.offset, found.leader_epoch)


def _check_known(log: PartitionLog, leader_epoch: int, isolation: Isolation | None) -> None:
    """Raise ApiError(OFFSET_NOT_AVAILABLE) if a new leader does not know the high watermark yet.

    Consider a leader whose epoch begins at offset 10, and whose high watermark is still 7, which it learned as a
    follower. Offsets 7 to 9 may have been committed and read before: to answer 7 would send a reader back.
    """
    starts = dict(log.epochs.entries())
    if isolation is not None and log.high_watermark < starts.get(leader_epoch, 0):
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "the new leader does not know the high watermark yet; try again")


class OffsetForLeaderEpochApi:
    """Handles OffsetForLeaderEpoch (DB-41)."""

    def __init__(self, services: RecordServices) -> None:
        self._lookup = services.lookup

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(OffsetForLeaderEpochRequest, request.body)
        topics = []
        for topic in body.topics:
            partitions = []
            for partition in topic.partitions:
                partitions.append(
                    self._answer(
                        topic.topic, partition.partition, partition.current_leader_epoch, partition.leader_epoch
                    )
                )
                yield
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions)))
        reply(OffsetForLeaderEpochResponse(topics=tuple(topics)))

    def _answer(self, topic: str, index: int, current_leader_epoch: int, epoch: int) -> EpochEndOffset:
        try:
            log = self._lookup.named(topic, index).leader_log(current_leader_epoch)
        except ApiError as error:
            return EpochEndOffset(partition=index, error_code=error.code)
        end = log.epochs.end_offset_for(epoch, log.log_end_offset)
        return EpochEndOffset(partition=index, leader_epoch=end.epoch, end_offset=end.end_offset)
