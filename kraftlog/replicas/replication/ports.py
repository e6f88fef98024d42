"""What following needs of others: replicas on this broker, and connections to their leaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kraftbase.errors import ApiError
from kraftbase.partition import TopicPartition
from kraftlog.kafka.notation import Message, Versions
from kraftlog.storage.partition_log import PartitionLog
from kraftpb.v1.metadata_pb2 import PartitionRecord

OnAnswer = Callable[[Message | ApiError], None]
"""Called once, never within the call that asks: with the answer, or why there is none."""


class Followable(Protocol):
    """A replica on this broker, as far as following its leader goes: `kraftlog.replicas.partitions.partition`."""

    name: TopicPartition
    topic_id: bytes
    leader_epoch: int
    log: PartitionLog | None
    """None if it is offline."""

    @property
    def record(self) -> PartitionRecord:
        """What the metadata says of it."""
        ...

    def follower_appended(self, high_watermark: int, leader_log_start_offset: int) -> None:
        """The leader's answer is in the log: high watermark and log start follow the leader's. Raises ApiError."""
        ...


class LeaderConnection(Protocol):
    """A connection to another broker. It goes on after UNSUPPORTED_VERSION, and is of no use after another error."""

    def ask(self, request: Message, versions: Versions, on_answer: OnAnswer) -> None:
        """Ask something, in the newest of some versions of its API that the other broker offers, too.

        Who asks names the same versions each time. ApiError is BROKER_NOT_AVAILABLE, REQUEST_TIMED_OUT or
        CORRUPT_MESSAGE; UNSUPPORTED_VERSION if the broker offers none of the versions, and then only this request is
        refused.
        """
        ...

    def close(self) -> None:
        """Close it; what is asked is answered by nothing."""
        ...


class LeaderConnector(Protocol):
    """Makes connections to other brokers."""

    def connect(self, broker_id: int) -> LeaderConnection:
        """Begin to connect. If that fails, what is asked is answered so."""
        ...
