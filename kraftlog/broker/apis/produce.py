"""Produce: append what clients send, and answer when it is as safe as they have asked for (DB-64).

| acks | answered when |
|---|---|
| 0 | never; an error closes the connection |
| 1 | the leader has appended it, and with `flush.before.ack` flushed it |
| -1 (all) | it is below the high watermark: all in-sync replicas have it, and with `flush.before.ack` flushed it |

A request with several partitions is answered once, when each has its result or the request's timeout has expired. A
timeout does not undo an append.
"""

from __future__ import annotations

from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime, Timer
from kraftlog.broker.apis.lookups import TopicReference
from kraftlog.broker.apis.produce_results import ProducedPart, ProducedTopic, partition_response
from kraftlog.broker.apis.produced_batches import check_attributes
from kraftlog.broker.apis.refused_records import RefusedRecords
from kraftlog.broker.apis.services import RecordServices
from kraftlog.broker.quotas.client_quotas import QuotaKind
from kraftlog.kafka.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Reply, Steps, let_go
from kraftlog.replicas.committed_append import ACKS_ALL, ACKS_LEADER, ACKS_NONE, CommittedAppend, append_as_leader
from kraftlog.storage.produced_records import NotReadYet, ProducedRecords
from statemachine.words.names import INTERNAL_TOPICS

ADMINISTRATOR: Final = "__admin_client"
"""A client with this id may write to internal topics, as in Kafka."""

_DONE: Final = object()


class ProduceApi:
    """Handles Produce."""

    def __init__(self, services: RecordServices) -> None:
        self._lookup = services.lookup
        self._runtime = services.runtime
        self._usage = services.usage
        self._refused = RefusedRecords(services.runtime.now_ms)

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Append each partition's batch, and answer when that is due. Raises ConnectionRefused for acks=0.

        Records are read in portions. With many records, or with some that inflate to much, the work continues in
        slices.
        """
        body = cast(ProduceRequest, request.body)
        if request.is_large:
            request.slices.run(self._in_slices(request, body, reply))
            return
        work = self._work(request, body, reply)
        if next(work, _DONE) is not _DONE:
            request.slices.run(work)

    def _work(self, request: ClientRequest, body: ProduceRequest, reply: Reply) -> Steps:
        topics: list[ProducedTopic] = []
        is_settled = True
        budget = ScanBudget()
        try:
            for topic_data in body.topic_data:
                topic = ProducedTopic(TopicReference(topic_data.name, topic_data.topic_id), [])
                topics.append(topic)
                for data in topic_data.partition_data:
                    part = ProducedPart(data.index)
                    unread = self._fill(part, request, body, topic.reference, data, budget)
                    if unread is not None:
                        budget = ScanBudget()
                        yield from self._fill_rest(part, request, body, topic.reference, data, unread)
                    is_settled = is_settled and (part.append is None or part.append.is_done)
                    topic.parts.append(part)
        except GeneratorExit:  # the client is gone, but appended records must still be flushed
            self._flush_unanswered(topics)
            raise
        if body.acks == ACKS_NONE:
            self._flush_unanswered(topics)
            self._end_unanswered(request, topics, reply)
        elif is_settled:
            self.answer(request, topics, reply)
        else:
            _PendingProduce(self, request, topics, body.timeout_ms, reply).flush_or_answer(self._runtime)

    def _in_slices(self, request: ClientRequest, body: ProduceRequest, reply: Reply) -> Steps:
        """Like `handle`, for many partitions. Appends are flushed at once, even if the client leaves."""
        topics: list[ProducedTopic] = []
        pending = _PendingProduce(self, request, topics, body.timeout_ms, reply)
        try:
            for topic_data in body.topic_data:
                topic = ProducedTopic(TopicReference(topic_data.name, topic_data.topic_id), [])
                topics.append(topic)
                for data in topic_data.partition_data:
                    part = ProducedPart(data.index)
                    unread = self._fill(part, request, body, topic.reference, data, ScanBudget())
                    if unread is not None:
                        yield from self._fill_rest(part, request, body, topic.reference, data, unread)
                    topic.parts.append(part)
                    if part.append is not None:
                        if body.acks == ACKS_NONE:
                            part.append.begin_unanswered()
                        else:
                            pending.add(part.append)
                    yield
        except GeneratorExit:
            pending.abandon()
            raise
        if body.acks == ACKS_NONE:
            self._end_unanswered(request, topics, reply)
        else:
            pending.begin(self._runtime)

    def _flush_unanswered(self, topics: list[ProducedTopic]) -> None:
        for topic in topics:
            for part in topic.parts:
                if part.append is not None:
                    part.append.begin_unanswered()

    def _end_unanswered(self, request: ClientRequest, topics: list[ProducedTopic], reply: Reply) -> None:
        """With acks=0, an error closes the connection, which is all that the client gets. Raises ConnectionRefused."""
        errors = (part.error for topic in topics for part in topic.parts if part.error is not None)
        error = next(errors, None)
        if error is not None:
            raise ConnectionRefused(str(error))
        reply(None, self.throttle_ms(request))

    # --- appending ----------------------------------------------------------------------------------------------------

    def _fill(
        self, part: ProducedPart, request: ClientRequest, body: ProduceRequest, topic: TopicReference,
        data: PartitionProduceData, budget: ScanBudget, unread: ProducedRecords | None = None,
    ) -> ProducedRecords | None:  # fmt: skip
        """Append the part's batch, or set its error. Return the records that must be read before that, if any."""
        acks, records = body.acks, data.records
        try:
            if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
            partition = part.partition = self._lookup.find(topic, data.index)
            if partition.name.topic in INTERNAL_TOPICS and request.context.client_id != ADMINISTRATOR:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators may write to {partition.name.topic}"
                )
            if records is None:
                raise ApiError(ErrorCode.INVALID_RECORD, "the request has no records for this partition")
            check_attributes(records, request.version, body.transactional_id)
            if unread is None or unread.read(budget):
                now_ms = self._runtime.wall_clock_ms()
                part.append = append_as_leader(partition, records, acks, now_ms, budget=budget, records=unread)
        except ApiError as error:
            part.error = error.with_traceback(None)  # the traceback would keep the local variables of each function
            if part.partition is not None:
                self._refused.log(request, part.partition.name, error)
        except NotReadYet as rest:
            return rest.records
        return unread if part.append is None and part.error is None else None

    def _fill_rest(
        self, part: ProducedPart, request: ClientRequest, body: ProduceRequest, topic: TopicReference,
        data: PartitionProduceData, unread: ProducedRecords,
    ) -> Steps:  # fmt: skip
        """Read the rest of the records in further turns, then append as `_fill` does."""
        try:
            is_unread = True
            while is_unread:
                yield unread.waits
                is_unread = self._fill(part, request, body, topic, data, ScanBudget(), unread) is not None
        finally:
            unread.close()

    # --- answering ----------------------------------------------------------------------------------------------------

    def answer(self, request: ClientRequest, topics: list[ProducedTopic], reply: Reply) -> None:
        """Answer the request: each partition has its result."""
        if request.is_large:
            request.slices.run(self._answer_in_slices(request, topics, reply))
            return
        throttle_ms = self.throttle_ms(request)
        response = self.response(request, topics)
        response.throttle_time_ms = throttle_ms
        reply(response, throttle_ms)

    def _answer_in_slices(self, request: ClientRequest, topics: list[ProducedTopic], reply: Reply) -> Steps:
        leaders: dict[int, NodeEndpoint] = {}
        responses = []
        for topic in topics:
            parts = []
            for part in topic.parts:
                parts.append(partition_response(request, topic.reference, part, self._lookup, leaders))
                yield
            name, topic_id = topic.reference
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(parts)))
        response = ProduceResponse(responses=tuple(responses), node_endpoints=tuple(leaders.values()))
        response.throttle_time_ms = self.throttle_ms(request)
        yield from let_go(*(topic.parts for topic in topics))
        reply(response, response.throttle_time_ms)

    def throttle_ms(self, request: ClientRequest) -> int:
        """Return how long the producer must wait after a request of this size, in milliseconds."""
        if not self._usage.quotas.is_set(QuotaKind.PRODUCE):
            return 0
        return self._usage.record(
            QuotaKind.PRODUCE, request.context.quota_client, request.size_bytes, self._runtime.now_ms()
        )

    def response(self, request: ClientRequest, topics: list[ProducedTopic]) -> ProduceResponse:
        """Return the response, with the current leader of partitions that this broker does not lead (KIP-951)."""
        leaders: dict[int, NodeEndpoint] = {}
        responses = []
        for topic in topics:
            parts = [partition_response(request, topic.reference, part, self._lookup, leaders) for part in topic.parts]
            name, topic_id = topic.reference
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=tuple(parts)))
        return ProduceResponse(responses=tuple(responses), node_endpoints=tuple(leaders.values()))


