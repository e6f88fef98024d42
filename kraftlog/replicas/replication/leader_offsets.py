"""Asks a leader for the log end and log start offsets of some partitions (DB-34)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.notation import Message, Versions
from kraftlog.replicas.replication.followed_partition import FollowedPartition
from kraftlog.replicas.replication.following import AwaitMetadata, Retry, after_error
from kraftlog.replicas.replication.ports import LeaderConnection

LIST_OFFSETS_VERSIONS: Final = Versions(4, 10)
"""From the first version with a leader epoch to the last one that this program knows."""

LATEST: Final = -1
"""The timestamp that stands for the log end offset, if a follower asks."""
EARLIEST: Final = -2
"""The timestamp that stands for the log start offset."""


class LeaderLog(NamedTuple):
    """The offsets of a leader's log."""

    end_offset: int
    start_offset: int


Found: TypeAlias = Mapping[FollowedPartition, LeaderLog | Retry | AwaitMetadata]
OnFound = Callable[[Found | ApiError], None]


class LeaderOffsets:
    """Two ListOffsets requests, for the ends and for the starts. `on_found` is called once."""

    def __init__(
        self, connection: LeaderConnection, broker_id: int, partitions: Sequence[FollowedPartition], on_found: OnFound
    ) -> None:
        self._connection = connection
        self._broker_id = broker_id
        self.asked = partitions
        self._on_found = on_found
        self._answers: dict[int, ListOffsetsResponse] = {}
        self._is_done = False

    def ask(self) -> None:
        """Send both requests."""
        for timestamp in (LATEST, EARLIEST):
            self._connection.ask(self._request(timestamp), LIST_OFFSETS_VERSIONS, partial(self._answered, timestamp))

    def _request(self, timestamp: int) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for followed in self.asked:
            name = followed.partition.name
            topics.setdefault(name.topic, []).append(
                ListOffsetsPartition(
                    partition_index=name.partition_id, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
                )
            )
        return ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(found)) for name, found in topics.items()),
        )

    def _answered(self, timestamp: int, answer: Message | ApiError) -> None:
        if self._is_done:
            return
        if isinstance(answer, ApiError):
            self._is_done = True
            lacks_it = answer.code is ErrorCode.UNSUPPORTED_VERSION
            self._on_found(dict.fromkeys(self.asked, Retry(str(answer))) if lacks_it else answer)
            return
        self._answers[timestamp] = cast(ListOffsetsResponse, answer)
        if len(self._answers) == 2:
            self._is_done = True
            ends, starts = _by_partition(self._answers[LATEST]), _by_partition(self._answers[EARLIEST])
            self._on_found({followed: _found(followed, ends, starts) for followed in self.asked})


_Answers: TypeAlias = Mapping[tuple[str, int], tuple[int, int]]


def _by_partition(response: ListOffsetsResponse) -> _Answers:
    """Return the error code and the offset of each partition."""
    return {
        (topic.name, partition.partition_index): (partition.error_code, partition.offset)
        for topic in response.topics
        for partition in topic.partitions
    }


def _found(followed: FollowedPartition, ends: _Answers, starts: _Answers) -> LeaderLog | Retry | AwaitMetadata:
    offsets = []
    for answers in (ends, starts):
        code, offset = answers.get(followed.partition.name, (None, -1))
        if code is None:
            return Retry("the leader's answer lacks its log start or end offset")
        if code != ErrorCode.NONE:
            return after_error(code, followed.leader_epoch)
        offsets.append(offset)
    return LeaderLog(*offsets)
