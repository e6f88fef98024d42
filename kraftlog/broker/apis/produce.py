"""Produce: append what clients send, answer when that is as safe as they have asked for (DB-64).

| acks | answered when |
|---|---|
| 0 | never; an error closes the connection |
| 1 | the leader has appended it, and with `flush.before.ack` flushed it |
| -1 (all) | the high watermark has passed it: all replicas in sync have it, and with `flush.before.ack` flushed it |

A request with several partitions is answered once, when each of them has its result or the request's time is over.
What was appended stays then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime, Timer
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.broker.apis.lookups import PartitionLookup, TopicReference
from kraftlog.broker.apis.produced_batches import check_attributes
from kraftlog.broker.apis.refused_records import RefusedRecords
from kraftlog.broker.quotas.client_quotas import QuotaKind
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.quotas.request_quota import quota_client
from kraftlog.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Reply, Steps, let_go
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.appends import Appended
from kraftlog.storage.produced_records import NotReadYet, ProducedRecords, RecordsRefused
from statemachine.words.names import INTERNAL_TOPICS

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

FIRST_VERSION_WITH_LEADERS: Final = 10

ADMINISTRATOR: Final = "__admin_client"
"""The client id with which Kafka lets everybody write to internal topics."""

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
"""After every other error, such as OUT_OF_ORDER_SEQUENCE_NUMBER, the answer says where the log starts, as Kafka's."""
NO_LEADER: Final = LeaderIdAndEpoch()
"""In most answers: nobody may change it."""
_DONE: Final = object()


@dataclass(slots=True, eq=False)
class _Part:
    """What a request asks of one partition, and what came of it."""

    index: int
    partition: Partition | None = None
    appended: Appended | None = None
    error: ApiError | None = None
    is_done: bool = False
    is_settled: bool = False
    """There is nothing to wait for: it was refused, or nobody flushes and nobody else has to have it. If that is so of
    every part, as of most without `flush.before.ack`, no callback and no timer are made."""
    leadership: int = 0
    """Which of this broker's leaderships of the partition it was appended in."""


@dataclass(slots=True, eq=False)
class _Topic:
    reference: TopicReference
    parts: list[_Part]


