"""Metadata: topics, their leaders and the brokers, from this broker's applied metadata.

The part of an answer for a topic is kept until the metadata changes: an answer for 1,000 topics then consists of 1,000
kept parts, not of 6,000 new partitions. An answer is made in slices, so its topics may be of different moments; its
brokers are those at the last moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftlog.broker.apis.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from kraftlog.broker.apis.old_metadata import as_before_version_6
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.metadata.cluster_view import ClusterView, TopicView
from kraftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftlog.kafka.notation import ZERO_UUID
from kraftlog.network.requests import ClientRequest, Reply, Steps
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.words.names import INTERNAL_TOPICS, METADATA_TOPIC, check_topic_name

FIRST_VERSION_WITH_ALL_ERRORS: Final = 6
FIRST_VERSION_WITH_IDS: Final = 12

KEPT_TOPICS_MAX: Final = 20_000

PARTITIONS_PER_STEP: Final = 100
NAMES_PER_PAGE: Final = 500
"""How many names one query reads, so that no cursor of the database stays open between two slices."""

Answered = Generator[None, None, MetadataResponseTopic]
"""Makes the part of an answer for one topic, in slices."""


class MetadataApi:
    """Handles Metadata."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster
        self._auto_create = services.auto_create
        self._made: dict[tuple[str, str], MetadataResponseTopic] = {}
        self._made_of_version = -1

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer without waiting. A topic that this request creates exists at the client's next attempt."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        """Make the answer in slices. A topic that is named several times is answered once."""
        body = cast(MetadataRequest, request.body)
        listener_name = request.context.listener_name
        wants_all = body.topics is None or (request.version == 0 and not body.topics)
        requested: dict[tuple[str | None, bytes], None] = {}
        for topic in body.topics or ():
            requested[topic.name, topic.topic_id] = None
            yield
        if request.version < FIRST_VERSION_WITH_IDS and any(
            name is None or id_ != ZERO_UUID for name, id_ in requested
        ):
            # Versions 10 and 11 have the topic id field, but Kafka's brokers do not accept it.
            reply(MetadataResponse(brokers=(), topics=tuple(_refused(name, id_) for name, id_ in requested)))
            return
        topics: list[MetadataResponseTopic] = []
        for name, topic_id in self._all_topics() if wants_all else requested:
            if wants_all and self._cluster.topic_named(name or "") is None:
                continue  # the topic was deleted in the meantime
            made = yield from self._asked(name, topic_id, body, listener_name)
            if request.version < FIRST_VERSION_WITH_ALL_ERRORS:
                made = yield from as_before_version_6(made, request.version, self._cluster, listener_name)
            topics.append(_with_operations(made) if body.include_topic_authorized_operations else made)
            yield
        nodes = self._cluster.living_nodes(listener_name)
        reply(
            MetadataResponse(
                brokers=tuple(
                    MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
                    for node in nodes
                ),
                cluster_id=self._cluster.cluster_id,
                # Every broker forwards administration to the controller, so any one may be named here (KIP-590).
                controller_id=nodes[0].node_id if nodes else NO_LEADER,
                topics=tuple(topics),
                cluster_authorized_operations=(
                    CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_ASKED
                ),
            )
        )

    def _all_topics(self) -> Iterator[tuple[str | None, bytes]]:
        """Yield all topics by name, reading a page of names at a time."""
        page = list(islice(self._cluster.topic_names(), NAMES_PER_PAGE))
        while page:
            for name in page:
                yield name, ZERO_UUID
            page = list(islice(self._cluster.topic_names(after=page[-1]), NAMES_PER_PAGE))

    def _asked(self, name: str | None, topic_id: bytes, body: MetadataRequest, listener_name: str) -> Answered:
        if name is None or topic_id != ZERO_UUID:
            view = self._cluster.topic_with_id(topic_id)
            if view is None:
                return MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=()
                )
            return (yield from self._topic(view, listener_name))
        view = self._cluster.topic_named(name)
        if view is not None:
            return (yield from self._topic(view, listener_name))
        return MetadataResponseTopic(
            error_code=self._missing(name, may_create=body.allow_auto_topic_creation),
            name=name, topic_id=ZERO_UUID, partitions=(), is_internal=name in INTERNAL_TOPICS,
        )  # fmt: skip

    def _missing(self, name: str, *, may_create: bool) -> ErrorCode:
        if name == METADATA_TOPIC:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a valid name, but no topic may be created with it
        try:
            check_topic_name(name)
        except ApiError as error:
            return error.code
        if may_create and self._auto_create is not None:
            self._auto_create.create(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _topic(self, view: TopicView, listener_name: str) -> Answered:
        if self._made_of_version != self._cluster.version or len(self._made) >= KEPT_TOPICS_MAX:
            self._made.clear()
            self._made_of_version = self._cluster.version
        made = self._made.get((view.name, listener_name))
        if made is None:
            version, partitions = self._cluster.version, []
            for record in view.partitions:
                partitions.append(self._partition(record, listener_name))
                if not len(partitions) % PARTITIONS_PER_STEP:
                    yield
            made = MetadataResponseTopic(
                error_code=ErrorCode.NONE, name=view.name, topic_id=view.topic_id, partitions=tuple(partitions),
                is_internal=view.name in INTERNAL_TOPICS,
            )  # fmt: skip
            if version == self._cluster.version == self._made_of_version:
                self._made[view.name, listener_name] = made
        return made

    def _partition(self, record: PartitionRecord, listener_name: str) -> MetadataResponsePartition:
        leader, code = _leader(self._cluster, record, listener_name)
        return MetadataResponsePartition(
            error_code=code,
            partition_index=record.partition_id,
            leader_id=leader,
            leader_epoch=record.leader_epoch,
            replica_nodes=tuple(record.replicas),
            isr_nodes=tuple(record.isr),
            offline_replicas=self._cluster.offline_replicas(record, listener_name),
        )


def _leader(cluster: ClusterView, record: PartitionRecord, listener_name: str) -> tuple[int, ErrorCode]:
    """Return a partition's leader for clients of a listener, and the error that goes with it."""
    if record.leader in cluster.doubted:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    if cluster.is_reachable(record.leader, listener_name):
        return record.leader, ErrorCode.NONE
    is_alive = cluster.is_alive(record.leader)
    return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if is_alive else ErrorCode.LEADER_NOT_AVAILABLE


def _refused(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id, partitions=()
    )  # fmt: skip


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if topic.error_code:
        return topic
    return MetadataResponseTopic(
        error_code=topic.error_code, name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal,
        partitions=topic.partitions, topic_authorized_operations=TOPIC_OPERATIONS,
    )  # fmt: skip
