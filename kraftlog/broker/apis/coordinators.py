"""FindCoordinator and OffsetFetch, for consumers that have a group.id but assign() partitions to themselves.

There are no groups here: no offset is ever committed, and no member joins. But librdkafka requires a group.id of every
consumer, and a consumer that assigns a partition without an offset fetches its group's committed offset before it
reads. So each broker is the coordinator of all groups, and no group has a committed offset (DB-110). Requests of
members and commits are not offered, so most clients fail at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import NO_LEADER, UNKNOWN_OFFSET
from kraftlog.broker.apis.services import BrokerServices
from kraftlog.broker.metadata.cluster_view import Node
from kraftlog.kafka.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kraftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kraftlog.network.requests import ClientRequest, Reply, Steps

OF_GROUPS: Final = 0
OF_TRANSACTIONS: Final = 1
OF_SHARE_GROUPS: Final = 2
"""The types of keys. A FindCoordinator of version 0 has no type, and asks for a group."""

FIRST_VERSION_WITH_KEYS: Final = 4
"""The first version of FindCoordinator with several keys."""
FIRST_VERSION_WITH_GROUPS: Final = 8
"""The first version of OffsetFetch with several groups."""
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
"""The first version of OffsetFetch with topic ids instead of names."""

NO_TRANSACTIONS: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""What a transactional producer gets: unlike the coordinators' errors, every client treats it as final."""
NO_METADATA: Final = ""


class FindCoordinatorApi:
    """Handles FindCoordinator."""

    def __init__(self, services: BrokerServices) -> None:
        self._broker_id = services.broker_id
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer with this broker for groups, and with an error for other types of keys."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(FindCoordinatorRequest, request.body)
        code, reason = _refusal(body.key_type)
        found = None if code else self._cluster.node(self._broker_id, request.context.listener_name)
        if not code and found is None:
            code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is not registered; try again"
        if request.version < FIRST_VERSION_WITH_KEYS:
            answer = _coordinator(body.key, found, code, reason)
            reply(
                FindCoordinatorResponse(
                    error_code=answer.error_code,
                    error_message=answer.error_message,
                    node_id=answer.node_id,
                    host=answer.host,
                    port=answer.port,
                )
            )
            return
        coordinators: list[Coordinator] = []
        for key in body.coordinator_keys:
            coordinators.append(_coordinator(key, found, code, reason))
            yield
        reply(FindCoordinatorResponse(coordinators=tuple(coordinators)))


def _refusal(key_type: int) -> tuple[ErrorCode, str | None]:
    """Return the error for keys of a type that has no coordinator here; NONE and None for groups."""
    if key_type == OF_GROUPS:
        return ErrorCode.NONE, None
    if key_type == OF_TRANSACTIONS:
        return NO_TRANSACTIONS, "this cluster has no transactions; use a producer without a transactional.id"
    if key_type == OF_SHARE_GROUPS:
        return ErrorCode.INVALID_REQUEST, "this cluster has no share groups"
    return ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}"


def _coordinator(key: str, found: Node | None, code: ErrorCode, reason: str | None) -> Coordinator:
    if found is None:
        return Coordinator(key=key, node_id=NO_LEADER, host="", port=-1, error_code=code, error_message=reason)
    return Coordinator(key=key, node_id=found.node_id, host=found.host, port=found.port, error_message=None)


class OffsetFetchApi:
    """Handles OffsetFetch: no group has committed an offset."""

    def __init__(self, services: BrokerServices) -> None:
        self._cluster = services.cluster

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer -1 for each requested partition, as a Kafka does for a group that it does not know."""
        request.slices.run(self._in_slices(request, reply))

    def _in_slices(self, request: ClientRequest, reply: Reply) -> Steps:
        body = cast(OffsetFetchRequest, request.body)
        if request.version < FIRST_VERSION_WITH_GROUPS:
            old: list[OffsetFetchResponseTopic] = []
            for named in body.topics or ():
                yield from _old_topic(named, old)
            reply(OffsetFetchResponse(topics=tuple(old)))
            return
        groups: list[OffsetFetchResponseGroup] = []
        for group in body.groups:
            yield from self._group(group, groups, has_ids=request.version >= FIRST_VERSION_WITH_TOPIC_IDS)
        reply(OffsetFetchResponse(groups=tuple(groups)))

    def _group(
        self, group: OffsetFetchRequestGroup, answers: list[OffsetFetchResponseGroup], *, has_ids: bool
    ) -> Iterator[None]:
        """Add the answer for a group. Topics of None ask for all committed offsets, of which there are none."""
        topics: list[OffsetFetchResponseTopics] = []
        for topic in group.topics or ():
            is_unknown = has_ids and self._cluster.topic_with_id(topic.topic_id) is None
            code = ErrorCode.UNKNOWN_TOPIC_ID if is_unknown else ErrorCode.NONE
            yield from _topic(topic, code, topics)
        answers.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=tuple(topics)))
        yield


def _topic(
    topic: OffsetFetchRequestTopics, code: ErrorCode, answers: list[OffsetFetchResponseTopics]
) -> Iterator[None]:
    partitions = []
    for index in topic.partition_indexes:
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata=NO_METADATA, error_code=code
            )
        )
        yield
    answers.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)))
    yield


def _old_topic(topic: OffsetFetchRequestTopic, answers: list[OffsetFetchResponseTopic]) -> Iterator[None]:
    partitions = []
    for index in topic.partition_indexes:
        partitions.append(
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata=NO_METADATA, error_code=ErrorCode.NONE
            )
        )
        yield
    answers.append(OffsetFetchResponseTopic(name=topic.name, partitions=tuple(partitions)))
    yield