class ProduceApi:
    """Handles Produce."""

    def __init__(self, lookup: PartitionLookup, runtime: Runtime, usage: QuotaUsage) -> None:
        self._lookup = lookup
        self._runtime = runtime
        self._usage = usage
        self._refused = RefusedRecords(runtime.now_ms)

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Append each partition's batch, and answer when that is due. Raises ConnectionRefused for acks=0.

        Records are read in portions: with many of them, or some that inflate to much, it goes on in slices.
        """
        body = cast(ProduceRequest, request.body)
        if request.is_large:
            request.slices.run(self._in_slices(request, body, reply))
            return
        work = self._work(request, body, reply)
        if next(work, _DONE) is not _DONE:
            request.slices.run(work)

    def _work(self, request: ClientRequest, body: ProduceRequest, reply: Reply) -> Steps:
        topics: list[_Topic] = []
        is_settled = True
        budget = ScanBudget()
        try:
            for topic_data in body.topic_data:
                topic = _Topic(TopicReference(topic_data.name, topic_data.topic_id), [])
                topics.append(topic)
                for data in topic_data.partition_data:
                    part = _Part(data.index)
                    unread = self._fill(part, request, body, topic.reference, data, budget)
                    if unread is not None:
                        budget = ScanBudget()
                        yield from self._fill_rest(part, request, body, topic.reference, data, unread)
                    is_settled = is_settled and part.is_settled
                    topic.parts.append(part)
        except GeneratorExit:  # the client is gone, and readers wait for what was appended
            self._flush_unanswered(topics)
            raise
        if body.acks == ACKS_NONE:
            self._flush_unanswered(topics)
            self._end_unanswered(request, topics, reply)
        elif is_settled:
            self.answer(request, topics, reply)
        else:
            _PendingProduce(self, request, topics, body.acks, body.timeout_ms, reply).settle(self._runtime)

    def _in_slices(self, request: ClientRequest, body: ProduceRequest, reply: Reply) -> Steps:
        """As `handle`, for many partitions. What is appended is flushed at once, also if the client goes meanwhile."""
        topics: list[_Topic] = []
        pending = _PendingProduce(self, request, topics, body.acks, body.timeout_ms, reply)
        try:
            for topic_data in body.topic_data:
                topic = _Topic(TopicReference(topic_data.name, topic_data.topic_id), [])
                topics.append(topic)
                for data in topic_data.partition_data:
                    part = _Part(data.index)
                    unread = self._fill(part, request, body, topic.reference, data, ScanBudget())
                    if unread is not None:
                        yield from self._fill_rest(part, request, body, topic.reference, data, unread)
                    topic.parts.append(part)
                    if part.error is None:
                        if body.acks == ACKS_NONE:
                            self.flush(part, partial(_show_readers, part))
                        else:
                            pending.add(topic.reference, part)
                    yield
        except GeneratorExit:
            pending.forget()
            raise
        if body.acks == ACKS_NONE:
            self._end_unanswered(request, topics, reply)
        else:
            pending.begin(self._runtime)

    def _flush_unanswered(self, topics: list[_Topic]) -> None:
        for topic in topics:
            for part in topic.parts:
                if part.error is None:
                    self.flush(part, partial(_show_readers, part))

    def _end_unanswered(self, request: ClientRequest, topics: list[_Topic], reply: Reply) -> None:
        """With acks=0 an error shows by the end of the connection only. Raises ConnectionRefused."""
        errors = (part.error for topic in topics for part in topic.parts if part.error is not None)
        error = next(errors, None)
        if error is not None:
            raise ConnectionRefused(str(error))
        reply(None, self.throttle_ms(request))

    # --- appending ----------------------------------------------------------------------------------------------------

    def _fill(
        self, part: _Part, request: ClientRequest, body: ProduceRequest, topic: TopicReference,
        data: PartitionProduceData, budget: ScanBudget, unread: ProducedRecords | None = None,
    ) -> ProducedRecords | None:  # fmt: skip
        """Append the part's batch, or have its error; returns the records that are still to be read before that."""
        acks, records = body.acks, data.records
        try:
            if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
            partition = part.partition = self._lookup.find(topic, data.index)
            if partition.name.topic in INTERNAL_TOPICS and request.client_id != ADMINISTRATOR:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by coordinators only"
                )
            if records is None:
                raise ApiError(ErrorCode.INVALID_RECORD, "the request has no records for this partition")
            check_attributes(records, request.version, body.transactional_id)
            if unread is None or unread.read(budget):
                self._append(part, partition, acks, records, budget, unread)
        except ApiError as error:
            part.error = error.with_traceback(None)  # with it each error would hold what the functions have held
            if part.partition is not None:
                self._refused.log(request, part.partition.name, error)
            part.is_done = part.is_settled = True
        except NotReadYet as rest:
            return rest.records
        return unread if part.appended is None and part.error is None else None

    def _fill_rest(
        self, part: _Part, request: ClientRequest, body: ProduceRequest, topic: TopicReference,
        data: PartitionProduceData, unread: ProducedRecords,
    ) -> Steps:  # fmt: skip
        """Read the rest of the records in further turns, and then do as `_fill` does."""
        try:
            is_unread = True
            while is_unread:
                yield unread.waits
                is_unread = self._fill(part, request, body, topic, data, ScanBudget(), unread) is not None
        finally:
            unread.close()

    def _append(
        self, part: _Part, partition: Partition, acks: int, records: Buffer, budget: ScanBudget,
        read: ProducedRecords | None,
    ) -> None:  # fmt: skip
        log = partition.log
        if log is None or not partition.is_leader:
            log = partition.leader_log()  # raises, and says why
        if acks == ACKS_ALL and not partition.has_enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(partition.isr)} replicas of {partition} are in sync, fewer than the"
                f" {partition.effective_min_isr} of min.insync.replicas",
            )
        appended = log.append_as_leader(
            records, partition.leader_epoch, self._runtime.wall_clock_ms(), budget=budget, records=read
        )
        part.appended = appended
        part.leadership = partition.leadership
        partition.appended()
        if not log.config.is_flushed:
            part.is_settled = acks == ACKS_LEADER or (
                log.high_watermark > appended.last_offset and partition.has_enough_in_sync
            )

    def flush(self, part: _Part, on_flushed: Callable[[ApiError | None], None]) -> None:
        """Call back when the leader's own disk has what was appended, as far as the topic asks for that."""
        partition, appended = part.partition, part.appended
        if partition is None or partition.log is None or appended is None:
            on_flushed(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log went offline after the append"))
            return
        partition.log.acknowledge(appended.end_offset, on_flushed)

    # --- answering ----------------------------------------------------------------------------------------------------

    def answer(self, request: ClientRequest, topics: list[_Topic], reply: Reply) -> None:
        """Each partition has its result."""
        if request.is_large:
            request.slices.run(self._answer_in_slices(request, topics, reply))
            return
        throttle_ms = self.throttle_ms(request)
        response = self.response(request, topics)
        response.throttle_time_ms = throttle_ms
        reply(response, throttle_ms)

    def _answer_in_slices(self, request: ClientRequest, topics: list[_Topic], reply: Reply) -> Steps:
        leaders: dict[int, NodeEndpoint] = {}
        responses = []
        for topic in topics:
            parts = []
            for part in topic.parts:
                parts.append(self._partition_response(request, topic, part, leaders))
                yield
            name, topic_id = topic.reference
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(parts)))
        response = ProduceResponse(responses=tuple(responses), node_endpoints=tuple(leaders.values()))
        response.throttle_time_ms = self.throttle_ms(request)
        yield from let_go(*(topic.parts for topic in topics))
        reply(response, response.throttle_time_ms)

    def throttle_ms(self, request: ClientRequest) -> int:
        """How long the producer must wait after a request of that size."""
        if not self._usage.quotas.is_set(QuotaKind.PRODUCE):
            return 0
        return self._usage.record(QuotaKind.PRODUCE, quota_client(request), request.size_bytes, self._runtime.now_ms())

    def response(self, request: ClientRequest, topics: list[_Topic]) -> ProduceResponse:
        """The answer, with the present leader where this broker is not it (KIP-951)."""
        leaders: dict[int, NodeEndpoint] = {}
        responses = []
        for topic in topics:
            parts = [self._partition_response(request, topic, part, leaders) for part in topic.parts]
            name, topic_id = topic.reference
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(parts)))
        return ProduceResponse(responses=tuple(responses), node_endpoints=tuple(leaders.values()))

    def _partition_response(
        self, request: ClientRequest, topic: _Topic, part: _Part, leaders: dict[int, NodeEndpoint]
    ) -> PartitionProduceResponse:
        error, appended = part.error, part.appended
        if error is None and appended is not None:
            return PartitionProduceResponse(
                index=part.index, error_code=ErrorCode.NONE, base_offset=appended.base_offset,
                log_append_time_ms=appended.append_time_ms, log_start_offset=appended.log_start_offset,
                current_leader=NO_LEADER,
            )  # fmt: skip
        code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error.code
        current_leader = NO_LEADER
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= FIRST_VERSION_WITH_LEADERS:
            current_leader = self._lookup.current_leader(
                topic.reference, part.index, request.client.listener_name, LeaderIdAndEpoch, NodeEndpoint, leaders
            )
        refused = error.record_errors if isinstance(error, RecordsRefused) else ()
        return PartitionProduceResponse(
            index=part.index, error_code=code, base_offset=UNKNOWN_OFFSET, error_message=str(error),
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=one.batch_index, batch_index_error_message=one.message)
                for one in refused
            ),
            log_start_offset=_start_of(part.partition, code), current_leader=current_leader,
        )  # fmt: skip


