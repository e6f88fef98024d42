"""Serves AdminService: operations go to the controller, reads to the store of the answering node.

Nothing in a request is trusted: what cannot be is answered INVALID_REQUEST, and no stream breaks over an operation.
Results that are ready together go out as one message. A client that does not take its answers is not listened to.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final, TypeVar

import grpc.aio
import structlog

from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.types import Offset
from raft.rpc.options import MESSAGE_BYTES_MAX
from statemachine import queries
from statemachine.config_operations import parse_broker_name
from statemachine.controller import Controller
from statemachine.conversions import broker_to_record, config_to_proto, topic_listing_to_proto, topic_to_proto
from statemachine.ids import ID_BYTES, id_to_text
from statemachine.limits import NOTHING_WRITTEN
from statemachine.machine import MetadataMachine
from statemachine.names import check_name_lengths, quoted
from statemachine.resources import CLUSTER_DEFAULT, ResourceType
from statemachine.store import MetadataStore

WAIT_MS_MAX: Final = 60_000
"""The longest that a read may wait for an offset."""

DESCRIBED_TOPICS_MAX: Final = 2_000
"""So many topics may be named in one read; about a second's work, for which other reads wait."""

REFERENCES_MAX: Final = 10 * DESCRIBED_TOPICS_MAX
"""So many references are looked at for those that are given more than once."""

OPERATIONS_AT_A_TIME: Final = 1_000
UNREAD_RESULTS_MAX: Final = 2_000
"""With more answers than this not taken yet, no further operations are read from that stream."""

RESULT_BYTES_SOFT_MAX: Final = 1024 * 1024
"""An answer message holds about this much, and at least one result."""

RESULT_BYTES_MAX: Final = MESSAGE_BYTES_MAX - RESULT_BYTES_SOFT_MAX - 1024
"""A larger result is not sent: behind others, it would fit no message."""

Response = TypeVar(
    "Response",
    admin_pb2.ListTopicsResponse,
    admin_pb2.DescribeTopicsResponse,
    admin_pb2.ListBrokersResponse,
    admin_pb2.DescribeConfigsResponse,
)
Context = grpc.aio.ServicerContext[object, object]

logger = structlog.get_logger(__name__)


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """The admin service of one node."""

    def __init__(self, controller: Controller, store: MetadataStore, machine: MetadataMachine) -> None:
        self._controller = controller
        self._store = store
        self._machine = machine

    async def Execute(
        self, request_iterator: AsyncIterator[admin_pb2.OperationBatch], context: Context
    ) -> AsyncIterator[admin_pb2.OperationResultBatch]:
        """Operations in, results out as they come, until the client has no more and all are answered."""
        stream = _OperationStream(self._controller)
        reading = asyncio.create_task(stream.read(request_iterator))
        try:
            while results := await stream.take():
                yield admin_pb2.OperationResultBatch(results=results)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def ListTopics(self, request: admin_pb2.ListTopicsRequest, context: Context) -> admin_pb2.ListTopicsResponse:
        """All topics by name."""

        def read(connection: sqlite3.Connection) -> admin_pb2.ListTopicsResponse:
            return admin_pb2.ListTopicsResponse(topics=map(topic_listing_to_proto, queries.list_topics(connection)))

        return await self._answer(request.consistency, admin_pb2.ListTopicsResponse, read)

    async def DescribeTopics(
        self, request: admin_pb2.DescribeTopicsRequest, context: Context
    ) -> admin_pb2.DescribeTopicsResponse:
        """Topics with everything, each once, in the order of the request; a topic that is not there has an error."""

        def read(connection: sqlite3.Connection) -> admin_pb2.DescribeTopicsResponse:
            if not request.topics:
                topics = map(topic_to_proto, queries.describe_all_topics(connection))
                return admin_pb2.DescribeTopicsResponse(topics=topics)
            references = _distinct(request.topics)
            return admin_pb2.DescribeTopicsResponse(topics=[_describe(connection, topic) for topic in references])

        return await self._answer(request.consistency, admin_pb2.DescribeTopicsResponse, read)

    async def ListBrokers(
        self, request: admin_pb2.ListBrokersRequest, context: Context
    ) -> admin_pb2.ListBrokersResponse:
        """All registered brokers by id."""

        def read(connection: sqlite3.Connection) -> admin_pb2.ListBrokersResponse:
            return admin_pb2.ListBrokersResponse(brokers=map(broker_to_record, queries.list_brokers(connection)))

        return await self._answer(request.consistency, admin_pb2.ListBrokersResponse, read)

    async def DescribeConfigs(
        self, request: admin_pb2.DescribeConfigsRequest, context: Context
    ) -> admin_pb2.DescribeConfigsResponse:
        """The configs that were set for one resource, by name."""

        def read(connection: sqlite3.Connection) -> admin_pb2.DescribeConfigsResponse:
            _check_resource(connection, request.resource_type, request.resource_name)
            configs = queries.describe_configs(connection, request.resource_type, request.resource_name)
            return admin_pb2.DescribeConfigsResponse(configs=map(config_to_proto, configs))

        return await self._answer(request.consistency, admin_pb2.DescribeConfigsResponse, read)

    async def _answer(
        self,
        consistency: admin_pb2.ReadConsistency,
        kind: type[Response],
        read: Callable[[sqlite3.Connection], Response],
    ) -> Response:
        def read_with_offset(connection: sqlite3.Connection) -> Response:
            response = read(connection)
            response.applied_end_offset = queries.applied_end_offset(connection)
            return response

        try:
            await self._wait(consistency)
            response = await self._store.query(read_with_offset)
            self._machine.refuse_if_fenced()  # the fence may have come while the query waited for its turn
            if response.ByteSize() > MESSAGE_BYTES_MAX:
                raise ProtocolError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"the answer has {response.ByteSize()} bytes, more than fit one message; ask for fewer topics",
                )
            return response
        except ProtocolError as error:
            code, message = error.code, error.args[0]
        except sqlite3.Error as error:
            logger.error("a query failed", reason=str(error))
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata database cannot be read: {error}"
        return kind(error_code=code, error_message=message, applied_end_offset=self._machine.applied_end_offset)

    async def _wait(self, consistency: admin_pb2.ReadConsistency) -> None:
        if not 0 <= consistency.wait_ms <= WAIT_MS_MAX:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"wait_ms is {consistency.wait_ms}; it must be between 0 and {WAIT_MS_MAX}"
            )
        await self._machine.wait_applied(Offset(consistency.min_applied_end_offset), consistency.wait_ms)


