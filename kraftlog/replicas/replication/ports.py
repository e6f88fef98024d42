"""The ports of a follower: replicas on this broker, and connections to their leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftbase.errors import ApiError
from kraftbase.partition import TopicPartition
from kraftlog.kafka.notation import Message, Versions
from kraftlog.storage.partition_log import PartitionLog
from kraftpb.v1.metadata_pb2 import PartitionRecord

OnAnswer = Callable[[Message | ApiError], None]
"""Called once, with the response or an error, and never within the call that sends the request."""


class Followable(Protocol):
    """A replica on this broker that follows its leader: `kraftlog.replicas.partitions.partition`."""

    name: TopicPartition
    topic_id: bytes
    leader_epoch: int
    log: PartitionLog | None
    """None if the log is offline."""

    @property
    def record(self) -> PartitionRecord:
        """The partition's record in the metadata."""
        ...

    def follower_appended(self, high_watermark: int, leader_log_start_offset: int) -> None:
        """Follow the leader's high watermark and log start offset, after an append. Raises ApiError."""
        ...


class LeaderConnection(Protocol):
    """A connection to another broker. It remains usable after UNSUPPORTED_VERSION, and after no other error."""

    def ask(self, request: Message, versions: Versions, on_answer: OnAnswer) -> None:
        """Send a request, in the newest of `versions` that the other broker offers, too.

        `versions` must be the same for each request of an API. `on_answer` may get an ApiError: BROKER_NOT_AVAILABLE,
        REQUEST_TIMED_OUT or CORRUPT_MESSAGE; UNSUPPORTED_VERSION if the broker offers none of the versions, and then
        only this request is refused.
        """
        ...

    def close(self) -> None:
        """Close the connection; pending requests get no answer."""
        ...


class LeaderConnector(Protocol):
    """Makes connections to other brokers."""

    def connect(self, broker_id: int) -> LeaderConnection:
        """Begin to connect. On failure every pending request gets an ApiError."""
        ...
