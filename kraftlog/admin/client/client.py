"""The admin client: the address of any node is enough. It finds and follows the leader by itself.

    async with AdminClient([Endpoint("localhost", 9093)]) as client:
        await client.create_topics([NewTopic("clicks", num_partitions=3, replication_factor=2)])

- Changes go to the leader over one stream; the operations that are pending are sent as one message.
- What was certainly not carried out (no leader, not the leader, not sent, throttled) is retried until the timeout, with
  jitter. What may have been carried out is not: OutcomeUnknown reports it, and the caller looks before trying again.
- Reads are answered by the first of the given addresses that can be reached, from what that node has applied, at least
  up to what this client's acknowledged operations changed or found to be so already. `last_end_offset` is that offset:
  another client waits for it with `wait_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import id_to_bytes
from kraftbase.uuids import random_uuid
from kraftlog.admin.client.node_reader import READ_BYTES_MAX, NodeReader, Request, Response, Select, query
from kraftlog.admin.client.operation_sender import OperationSender
from kraftlog.admin.client.operation_stream import NotSent, OutcomeUnknown
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from raft.rpc import codec
from statemachine.query.conversions import (
    alteration_to_proto,
    broker_from_record,
    config_from_proto,
    created_topic_from_proto,
    new_topic_to_proto,
    query_answer_from_proto,
    topic_from_proto,
    topic_listing_from_proto,
)
from statemachine.query.descriptions import (
    Alteration,
    BrokerListener,
    CreatedTopic,
    DescribedConfigs,
    DescribedTopics,
    ListedBrokers,
    ListedTopics,
    NewTopic,
    QueryAnswer,
)
from statemachine.words.features import SUPPORTED

__all__ = ["AdminClient", "Alteration", "BrokerListener", "NewTopic", "NotSent", "OutcomeUnknown"]

TIMEOUT_MS_DEFAULT: Final = 30_000

REFERENCE_OVERHEAD_BYTES: Final = 4
CONSISTENCY_BYTES: Final = 64
"""What a request has besides references: its consistency."""

Part = admin_pb2.CreatedTopic | admin_pb2.DeletedTopic | admin_pb2.AlteredResource | admin_pb2.TopicDescription


class AdminClient:
    """A client of one cluster, for one event loop. Use it as `async with AdminClient(...) as client`."""

    def __init__(
        self, bootstrap: Sequence[Endpoint], *, timeout_ms: int = TIMEOUT_MS_DEFAULT, client_id: str = ""
    ) -> None:
        """`bootstrap` names at least one node; `timeout_ms` is how long each call may take, retries included.

        The changes count against the mutation quota of `client_id` (CT-20).
        """
        if timeout_ms <= 0:
            raise ValueError(f"timeout_ms is {timeout_ms}; it must be above 0")
        self._timeout_ms = timeout_ms
        self._sender = OperationSender(bootstrap, client_id)
        self._reader = NodeReader(bootstrap)
        self._last_end_offset = 0

    async def __aenter__(self) -> AdminClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; pending calls, and all later ones, end with an error."""
        await self._sender.close()
        await self._reader.close()

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever the stream to the leader ends without this client's doing."""
        self._sender.on_disconnected = callback

    @property
    def timeout_ms(self) -> int:
        """How long each call may take, retries included."""
        return self._timeout_ms

    # --- changes ------------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic | admin_pb2.CreatableTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics, or with `validate_only` only check them. Raises ApiError for the first that is refused."""
        creatable = [new_topic_to_proto(topic) if isinstance(topic, NewTopic) else topic for topic in topics]
        request = admin_pb2.CreateTopicsRequest(topics=creatable, validate_only=validate_only)
        result = await self.change(admin_pb2.Operation(create_topics=request))
        _raise_first(result.create_topics.topics)
        return [created_topic_from_proto(topic) for topic in result.create_topics.topics]

    async def delete_topics(self, names: Iterable[str] = (), *, topic_ids: Iterable[str] = ()) -> None:
        """Delete topics by name or id. Raises ApiError for the first that is refused."""
        request = admin_pb2.DeleteTopicsRequest(topics=_references(names, topic_ids))
        result = await self.change(admin_pb2.Operation(delete_topics=request))
        _raise_first(result.delete_topics.topics)

    async def register_broker(
        self,
        broker_id: int,
        listeners: Iterable[BrokerListener | tuple[str, str, int]],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        incarnation_id: str | None = None,
        log_dirs: Sequence[str] | None = None,
        previous_broker_epoch: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """As `registration`, and return the broker's epoch. Raises ApiError."""
        answer = await self.registration(
            broker_id,
            listeners,
            rack=rack,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_broker_epoch,
            timeout_ms=timeout_ms,
        )
        return answer.broker_epoch

    async def registration(
        self,
        broker_id: int,
        listeners: Iterable[BrokerListener | tuple[str, str, int]],
        *,
        rack: str | None = None,
        cluster_id: str | None = None,
        incarnation_id: str | None = None,
        log_dirs: Sequence[str] | None = None,
        previous_broker_epoch: int | None = None,
        log_dir_epochs: Sequence[int] = (),
        timeout_ms: int | None = None,
    ) -> admin_pb2.RegisterBrokerResponse:
        """Register a broker; it is fenced until it sends heartbeats. Raises ApiError.

        It may take `timeout_ms` if that is less than the client's. Ids that are not given are generated.
        `previous_broker_epoch` is what a broker found on its disk after a clean shutdown; without it, a broker that was
        registered before may have lost records (KIP-966). `log_dir_epochs` are what a broker that keeps its epoch in
        its log directories found in each of them, -1 for none; the answer names those that are older copies (CT-38).
        """
        request = admin_pb2.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=random_uuid().bytes if incarnation_id is None else id_to_bytes(incarnation_id),
            listeners=[
                BrokerEndpoint(name=at.name, host=at.host, port=at.port, security_protocol=at.security_protocol)
                for at in (BrokerListener(*listener) for listener in listeners)
            ],
            rack=rack,
            log_dirs=[random_uuid().bytes] if log_dirs is None else map(id_to_bytes, log_dirs),
            features=[
                SupportedFeature(name=found.name, min_level=found.min_level, max_level=found.max_level)
                for found in SUPPORTED
            ],
            previous_broker_epoch=previous_broker_epoch,
            log_dir_epochs=log_dir_epochs,
        )
        result = await self.change(admin_pb2.Operation(register_broker=request), timeout_ms)
        return result.register_broker

    async def broker_heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        metadata_offset: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: Iterable[str] = (),
        log_dir_space: Iterable[admin_pb2.LogDirSpace] = (),
        timeout_ms: int | None = None,
    ) -> admin_pb2.BrokerHeartbeatResponse:
        """Send a heartbeat: the broker is alive, what end offset of the metadata it has applied, and what it wants.

        `offline_log_dirs` are the ids of its log directories that have failed, `log_dir_space` is the room in the
        others.

        It may take `timeout_ms` if that is less than the client's: a heartbeat that waits for a hung node delays the
        next one, which could go to another node. Raises ApiError; sending it twice does no harm.
        """
        request = admin_pb2.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=map(id_to_bytes, offline_log_dirs),
            log_dir_space=log_dir_space,
        )
        result = await self.change(admin_pb2.Operation(broker_heartbeat=request), timeout_ms)
        return result.broker_heartbeat

    async def fence_broker(self, broker_id: int) -> None:
        """Take a broker out of every ISR and leadership, until its next heartbeat. Raises ApiError."""
        await self.change(admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id)))

    async def unregister_broker(self, broker_id: int) -> None:
        """Unregister a broker: it is fenced and leaves every ISR, and its registration is deleted. Raises ApiError."""
        request = admin_pb2.UnregisterBrokerRequest(broker_id=broker_id)
        await self.change(admin_pb2.Operation(unregister_broker=request))

    async def alter_configs(
        self, alterations: Iterable[Alteration | admin_pb2.ConfigAlteration], *, validate_only: bool = False
    ) -> None:
        """Set and remove configs. Raises ApiError for the first resource that is refused."""
        request = admin_pb2.AlterConfigsRequest(
            alterations=[alteration_to_proto(a) if isinstance(a, Alteration) else a for a in alterations],
            validate_only=validate_only,
        )
        result = await self.change(admin_pb2.Operation(alter_configs=request))
        _raise_first(result.alter_configs.resources)

    async def change(self, operation: admin_pb2.Operation, timeout_ms: int | None = None) -> admin_pb2.OperationResult:
        """As `execute`, and raise ApiError if it was refused as a whole; its parts may have errors still."""
        result = await self.execute(operation, timeout_ms=self._at_most(timeout_ms))
        if result.error_code:
            raise ApiError(codec.error_from_proto(result.error_code), result.error_message)
        return result

    async def execute(
        self,
        operation: admin_pb2.Operation,
        *,
        retry: bool = True,
        retry_unknown: bool = False,
        timeout_ms: int | None = None,
    ) -> admin_pb2.OperationResult:
        """Have the leader carry out `operation` and return its answer, which may hold errors of its parts.

        With `retry`, what was certainly not carried out is retried until the timeout; `retry_unknown` is for
        operations that do no harm when done twice. Without, there is one attempt, whose answer is returned as it is.
        Raises NotSent if no node could be reached, OutcomeUnknown if it may have been carried out.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        result = await self._sender.execute(operation, timeout_ms, retry=retry, retry_unknown=retry_unknown)
        if result.error_code == ErrorCode.NONE:
            self._last_end_offset = max(self._last_end_offset, _offset_to_see(operation, result))
        return result

    async def cluster_id(self) -> str:
        """The id of the cluster that this client talks to. Raises NotSent if its leader is not found."""
        return await self._sender.cluster_id(self._timeout_ms)

    # --- reads --------------------------------------------------------------------------------------------------------

    @property
    def last_end_offset(self) -> int:
        """The end offset that this client's acknowledged operations depend on, or that it waited for; 0: none yet."""
        return self._last_end_offset

    async def wait_for(self, end_offset: int, *, at: Endpoint | None = None, timeout_ms: int | None = None) -> int:
        """Wait until a node has applied everything below `end_offset`; returns the end offset that it has applied.

        The node is the one `at`, or the one that answers this client's reads; later reads are at least that recent. The
        offset is an answered operation's `state_end_offset`, or its `end_offset` for what it wrote itself (-1, nothing,
        is no wait), or another client's `last_end_offset`. Raises ApiError: REQUEST_TIMED_OUT if the node does not
        reach it in time, BROKER_NOT_AVAILABLE if it does not answer.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        reader = self._reader if at is None else NodeReader([at])
        try:
            applied_end_offset = await reader.wait_for(end_offset, timeout_ms)
        finally:
            if reader is not self._reader:
                await reader.close()
        self._last_end_offset = max(self._last_end_offset, end_offset)
        return applied_end_offset

    async def list_topics(self, *, min_applied_end_offset: int = 0) -> ListedTopics:
        """All topics by name. Raises ApiError."""
        request = admin_pb2.ListTopicsRequest(consistency=self._consistency(min_applied_end_offset))
        response = await self._reader.read(lambda stub: stub.ListTopics, request, self._timeout_ms)
        return ListedTopics(response.applied_end_offset, tuple(map(topic_listing_from_proto, response.topics)))

    async def describe_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[str] = (), min_applied_end_offset: int = 0
    ) -> DescribedTopics:
        """Full descriptions of topics, in that order; of all topics if none is named.

        Many names are asked for in several reads, each of a state that is at least as new as the one before. Raises
        ApiError for the first that does not exist.
        """
        end_offsets, topics = [min_applied_end_offset], list[admin_pb2.TopicDescription]()
        for references in _pages(_references(names, topic_ids)):
            request = admin_pb2.DescribeTopicsRequest(consistency=self._consistency(end_offsets[-1]), topics=references)
            response = await self._reader.read(lambda stub: stub.DescribeTopics, request, self._timeout_ms)
            end_offsets.append(response.applied_end_offset)
            topics += response.topics
        _raise_first(topics)
        return DescribedTopics(end_offsets[1], tuple(map(topic_from_proto, topics)))

    async def list_brokers(self, *, min_applied_end_offset: int = 0) -> ListedBrokers:
        """All registered brokers by id. Raises ApiError."""
        request = admin_pb2.ListBrokersRequest(consistency=self._consistency(min_applied_end_offset))
        response = await self._reader.read(lambda stub: stub.ListBrokers, request, self._timeout_ms)
        return ListedBrokers(response.applied_end_offset, tuple(map(broker_from_record, response.brokers)))

    async def describe_configs(
        self, resource_type: int, resource_name: str, *, min_applied_end_offset: int = 0
    ) -> DescribedConfigs:
        """The configs that were set for a topic (2) or a broker (4), by name. Raises ApiError."""
        request = admin_pb2.DescribeConfigsRequest(
            consistency=self._consistency(min_applied_end_offset),
            resource_type=resource_type,
            resource_name=resource_name,
        )
        response = await self._reader.read(lambda stub: stub.DescribeConfigs, request, self._timeout_ms)
        return DescribedConfigs(response.applied_end_offset, tuple(map(config_from_proto, response.configs)))

    async def query(self, sql: str, *, min_applied_end_offset: int = 0) -> QueryAnswer:
        """Run one read-only SQL statement on a node's committed metadata: see docs/sql.md. Raises ApiError."""
        request = admin_pb2.QueryRequest(consistency=self._consistency(min_applied_end_offset), sql=sql)
        response = await self._reader.read(query, request, self._timeout_ms)
        return query_answer_from_proto(response)

    async def read(self, select: Select[Response], request: Request, *, min_applied_end_offset: int = 0) -> Response:
        """A node's answer to `request`, a call that `select` picks. Raises ApiError."""
        request.consistency.CopyFrom(self._consistency(min_applied_end_offset))
        return await self._reader.read(select, request, self._timeout_ms)

    async def applied_end_offset(self, *, timeout_ms: int | None = None) -> int:
        """The end offset that the node which answers reads has applied. Raises ApiError.

        It may take `timeout_ms` if that is less than the client's.
        """
        request = admin_pb2.DescribeFeaturesRequest(consistency=self._consistency(0))
        remaining_ms = self._at_most(timeout_ms)
        response = await self._reader.read(lambda stub: stub.DescribeFeatures, request, remaining_ms)
        return response.applied_end_offset

    def _at_most(self, timeout_ms: int | None) -> int:
        """How long a call with this timeout may take; None: as long as any call of this client."""
        return self._timeout_ms if timeout_ms is None else min(timeout_ms, self._timeout_ms)

    def _consistency(self, min_applied_end_offset: int) -> admin_pb2.ReadConsistency:
        return admin_pb2.ReadConsistency(min_applied_end_offset=max(min_applied_end_offset, self._last_end_offset))