class _OperationStream:
    """One client's operations on their way to the controller, and the results on their way back."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._results: deque[admin_pb2.OperationResult] = deque()
        self._unanswered = 0
        self._is_read = False
        self._result_came = asyncio.Event()
        self._results_went = asyncio.Event()

    async def read(self, batches: AsyncIterator[admin_pb2.OperationBatch]) -> None:
        """Hand the operations of `batches` to the controller, no faster than the results are taken."""
        try:
            async for batch in batches:
                operations = batch.operations
                for start in range(0, len(operations), OPERATIONS_AT_A_TIME):
                    await self._wait_for_room()
                    some = operations[start : start + OPERATIONS_AT_A_TIME]
                    self._unanswered += len(some)
                    await self._controller.submit(some, self._put)
        except BaseException:
            self._unanswered = 0  # some will never be answered: let the stream end with the error, and wait for none
            raise
        finally:
            self._is_read = True
            self._result_came.set()

    async def take(self) -> list[admin_pb2.OperationResult]:
        """The results that are ready, at least one; none when all operations are answered, or `read` has failed."""
        while not self._results and not (self._is_read and self._unanswered <= 0):
            self._result_came.clear()
            await self._result_came.wait()
        taken: list[admin_pb2.OperationResult] = []
        size_bytes = 0
        while self._results and size_bytes < RESULT_BYTES_SOFT_MAX:
            result = _sendable(self._results.popleft())
            size_bytes += result.ByteSize()
            taken.append(result)
        self._results_went.set()
        return taken

    def _put(self, result: admin_pb2.OperationResult) -> None:
        self._unanswered -= 1
        self._results.append(result)
        self._result_came.set()

    async def _wait_for_room(self) -> None:
        while len(self._results) > UNREAD_RESULTS_MAX:
            self._results_went.clear()
            await self._results_went.wait()


def _sendable(result: admin_pb2.OperationResult) -> admin_pb2.OperationResult:
    """`result`, or an error in its place if it fits no message: that would break the stream for all others."""
    if result.ByteSize() <= RESULT_BYTES_MAX:
        return result
    done = "nothing was written" if result.end_offset == NOTHING_WRITTEN else "the operation was carried out"
    return admin_pb2.OperationResult(
        correlation_id=result.correlation_id,
        error_code=ErrorCode.RECORD_LIST_TOO_LARGE,
        error_message=f"{done}, but the answer has {result.ByteSize()} bytes, too many for one message: divide it",
        end_offset=result.end_offset,
    )


def _distinct(references: Sequence[admin_pb2.TopicReference]) -> Collection[admin_pb2.TopicReference]:
    """Each reference once. Raises ProtocolError(INVALID_REQUEST) if one read cannot be about so many."""
    if len(references) <= REFERENCES_MAX:
        distinct = {(reference.name, reference.topic_id): reference for reference in references}
        if len(distinct) <= DESCRIBED_TOPICS_MAX:
            check_name_lengths(name for name, _ in distinct)
            return distinct.values()
    raise ProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"the request names {len(references)} topics; name at most {DESCRIBED_TOPICS_MAX} at a time, or none for all",
    )


def _describe(connection: sqlite3.Connection, reference: admin_pb2.TopicReference) -> admin_pb2.TopicDescription:
    name, topic_id = reference.name, reference.topic_id
    if bool(name) == bool(topic_id) or (topic_id and len(topic_id) != ID_BYTES):
        error, message = ErrorCode.INVALID_REQUEST, f"give a topic's name, or its id of {ID_BYTES} bytes, not both"
    elif name:
        found = queries.describe_topic(connection, name=name)
        if found is not None:
            return topic_to_proto(found)
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(name)}"
    else:
        found = queries.describe_topic(connection, topic_id=id_to_text(topic_id))
        if found is not None:
            return topic_to_proto(found)
        error, message = ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {id_to_text(topic_id)}"
    return admin_pb2.TopicDescription(name=name, topic_id=topic_id, error_code=error, error_message=message)


def _check_resource(connection: sqlite3.Connection, resource_type: int, resource_name: str) -> None:
    match resource_type:
        case ResourceType.TOPIC:
            if not queries.topic_exists(connection, resource_name):
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(resource_name)}")
        case ResourceType.BROKER:
            if resource_name != CLUSTER_DEFAULT:
                broker_id = parse_broker_name(resource_name)
                if not queries.broker_exists(connection, broker_id):
                    raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        case _:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"resource type {resource_type} has no configs; use 2 for topics or 4 for brokers",
            )
