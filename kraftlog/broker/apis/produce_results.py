"""The result of each partition of a Produce, and its part of the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.broker.apis.lookups import PartitionLookup, TopicReference
from kraftlog.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
)
from kraftlog.network.requests import ClientRequest
from kraftlog.replicas.committed_append import CommittedAppend
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.produced_records import RecordsRefused

FIRST_VERSION_WITH_LEADERS: Final = 10

WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""After these errors the answer has no log start offset; after all others, such as OUT_OF_ORDER_SEQUENCE_NUMBER, it has
one, as in Kafka."""
NO_LEADER: Final = LeaderIdAndEpoch()
"""The current leader in most answers. Shared, so it must not be changed."""


@dataclass(slots=True, eq=False)
class ProducedPart:
    """One partition of a request, and its result."""

    index: int
    partition: Partition | None = None
    append: CommittedAppend | None = None
    """None until the batch is appended, and if it was refused."""
    error: ApiError | None = None
    """Why the batch was refused, or why the answer does not wait for the append."""


@dataclass(slots=True, eq=False)
class ProducedTopic:
    """The partitions of one topic in a request."""

    reference: TopicReference
    parts: list[ProducedPart]


def partition_response(
    request: ClientRequest, topic: TopicReference, part: ProducedPart, lookup: PartitionLookup,
    leaders: dict[int, NodeEndpoint],
) -> PartitionProduceResponse:  # fmt: skip
    """Return a partition's part of the response; add its leader to `leaders` if that is another broker (KIP-951)."""
    error, append = part.error, part.append
    if error is None and append is not None:
        error, appended = append.error, append.appended
        if error is None:
            return PartitionProduceResponse(
                index=part.index, error_code=ErrorCode.NONE, base_offset=appended.base_offset,
                log_append_time_ms=appended.append_time_ms, log_start_offset=appended.log_start_offset,
                current_leader=NO_LEADER,
            )  # fmt: skip
    code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
    current_leader = NO_LEADER
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= FIRST_VERSION_WITH_LEADERS:
        current_leader = lookup.current_leader(
            topic, part.index, request.context.listener_name, LeaderIdAndEpoch, NodeEndpoint, leaders
        )
    refused = error.record_errors if isinstance(error, RecordsRefused) else ()
    return PartitionProduceResponse(
        index=part.index, error_code=code, base_offset=UNKNOWN_OFFSET, error_message=str(error),
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=refusal.batch_index, batch_index_error_message=refusal.message)
            for refusal in refused
        ),
        log_start_offset=_start_of(part.partition, code), current_leader=current_leader,
    )  # fmt: skip


def _start_of(partition: Partition | None, code: int) -> int:
    """Return the log start offset that the answer has after an error; -1 for none."""
    if partition is None or partition.log is None or code in WITHOUT_LOG_START:
        return UNKNOWN_OFFSET
    return partition.log.log_start_offset
