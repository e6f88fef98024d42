"""Partitions by the names that requests use, and the names that messages use for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import ID_BYTES, id_to_text
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.metadata.state import MetadataState
from statemachine.words.names import quoted


@contextmanager
def about(what: str) -> Iterator[None]:
    """Prefix the message of errors raised in the block with a subject, such as a topic, that the checks do not know."""
    try:
        yield
    except ApiError as error:
        raise ApiError(error.code, f"{what}: {error.args[0]}") from None


def partition_name(topic_name: str, partition_id: int) -> str:
    """A partition as a message names it."""
    return f"partition {partition_id} of topic {quoted(topic_name)}"


def find_partition_by_id(state: MetadataState, topic_id: bytes, partition_id: int) -> tuple[str, PartitionRecord]:
    """A partition by its topic's id, and how messages name it.

    Raises ApiError(UNKNOWN_TOPIC_ID) or UNKNOWN_TOPIC_OR_PARTITION.
    """
    if len(topic_id) != ID_BYTES:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"{topic_id[:32].hex()!r} is not a topic id; an id has {ID_BYTES} bytes"
        )
    topic_name = state.topic_name(topic_id)
    if topic_name is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"there is no topic with the id {id_to_text(topic_id)}; it may have been deleted",
        )
    partition = state.partition(topic_id, partition_id)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {quoted(topic_name)} has no partition {partition_id}"
        )
    return partition_name(topic_name, partition_id), partition


def find_partition_by_name(state: MetadataState, topic_name: str, partition_id: int) -> PartitionRecord:
    """A partition by its topic's name; raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic_id = state.topic_id(topic_name)
    if topic_id is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {quoted(topic_name)}")
    partition = state.partition(topic_id, partition_id)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {quoted(topic_name)} has no partition {partition_id}"
        )
    return partition