class _PendingProduce:
    """A request whose answer waits for a flush or for the high watermark."""

    __slots__ = ("_api", "_is_answered", "_reply", "_request", "_timeout_ms", "_timer", "_topics", "_waiting")

    def __init__(
        self, api: ProduceApi, request: ClientRequest, topics: list[ProducedTopic], timeout_ms: int, reply: Reply
    ) -> None:
        self._api = api
        self._request = request
        self._topics = topics
        self._timeout_ms = timeout_ms
        self._reply = reply
        self._timer: Timer | None = None
        self._waiting = 1  # for `begin`
        self._is_answered = False

    def flush_or_answer(self, runtime: Runtime) -> None:
        """Begin the flushes that are needed, and answer at once if there is nothing to wait for."""
        on_done = self._append_done
        for topic in self._topics:
            for part in topic.parts:
                if part.append is not None and not part.append.is_done:
                    self._waiting += 1
                    part.append.begin(on_done)
        self.begin(runtime)

    def add(self, append: CommittedAppend) -> None:
        """Begin the flush of an append of a large request."""
        self._waiting += 1
        append.begin(self._append_done)

    def abandon(self) -> None:
        """The client is gone: stop waiting, and do not answer."""
        self._is_answered = True
        for topic in self._topics:
            for part in topic.parts:
                if part.append is not None:
                    part.append.stop_waiting()

    def begin(self, runtime: Runtime) -> None:
        """All parts are added: answer when each is done, or after the request's timeout."""
        self._append_done()
        if not self._is_answered:
            self._timer = runtime.call_later(max(0, self._timeout_ms), self._timed_out)

    def _append_done(self, _: CommittedAppend | None = None) -> None:
        """An append is done, or `begin` was called."""
        self._waiting -= 1
        if not self._waiting and not self._is_answered:
            self._answer()

    def _timed_out(self) -> None:
        error = ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the batch was not on all in-sync replicas in {self._timeout_ms} ms; it stays in the leader's log",
        )
        for topic in self._topics:
            for part in topic.parts:
                if part.append is not None and not part.append.is_done:
                    part.append.stop_waiting()
                    part.error = error
        self._answer()

    def _answer(self) -> None:
        self._is_answered = True
        if self._timer is not None:
            self._timer.cancel()
        self._api.answer(self._request, self._topics, self._reply)