def _show_readers(part: _Part, error: ApiError | None) -> None:
    """With acks=0 nobody waits for the flush but readers."""
    if error is None and part.partition is not None:
        part.partition.raise_high_watermark()


class _PendingProduce:
    """A request whose answer waits for a disk or for the high watermark."""

    __slots__ = (
        "_acks", "_api", "_by_partition", "_is_answered", "_reply", "_request", "_timeout_ms", "_timer", "_topics",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, api: ProduceApi, request: ClientRequest, topics: list[_Topic], acks: int, timeout_ms: int, reply: Reply
    ) -> None:
        self._api = api
        self._request = request
        self._topics = topics
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._reply = reply
        self._timer: Timer | None = None
        self._waiting = 1  # for `begin`
        self._is_answered = False
        self._by_partition: dict[Partition, list[_Topic]] = {}
        """Of a large request: its parts by their partitions."""

    def settle(self, runtime: Runtime) -> None:
        """Have everything flushed that must be, and answer at once if nothing is to be waited for."""
        for topic in self._topics:
            for part in topic.parts:
                if not part.is_done:
                    self._waiting += 1
                    self._api.flush(part, partial(self.flushed, part))
        self.begin(runtime)

    def add(self, reference: TopicReference, part: _Part) -> None:
        """Have a part of a large request flushed, which was appended."""
        if part.partition is not None:
            self._by_partition.setdefault(part.partition, [_Topic(reference, [])])[0].parts.append(part)
        self._waiting += 1
        self._api.flush(part, partial(self.flushed, part))

    def forget(self) -> None:
        """Nobody waits for the answer."""
        self._is_answered = True
        for partition in self._by_partition:
            partition.unwatch(self)

    def begin(self, runtime: Runtime) -> None:
        """All parts are there: answer when each is done, or after the request's time."""
        self._part_done()
        if not self._is_answered:
            self._timer = runtime.call_later(max(0, self._timeout_ms), self._timed_out)

    def flushed(self, part: _Part, error: ApiError | None) -> None:
        """The leader has it on its disk, or has not."""
        partition = part.partition
        if partition is not None and error is None:
            partition.raise_high_watermark()  # also after the request's time: readers wait for it still
        if part.is_done or partition is None:
            return
        if error is None and part.leadership != partition.leadership:
            # Consider a leader that has led no more, cut what it had appended, and leads again: what is flushed and
            # committed at these offsets now may be another's.
            error = ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition} was led by another broker meanwhile, or its log was offline: try again",
            )
        if error is not None:
            self._end(part, error)
        elif self._acks == ACKS_LEADER:
            self._end(part, None)
        elif not self._ended_by(part, partition):
            partition.watch(self)

    def partition_changed(self, partition: Partition) -> None:
        """The high watermark has moved, or another broker leads."""
        is_waiting = False
        for topic in self._by_partition.get(partition, ()) if self._by_partition else self._topics:
            for part in topic.parts:
                if part.partition is partition and not part.is_done:  # a request may have a partition twice
                    is_waiting |= not self._ended_by(part, partition)
        if not is_waiting:
            partition.unwatch(self)

    def _ended_by(self, part: _Part, partition: Partition) -> bool:
        """End a part with acks=all if it can be."""
        appended = part.appended
        try:
            log = partition.leader_log()
        except ApiError as error:
            self._end(part, error)
            return True
        if appended is None or log.high_watermark < appended.end_offset:
            return False
        too_few = None
        if not partition.has_enough_in_sync:
            too_few = ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{partition} has fewer replicas in sync than min.insync.replicas asks for; the records were appended",
            )
        self._end(part, too_few)
        return True

    def _end(self, part: _Part, error: ApiError | None) -> None:
        part.error = error
        part.is_done = True
        self._part_done()

    def _part_done(self) -> None:
        self._waiting -= 1
        if not self._waiting and not self._is_answered:
            self._answer()

    def _timed_out(self) -> None:
        error = ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the replicas in sync did not have it within {self._timeout_ms} ms; it is in the leader's log",
        )
        for topic in self._topics:
            for part in topic.parts:
                if not part.is_done:
                    part.is_done = True
                    part.error = error
                    if part.partition is not None:
                        part.partition.unwatch(self)
        self._answer()

    def _answer(self) -> None:
        self._is_answered = True
        if self._timer is not None:
            self._timer.cancel()
        self._api.answer(self._request, self._topics, self._reply)


def _start_of(partition: Partition | None, code: int) -> int:
    """What the answer says after an error of where the log starts."""
    if partition is None or partition.log is None or code in WITHOUT_LOG_START:
        return UNKNOWN_OFFSET
    return partition.log.log_start_offset
