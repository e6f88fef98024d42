"""The admin client's calls about topics: to create, delete, grow and describe them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kraftbase.ids import id_to_bytes
from kraftlog.admin.client.core import ClientCore
from kraftlog.admin.client.node_reader import READ_BYTES_MAX
from kraftlog.admin.client.refusals import Refusal, raise_first, topic_named
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import BrokerIds
from statemachine.query.conversions import (
    created_topic_from_proto,
    new_topic_to_proto,
    topic_from_proto,
    topic_listing_from_proto,
)
from statemachine.query.descriptions import CreatedTopic, DescribedTopics, ListedTopics, NewTopic

Part = admin_pb2.CreatedTopic | admin_pb2.DeletedTopic | admin_pb2.TopicDescription | admin_pb2.TopicResult

REFERENCE_OVERHEAD_BYTES: Final = 4
CONSISTENCY_BYTES: Final = 64
"""The bytes of a request besides references: its consistency."""


class TopicCalls(ClientCore):
    """Topics and their partitions."""

    async def create_topics(
        self, topics: Iterable[NewTopic | admin_pb2.CreatableTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics, or with `validate_only` only check them. Raises ApiError for the first that is refused."""
        creatable = [new_topic_to_proto(topic) if isinstance(topic, NewTopic) else topic for topic in topics]
        request = admin_pb2.CreateTopicsRequest(topics=creatable, validate_only=validate_only)
        result = await self.change(admin_pb2.Operation(create_topics=request))
        raise_first(map(_refusal, result.create_topics.topics))
        return [created_topic_from_proto(topic) for topic in result.create_topics.topics]

    async def delete_topics(self, names: Iterable[str] = (), *, topic_ids: Iterable[str] = ()) -> None:
        """Delete topics by name or id. Raises ApiError for the first that is refused."""
        request = admin_pb2.DeleteTopicsRequest(topics=_references(names, topic_ids))
        result = await self.change(admin_pb2.Operation(delete_topics=request))
        raise_first(map(_refusal, result.delete_topics.topics))

    async def create_partitions(
        self,
        topic: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> None:
        """Give `topic` `count` partitions, the present ones included; raises ApiError if it cannot.

        `assignments` are the brokers of each new partition, the preferred leader first; without them the controller
        places the replicas. With `validate_only` nothing is changed.
        """
        asked = admin_pb2.PartitionsOfTopic(
            name=topic, count=count, assignments=[BrokerIds(ids=brokers) for brokers in assignments]
        )
        request = admin_pb2.CreatePartitionsRequest(topics=[asked], validate_only=validate_only)
        result = await self.change(admin_pb2.Operation(create_partitions=request))
        raise_first(map(_refusal, result.create_partitions.topics))

    async def grow_topics(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Give each topic this many partitions, the present ones included.

        Raises ApiError for the first topic that was refused, by name; the others get their partitions.
        """
        request = admin_pb2.CreatePartitionsRequest(
            topics=[admin_pb2.PartitionsOfTopic(name=name, count=count) for name, count in counts.items()],
            validate_only=validate_only,
        )
        result = await self.change(admin_pb2.Operation(create_partitions=request))
        raise_first(map(_refusal, result.create_partitions.topics))

    async def list_topics(self, *, min_applied_end_offset: int = 0) -> ListedTopics:
        """All topics by name. Raises ApiError."""
        request = admin_pb2.ListTopicsRequest(consistency=self._consistency(min_applied_end_offset))
        response = await self._reader.read(lambda stub: stub.ListTopics, request, self._timeout_ms)
        return ListedTopics(response.applied_end_offset, tuple(map(topic_listing_from_proto, response.topics)))

    async def describe_topics(
        self, names: Iterable[str] = (), *, topic_ids: Iterable[str] = (), min_applied_end_offset: int = 0
    ) -> DescribedTopics:
        """Full descriptions of topics, in that order; of all topics if none is named.

        Many names are asked for in several reads, each of a state at least as new as the previous one. Raises ApiError
        for the first topic that does not exist.
        """
        end_offsets, topics = [min_applied_end_offset], list[admin_pb2.TopicDescription]()
        for references in _pages(_references(names, topic_ids)):
            request = admin_pb2.DescribeTopicsRequest(consistency=self._consistency(end_offsets[-1]), topics=references)
            response = await self._reader.read(lambda stub: stub.DescribeTopics, request, self._timeout_ms)
            end_offsets.append(response.applied_end_offset)
            topics += response.topics
        raise_first(map(_refusal, topics))
        return DescribedTopics(end_offsets[1], tuple(map(topic_from_proto, topics)))


def _refusal(part: Part) -> Refusal:
    """The reference in a request to a topic; a topic referenced by id may have no name."""
    return (topic_named(part.name) if part.name else "", part.error_code, part.error_message)


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
