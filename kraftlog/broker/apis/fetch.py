"""Fetch: reads of consumers (DB-66) and of followers, in sessions (KIP-227) or without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.lookups import TopicReference
from kraftlog.broker.apis.services import RecordServices
from kraftlog.broker.quotas.client_quotas import QuotaKind
from kraftlog.kafka.codec import encode_pieces
from kraftlog.kafka.frames import LENGTH
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
from kraftlog.network.requests import ClientRequest, Reply, Steps, let_go
from kraftlog.replicas.partitions.delayed_fetch import FEW_PARTITIONS, DelayedFetch
from kraftlog.replicas.partitions.fetch_contexts import (
    FetchContext,
    FetchIntent,
    Result,
    SessionResponse,
    fetch_context,
)
from kraftlog.replicas.partitions.fetch_sessions import NO_SESSION, FetchPosition, PartitionKey
from kraftlog.replicas.partitions.reading import Isolation, Read, Reader, ReadFrom, sent_elsewhere
from kraftlog.replicas.partitions.replica_choice import NO_PREFERENCE

FETCH_BYTES_MAX: Final = 57_671_680
"""Kafka's `fetch.max.bytes` of a broker: 55 MiB."""

PARTITION_BYTES: Final = 100
"""The approximate bytes of each partition in an answer with many partitions, for a reader's quota."""

FIRST_VERSION_WITH_STORAGE_ERRORS: Final = 6
"""Older readers do not know KAFKA_STORAGE_ERROR and would not retry."""
FIRST_VERSION_WITH_RACKS: Final = 11
"""From this version on consumers may read from any replica (KIP-392)."""
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
FIRST_VERSION_WITH_LEADERS: Final = 16


class _Wanted(NamedTuple):
    key: PartitionKey
    read_from: ReadFrom | None
    result: Read | None
    """The result, if it is known without reading."""


