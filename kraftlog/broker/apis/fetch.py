"""Fetch: what consumers read (DB-66)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.lookups import PartitionLookup, TopicReference
from kraftlog.broker.partitions.delayed_fetch import DelayedFetch
from kraftlog.broker.partitions.reading import Isolation, Read, ReadFrom
from kraftlog.broker.requests import ClientRequest, Reply
from kraftlog.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from raft.shell.runtime import Runtime

FETCH_BYTES_MAX: Final = 57_671_680
"""Kafka's `fetch.max.bytes` of a broker: 55 MiB."""

FIRST_VERSION_WITH_LEADERS: Final = 16
CONSUMER: Final = -1

_LEADS_NO_MORE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Wanted(NamedTuple):
    topic: TopicReference
    number: int
    read_from: ReadFrom | None
    error: ApiError | None


class FetchApi:
    """Handles Fetch."""

    def __init__(self, lookup: PartitionLookup, runtime: Runtime) -> None:
        self._lookup = lookup
        self._runtime = runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when there is enough to read."""
        body = cast(FetchRequest, request.body)
        wanted = [
            self._wanted(TopicReference(topic.topic, topic.topic_id), one)
            for topic in body.topics
            for one in topic.partitions
        ]
        has_error = any(one.error is not None for one in wanted)
        fetch = DelayedFetch(
            [one.read_from for one in wanted if one.read_from is not None],
            Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED,
            min(body.max_bytes, FETCH_BYTES_MAX),
            body.min_bytes,
            partial(self._answer, request, wanted, reply),
        )
        fetch.begin(self._runtime, 0 if has_error else body.max_wait_ms)

    def _wanted(self, topic: TopicReference, asked: FetchPartition) -> _Wanted:
        try:
            partition = self._lookup.find(topic, asked.partition)
        except ApiError as error:
            return _Wanted(topic, asked.partition, None, error)
        read_from = ReadFrom(
            partition, asked.fetch_offset, asked.partition_max_bytes, asked.current_leader_epoch,
            asked.last_fetched_epoch,
        )  # fmt: skip
        return _Wanted(topic, asked.partition, read_from, None)

    def _answer(self, request: ClientRequest, wanted: Iterable[_Wanted], reply: Reply, reads: list[Read]) -> None:
        leaders: dict[int, NodeEndpoint] = {}
        results = iter(reads)
        topics: dict[TopicReference, list[PartitionData]] = {}
        for one in wanted:
            result = next(results) if one.error is None else Read(one.error)
            topics.setdefault(one.topic, []).append(self._partition_data(request, one, result, leaders))
        responses = tuple(
            FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        )
        reply(FetchResponse(responses=responses, node_endpoints=tuple(leaders.values())))

    def _partition_data(
        self, request: ClientRequest, wanted: _Wanted, result: Read, leaders: dict[int, NodeEndpoint]
    ) -> PartitionData:
        code = ErrorCode.NONE if result.error is None else result.error.code
        data = PartitionData(
            partition_index=wanted.number,
            error_code=code,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=None
            if result.aborted is None
            else tuple(
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in result.aborted
            ),
            records=result.records,
        )
        if result.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=result.diverging.epoch, end_offset=result.diverging.end_offset)
        if request.version >= FIRST_VERSION_WITH_LEADERS and code in _LEADS_NO_MORE:
            data.current_leader = self._current_leader(request, wanted, leaders)
        return data

    def _current_leader(
        self, request: ClientRequest, wanted: _Wanted, leaders: dict[int, NodeEndpoint]
    ) -> LeaderIdAndEpoch:
        """The present leader, and where to reach it (KIP-951)."""
        record = self._lookup.elsewhere(wanted.topic, wanted.number)
        if record is None:
            return LeaderIdAndEpoch()
        node = self._lookup.leader_node(record, request.client.listener_name)
        if node is not None:
            leaders[node.node_id] = NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        return LeaderIdAndEpoch(leader_id=record.leader, leader_epoch=record.leader_epoch)
