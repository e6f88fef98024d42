"""AlterPartitionReassignments, carried out by the controller, and ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.apis.refusals import message_of, text_of
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kraftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerIds, PartitionRecord
from statemachine.query.reassignments import is_reassigning
from statemachine.tables.table import Key
from statemachine.tables.topic_tables import PARTITIONS, REASSIGNING

REASSIGNMENTS_PER_PAGE: Final = 1_000

Partition = tuple[str, int]
"""The name of the topic, and the number of the partition."""


class AlterPartitionReassignmentsApi:
    """Handles AlterPartitionReassignments."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster
        self._controller = services.controller

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer when the controller has answered. A partition that is named several times is answered once."""
        request.slices.run(self._pass_on(request, reply))

    def _pass_on(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(AlterPartitionReassignmentsRequest, request.body)
        named: list[tuple[str, int, Sequence[int] | None]] = []
        for given in body.topics:
            for reassignment in given.partitions:
                named.append((given.name, reassignment.partition_index, reassignment.replicas))
                yield
        answers: dict[Partition, ReassignablePartitionResponse] = {}
        passed_on: list[admin_pb2.PartitionReassignment] = []
        for topic, index, replicas in named:
            problem = None
            if not body.allow_replication_factor_change and replicas is not None:
                problem = self._changed_count(topic, index, len(replicas))
            answers[topic, index] = _answered(index, problem)
            if problem is None:
                wanted = None if replicas is None else BrokerIds(ids=replicas)
                passed_on.append(admin_pb2.PartitionReassignment(topic=topic, partition_id=index, replicas=wanted))
            yield

        def answer(result: admin_pb2.OperationResult | ApiError | None) -> Steps:
            error = result if isinstance(result, ApiError) else None
            if error is not None:
                for topic, index, _ in named:
                    answers[topic, index] = _answered(index, error)
                    yield
            elif isinstance(result, admin_pb2.OperationResult):
                for part in result.alter_partition_reassignments.partitions:
                    answers[part.topic, part.partition_id] = ReassignablePartitionResponse(
                        partition_index=part.partition_id, error_code=part.error_code, error_message=message_of(part)
                    )
                    yield
            responses = []
            for of_topic in _by_topic(answers):
                responses.append(of_topic)
                yield
            reply(
                AlterPartitionReassignmentsResponse(
                    allow_replication_factor_change=body.allow_replication_factor_change,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else text_of(error),
                    responses=tuple(responses),
                )
            )

        if not passed_on:
            yield from answer(None)
            return
        change = admin_pb2.AlterPartitionReassignmentsRequest(partitions=passed_on)
        operation = admin_pb2.Operation(client_id=request.context.client_id, alter_partition_reassignments=change)
        self._controller.submit(operation, body.timeout_ms, lambda result: request.slices.run(answer(result)))

    def _changed_count(self, topic: str, index: int, wanted: int) -> ApiError | None:
        """Return an error if the request would change a partition's number of replicas, as far as this broker knows."""
        view = self._cluster.topic_named(topic)
        record = None if view is None else view.partition(index)
        if record is None:
            return None  # the controller refuses it, if it does not exist
        present = len(set(record.replicas) - set(record.removing_replicas))
        if present == wanted:
            return None
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{topic}-{index} has {present} replicas and would have {wanted}, which the request does not allow",
        )


def _answered(index: int, error: ApiError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else text_of(error),
    )


def _by_topic(answers: dict[Partition, ReassignablePartitionResponse]) -> Iterator[ReassignableTopicResponse]:
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for (topic, _), part in answers.items():
        topics.setdefault(topic, []).append(part)
    for topic, parts in topics.items():
        yield ReassignableTopicResponse(name=topic, partitions=tuple(parts))


class ListPartitionReassignmentsApi:
    """Handles ListPartitionReassignments, from this broker's applied metadata."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster
        self._runtime = services.runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer at once for named partitions. A search for all is done in parts, between which others are served."""
        body = cast(ListPartitionReassignmentsRequest, request.body)
        if body.topics is not None:
            request.slices.run(self._answer_named(body.topics, reply))
        else:
            self._search(None, {}, reply)

    def _answer_named(self, topics: Iterable[ListPartitionReassignmentsTopics], reply: Reply) -> Steps:
        found = {}
        for topic in topics:
            view = self._cluster.topic_named(topic.name)
            for index in topic.partition_indexes:
                record = None if view is None else view.partition(index)
                if record is not None and is_reassigning(record):
                    found[topic.name, index] = record
                yield
            yield
        reply(_listed(found))

    def _search(self, after: Key | None, found: dict[Partition, PartitionRecord], reply: Reply) -> None:
        page = PARTITIONS.scan(self._cluster.metadata, REASSIGNING, after, REASSIGNMENTS_PER_PAGE)
        for _, record in page.found:
            view = self._cluster.topic_with_id(record.topic_id)
            if view is not None:
                found[view.name, record.partition_id] = record
        if page.end is None:
            reply(_listed(found))
        else:
            self._runtime.call_after_requests(lambda: self._search(page.end, found, reply))


def _listed(found: dict[Partition, PartitionRecord]) -> ListPartitionReassignmentsResponse:
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for (topic, index), record in sorted(found.items()):
        topics.setdefault(topic, []).append(
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=tuple(record.replicas),
                adding_replicas=tuple(record.adding_replicas),
                removing_replicas=tuple(record.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=tuple(
            OngoingTopicReassignment(name=topic, partitions=tuple(partitions)) for topic, partitions in topics.items()
        ),
    )