class FetchApi:
    """Handles Fetch."""

    def __init__(self, services: RecordServices) -> None:
        self._choice = services.choice
        self._throttle = services.throttle
        self._lookup = services.lookup
        self._runtime = services.runtime
        self._sessions = services.sessions
        self._usage = services.usage
        self._observer = services.observer

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when there are enough bytes, or after the longest wait that the reader allows."""
        body = cast(FetchRequest, request.body)
        if request.is_large:
            request.slices.run(self._take_up_in_slices(request, body, reply))
        else:
            self._take_up(request, body, _intent(body, request.version), reply)

    def _take_up_in_slices(self, request: ClientRequest, body: FetchRequest, reply: Reply) -> Steps:
        requested: dict[PartitionKey, FetchPosition] = {}
        forgotten: list[PartitionKey] = []
        for topic in body.topics:
            for partition in topic.partitions:
                requested[PartitionKey(topic.topic, topic.topic_id, partition.partition)] = _position(partition)
                yield
        for left_out in body.forgotten_topics_data:
            for index in left_out.partitions:
                forgotten.append(PartitionKey(left_out.topic, left_out.topic_id, index))
                yield
        intent = FetchIntent(
            body.session_id, body.session_epoch, requested, forgotten, request.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            _replica_id(body, request.version) >= 0,
        )  # fmt: skip
        self._take_up(request, body, intent, reply)

    def _take_up(self, request: ClientRequest, body: FetchRequest, intent: FetchIntent, reply: Reply) -> None:
        context = fetch_context(self._sessions, intent, self._runtime.now_ms())
        if isinstance(context, ErrorCode):
            reply(FetchResponse(error_code=context))
            return
        if len(context.wanted) > FEW_PARTITIONS:  # in the session, even if the request names few
            request.slices.run(self._begin_in_slices(request, body, context, reply))
            return
        reader = self._reader(body, request.version)
        rack = "" if reader.is_follower else body.rack_id
        wanted = [self._wanted(request.version, key, position, rack) for key, position in context.wanted.items()]
        has_result = any(read_from.result is not None for read_from in wanted)
        bytes_max = min(body.max_bytes, FETCH_BYTES_MAX)
        if not reader.is_follower and self._usage.quotas.is_set(QuotaKind.FETCH):
            bytes_max = self._allowed_bytes(request, bytes_max)
        fetch = DelayedFetch(
            [read_from.read_from for read_from in wanted if read_from.read_from is not None],
            reader,
            bytes_max,
            body.min_bytes,
            partial(self._answer, request, context, wanted, reader.is_follower, reply),
            request.slices,
            self._observer,
        )
        fetch.begin(self._runtime, 0 if has_result else body.max_wait_ms)
        if fetch.is_waiting:
            request.on_client_done.append(fetch.expire)

    def _begin_in_slices(
        self, request: ClientRequest, body: FetchRequest, context: FetchContext, reply: Reply
    ) -> Steps:
        """Like `_take_up`, for many partitions."""
        reader = self._reader(body, request.version)
        rack = "" if reader.is_follower else body.rack_id
        wanted: list[_Wanted] = []
        to_read: list[ReadFrom] = []
        for key, position in context.wanted.items():
            read_from = self._wanted(request.version, key, position, rack)
            wanted.append(read_from)
            if read_from.read_from is not None:
                to_read.append(read_from.read_from)
            yield
        bytes_max = min(body.max_bytes, FETCH_BYTES_MAX)
        if not reader.is_follower and self._usage.quotas.is_set(QuotaKind.FETCH):
            bytes_max = self._allowed_bytes(request, bytes_max)

        def answer(reads: list[Read]) -> None:
            request.slices.run(self._answer_in_slices(request, context, wanted, reader.is_follower, reply, reads))

        fetch = DelayedFetch(
            to_read, reader, bytes_max, body.min_bytes, answer, request.slices, self._observer, is_in_slices=True
        )
        yield from fetch.begin_in_slices(self._runtime, 0 if len(to_read) < len(wanted) else body.max_wait_ms)
        if fetch.is_waiting:
            request.on_client_done.append(fetch.expire)
            request.on_memory_wanted.append(fetch.expire)

    def _allowed_bytes(self, request: ClientRequest, bytes_max: int) -> int:
        """Limit the bytes to what the quota allows at once: more would be read and then thrown away."""
        return int(min(bytes_max, self._usage.amount_max(QuotaKind.FETCH, request.context.quota_client)))

    def _wanted(self, version: int, key: PartitionKey, position: FetchPosition, rack: str) -> _Wanted:
        topic = TopicReference(key.topic, key.topic_id)
        try:
            if version >= FIRST_VERSION_WITH_TOPIC_IDS and not topic.has_id:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "the request has no topic id; refresh the metadata")
            if version < FIRST_VERSION_WITH_TOPIC_IDS and not key.topic:  # DB-115
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic name is empty")
            replica = self._lookup.find(topic, key.number)
        except ApiError as error:
            return _Wanted(key, None, Read(error.with_traceback(None)))  # it would keep the request in a cycle
        if self._choice is not None and rack:
            preferred = self._choice.preferred(replica, position.offset, position.current_leader_epoch, rack)
            if preferred != NO_PREFERENCE:
                return _Wanted(key, None, sent_elsewhere(replica.online_log(), preferred))
        read_from = ReadFrom(
            replica, position.offset, position.bytes_max, position.current_leader_epoch, position.last_fetched_epoch,
            position.log_start_offset,
        )  # fmt: skip
        return _Wanted(key, read_from, None)

    def _reader(self, body: FetchRequest, version: int) -> Reader:
        """Return the reader. Client quotas do not apply to followers, which have a throttle of their own (DB-67)."""
        replica_id = _replica_id(body, version)
        if replica_id >= 0:
            epoch = body.replica_state.replica_epoch
            return Reader(Isolation.LOG_END, replica_id=replica_id, broker_epoch=epoch, throttle=self._throttle)
        isolation = Isolation.READ_COMMITTED if body.isolation_level else Isolation.READ_UNCOMMITTED
        return Reader(isolation, must_lead=version < FIRST_VERSION_WITH_RACKS)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(
        self, request: ClientRequest, context: FetchContext, wanted: Sequence[_Wanted], is_follower: bool, reply: Reply,
        reads: list[Read],
    ) -> None:  # fmt: skip
        done = iter(reads)
        results = [
            (read_from.key, next(done) if read_from.result is None else read_from.result) for read_from in wanted
        ]
        if is_follower and self._throttle is not None:
            for read_from, (_, read) in zip(wanted, results, strict=True):
                if read_from.read_from is not None and read.records:
                    self._throttle.record(read_from.read_from.partition, len(read.records))
        now_ms = self._runtime.now_ms()
        is_unlimited = is_follower or not self._usage.quotas.is_set(QuotaKind.FETCH)
        throttle_ms = 0 if is_unlimited else self._throttle_ms(request, context.changed(results), now_ms)
        response = self._response(request, context.empty_response() if throttle_ms else context.commit(results, now_ms))
        response.throttle_time_ms = throttle_ms
        reply(response, throttle_ms)

    def _answer_in_slices(
        self, request: ClientRequest, context: FetchContext, wanted: list[_Wanted], is_follower: bool, reply: Reply,
        reads: list[Read],
    ) -> Steps:  # fmt: skip
        """Like `_answer`, for many partitions."""
        done = iter(reads)
        results: list[Result] = []
        for read_from in wanted:
            read = next(done) if read_from.result is None else read_from.result
            if self._throttle is not None and is_follower and read_from.read_from is not None and read.records:
                self._throttle.record(read_from.read_from.partition, len(read.records))
            results.append((read_from.key, read))
            yield
        now_ms = self._runtime.now_ms()
        is_unlimited = is_follower or not self._usage.quotas.is_set(QuotaKind.FETCH)
        throttle_ms = 0 if is_unlimited else self._throttle_ms(request, context.changed(results), now_ms)
        session_response = (
            context.empty_response() if throttle_ms else (yield from context.commit_in_slices(results, now_ms))
        )
        leaders: dict[int, NodeEndpoint] = {}
        topics: dict[TopicReference, list[PartitionData]] = {}
        for result in session_response.results:
            topic = TopicReference(result[0].topic, result[0].topic_id)
            topics.setdefault(topic, []).append(self._partition_data(request, topic, result, leaders))
            yield
        response = _response(session_response, topics, leaders)
        response.throttle_time_ms = throttle_ms
        del session_response, topics
        yield from let_go(results, wanted, reads)
        reply(response, throttle_ms)

    def _throttle_ms(self, request: ClientRequest, changed: Sequence[Result], now_ms: float) -> int:
        """Return the throttle time of the response, in milliseconds.

        If it is above 0, the response has no partitions, and its bytes are not charged.
        """
        client = request.context.quota_client
        if self._usage.quotas.limit(QuotaKind.FETCH, client) is None:
            return 0
        if len(changed) > FEW_PARTITIONS:
            byte_count = sum(len(read.records) + PARTITION_BYTES for _, read in changed)
        else:
            response = self._response(request, SessionResponse(ErrorCode.NONE, NO_SESSION, changed))
            byte_count = LENGTH.size + sum(len(piece) for piece in encode_pieces(response, request.version))
        throttle_ms = self._usage.record(QuotaKind.FETCH, client, byte_count, now_ms)
        if throttle_ms:
            self._usage.take_back(QuotaKind.FETCH, client, byte_count, now_ms)
        return throttle_ms

    def _response(self, request: ClientRequest, session_response: SessionResponse) -> FetchResponse:
        leaders: dict[int, NodeEndpoint] = {}
        topics: dict[TopicReference, list[PartitionData]] = {}
        for result in session_response.results:
            topic = TopicReference(result[0].topic, result[0].topic_id)
            topics.setdefault(topic, []).append(self._partition_data(request, topic, result, leaders))
        return _response(session_response, topics, leaders)

    def _partition_data(
        self, request: ClientRequest, topic: TopicReference, result: Result, leaders: dict[int, NodeEndpoint]
    ) -> PartitionData:
        key, read = result
        code = _error_code(read.error, request.version)
        data = PartitionData(
            partition_index=key.number,
            error_code=code,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=None
            if read.aborted is None
            else tuple(
                AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
                for transaction in read.aborted
            ),
            records=read.records,
            preferred_read_replica=read.preferred_replica,
        )
        if read.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=read.diverging.epoch, end_offset=read.diverging.end_offset)
        if (
            code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
            and request.version >= FIRST_VERSION_WITH_LEADERS
        ):
            data.current_leader = self._lookup.current_leader(
                topic, key.number, request.context.listener_name, LeaderIdAndEpoch, NodeEndpoint, leaders
            )
        return data


def _response(
    session_response: SessionResponse,
    topics: dict[TopicReference, list[PartitionData]],
    leaders: dict[int, NodeEndpoint],
) -> FetchResponse:
    responses = tuple(
        FetchableTopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )
    return FetchResponse(
        error_code=session_response.error, session_id=session_response.session_id, responses=responses,
        node_endpoints=tuple(leaders.values()),
    )  # fmt: skip


def _position(partition: FetchPartition) -> FetchPosition:
    return FetchPosition(
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )


def _replica_id(body: FetchRequest, version: int) -> int:
    return body.replica_state.replica_id if version >= FIRST_VERSION_WITH_REPLICA_STATE else body.replica_id


def _intent(body: FetchRequest, version: int) -> FetchIntent:
    """Return what a request asks of its session. A partition that is named twice is read as it is named last."""
    return FetchIntent(
        session_id=body.session_id,
        epoch=body.session_epoch,
        requested={
            PartitionKey(topic.topic, topic.topic_id, partition.partition): FetchPosition(
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
            for topic in body.topics
            for partition in topic.partitions
        },
        forgotten=[
            PartitionKey(topic.topic, topic.topic_id, index)
            for topic in body.forgotten_topics_data
            for index in topic.partitions
        ],
        has_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_IDS,
        is_from_follower=_replica_id(body, version) >= 0,
    )


def _error_code(error: ApiError | None, version: int) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and version < FIRST_VERSION_WITH_STORAGE_ERRORS:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return error.code