def _offset_to_see(operation: admin_pb2.Operation, result: admin_pb2.OperationResult) -> int:
    """The end offset that a node must have applied to show what was acknowledged.

    A heartbeat counts only what it changed. It reports how far the broker's node is: if the next one had to wait until
    that node is as far as the leader was at the last, a broker whose node lags would send none and be fenced.
    """
    is_heartbeat = operation.HasField("broker_heartbeat")
    return result.end_offset if is_heartbeat else max(result.end_offset, result.state_end_offset)


def _references(names: Iterable[str], topic_ids: Iterable[str]) -> list[admin_pb2.TopicReference]:
    return [
        *(admin_pb2.TopicReference(name=name) for name in names),
        *(admin_pb2.TopicReference(topic_id=id_to_bytes(topic_id)) for topic_id in topic_ids),
    ]


def _pages(references: Sequence[admin_pb2.TopicReference]) -> Iterator[list[admin_pb2.TopicReference]]:
    """`references` in parts that each fit one request, at least one part."""
    page, size_bytes = list[admin_pb2.TopicReference](), 0
    for reference in references:
        size_bytes += reference.ByteSize() + REFERENCE_OVERHEAD_BYTES
        if page and size_bytes > READ_BYTES_MAX - CONSISTENCY_BYTES:
            yield page
            page, size_bytes = [], reference.ByteSize() + REFERENCE_OVERHEAD_BYTES
        page.append(reference)
    yield page


def _raise_first(parts: Iterable[Part]) -> None:
    failed = [part for part in parts if part.error_code]
    if failed:
        others = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
        raise ApiError(codec.error_from_proto(failed[0].error_code), failed[0].error_message + others)
