"""Reads of the committed metadata: from a request and a connection to an answer. For the query thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import ID_BYTES, id_to_text
from kraftpb.v1 import admin_pb2
from statemachine.metadata.config_resources import check_describable
from statemachine.metadata.state import MetadataState
from statemachine.query import acls, features, metadata_queries, remote_log_queries
from statemachine.query.answer_sizes import check_answer_bytes, fitting
from statemachine.query.config_descriptions import describe_configs
from statemachine.query.conversions import broker_to_record, topic_listing_to_proto, topic_to_proto
from statemachine.query.reassignments import list_reassignments
from statemachine.replay.changes import Changes
from statemachine.tables.cluster_tables import CLIENT_QUOTAS
from statemachine.words.names import check_name_lengths, quoted

DESCRIBED_TOPICS_MAX: Final = 2_000
"""How many topics one read may name; about a second of work, for which other reads wait."""

REFERENCES_MAX: Final = 10 * DESCRIBED_TOPICS_MAX
"""At most this many references are searched for repeated ones."""

PARTITIONS_INSTEAD: Final = "name topics, fewer at a time, or ask in SQL for what you need of them"
"""What to request when descriptions of topics are too large for a message."""


def state_of(connection: sqlite3.Connection) -> MetadataState:
    """The committed metadata with the queries that decisions need."""
    return MetadataState(Changes(connection))


def list_topics(connection: sqlite3.Connection, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
    """All topics by name."""
    topics = (topic_listing_to_proto(topic) for topic in metadata_queries.list_topics(connection))
    return admin_pb2.ListTopicsResponse(topics=fitting(topics, "ask in SQL, for names above the last that you have"))


def describe_topics(
    connection: sqlite3.Connection, request: admin_pb2.DescribeTopicsRequest
) -> admin_pb2.DescribeTopicsResponse:
    """Topics in full, each once, in the order of the request; a topic that does not exist has an error."""
    if request.topics:
        described = (_describe(connection, reference) for reference in _distinct(request.topics))
    else:
        check_answer_bytes(metadata_queries.partitions_bytes_min(connection), PARTITIONS_INSTEAD)
        described = (topic_to_proto(topic) for topic in metadata_queries.describe_all_topics(connection))
    return admin_pb2.DescribeTopicsResponse(topics=fitting(described, PARTITIONS_INSTEAD))


def list_brokers(
    connection: sqlite3.Connection, request: admin_pb2.ListBrokersRequest
) -> admin_pb2.ListBrokersResponse:
    """All registered brokers by id."""
    brokers = (broker_to_record(broker) for broker in metadata_queries.list_brokers(connection))
    return admin_pb2.ListBrokersResponse(brokers=fitting(brokers, "ask in SQL, for some brokers at a time"))


def describe_resource_configs(
    connection: sqlite3.Connection, request: admin_pb2.DescribeConfigsRequest
) -> admin_pb2.DescribeConfigsResponse:
    """The configs of one resource, by name; also those of a broker that is no longer registered."""
    resource_type = check_describable(state_of(connection), request.resource_type, request.resource_name)
    found = describe_configs(connection, resource_type, request.resource_name, request.include_defaults)
    configs = fitting((config for config in found), "ask in SQL, for single configs")
    return admin_pb2.DescribeConfigsResponse(configs=configs)


def describe_features(
    connection: sqlite3.Connection, request: admin_pb2.DescribeFeaturesRequest
) -> admin_pb2.DescribeFeaturesResponse:
    """Every feature: its level, and what all nodes support."""
    return admin_pb2.DescribeFeaturesResponse(features=features.describe_features(connection))


def describe_client_quotas(
    connection: sqlite3.Connection, request: admin_pb2.DescribeClientQuotasRequest
) -> admin_pb2.DescribeClientQuotasResponse:
    """All quotas."""
    quotas = (quota for _, quota in CLIENT_QUOTAS.find(connection))
    return admin_pb2.DescribeClientQuotasResponse(quotas=fitting(quotas, "ask in SQL, for some entities at a time"))


def describe_acls(
    connection: sqlite3.Connection, request: admin_pb2.DescribeAclsRequest
) -> admin_pb2.DescribeAclsResponse:
    """The access control entries that a filter matches."""
    entries = acls.describe_acls(connection, request.filter)
    return admin_pb2.DescribeAclsResponse(entries=fitting(entries, "give a filter that fewer entries match"))


def list_partition_reassignments(
    connection: sqlite3.Connection, request: admin_pb2.ListPartitionReassignmentsRequest
) -> admin_pb2.ListPartitionReassignmentsResponse:
    """The reassignments in progress."""
    found = (reassignment for reassignment in list_reassignments(state_of(connection)))
    reassignments = fitting(found, "ask in SQL, for those of some topics")
    return admin_pb2.ListPartitionReassignmentsResponse(reassignments=reassignments)


def find_remote_log_segment(
    connection: sqlite3.Connection, request: admin_pb2.FindRemoteLogSegmentRequest
) -> admin_pb2.FindRemoteLogSegmentResponse:
    """The segment with an offset in a leader epoch, and the highest offset that was copied in it (TS-60, TS-61)."""
    _check_topic_id(request.topic_id)
    partition = (request.topic_id, request.partition_id, request.leader_epoch)
    response = admin_pb2.FindRemoteLogSegmentResponse()
    if request.HasField("offset"):
        segment = remote_log_queries.find_segment(connection, *partition, request.offset)
        if segment is not None:
            response.segment.CopyFrom(segment)
    highest_offset = remote_log_queries.highest_offset(connection, *partition)
    if highest_offset is not None:
        response.highest_offset = highest_offset
    return response


def list_remote_log_segments(
    connection: sqlite3.Connection, request: admin_pb2.ListRemoteLogSegmentsRequest
) -> admin_pb2.ListRemoteLogSegmentsResponse:
    """The remote segments of a partition, of one leader epoch or all (TS-62)."""
    _check_topic_id(request.topic_id)
    epoch = request.leader_epoch if request.HasField("leader_epoch") else None
    partition = (request.topic_id, request.partition_id)
    return admin_pb2.ListRemoteLogSegmentsResponse(
        segments=fitting(
            remote_log_queries.list_segments(connection, *partition, epoch),
            "name a leader epoch, or ask in SQL for the segments of some offsets",
        ),
        size_bytes=remote_log_queries.size_bytes(connection, *partition, epoch),
    )


def _check_topic_id(topic_id: bytes) -> None:
    if len(topic_id) != ID_BYTES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a topic id has {ID_BYTES} bytes, not {len(topic_id)}")


def _distinct(references: Sequence[admin_pb2.TopicReference]) -> Collection[admin_pb2.TopicReference]:
    """Each reference once. Raises ApiError(INVALID_REQUEST) if there are too many for one read."""
    if len(references) <= REFERENCES_MAX:
        distinct = {(reference.name, reference.topic_id): reference for reference in references}
        if len(distinct) <= DESCRIBED_TOPICS_MAX:
            check_name_lengths(name for name, _ in distinct)
            return distinct.values()
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"the request names {len(references)} topics; name at most {DESCRIBED_TOPICS_MAX} at a time, or none for all",
    )


def _describe(connection: sqlite3.Connection, reference: admin_pb2.TopicReference) -> admin_pb2.TopicDescription:
    name, topic_id = reference.name, reference.topic_id
    if bool(name) == bool(topic_id) or (topic_id and len(topic_id) != ID_BYTES):
        error, message = ErrorCode.INVALID_REQUEST, f"give a topic's name, or its id of {ID_BYTES} bytes, not both"
    elif name:
        found = metadata_queries.describe_topic(connection, name=name)
        if found is not None:
            return topic_to_proto(found)
        error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(name)}"
    else:
        found = metadata_queries.describe_topic(connection, topic_id=id_to_text(topic_id))
        if found is not None:
            return topic_to_proto(found)
        error, message = ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {id_to_text(topic_id)}"
    return admin_pb2.TopicDescription(name=name, topic_id=topic_id, error_code=error, error_message=message)
