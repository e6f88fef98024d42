"""A second description of fetch sessions (KIP-227), by which the checkers count followers' fetches.

A follower names a partition once. From then on, each of its requests repeats what it last named.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlog.kafka.messages.fetch import FetchRequest, FetchResponse
from kraftlog.sim.replication.metadata import Key

FULL: Final = 0
WITHOUT_SESSION: Final = -1


class Asked(NamedTuple):
    """The position that a follower fetches from."""

    offset: int
    leader_epoch: int


class FetchesAtLeader:
    """The fetch sessions of a broker's followers, in one of its lives."""

    def __init__(self) -> None:
        self._sessions: dict[int, dict[Key, Asked]] = {}

    def wanted(self, request: FetchRequest) -> dict[Key, Asked]:
        """Return all partitions that a request fetches."""
        named = {
            (topic.topic_id, partition.partition): Asked(partition.fetch_offset, partition.current_leader_epoch)
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch in (FULL, WITHOUT_SESSION):
            self._sessions.pop(request.session_id, None)
            return named
        session = self._sessions.get(request.session_id, {})
        session.update(named)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.pop((topic.topic_id, index), None)
        return dict(session)

    def answered(self, request: FetchRequest, response: FetchResponse) -> None:
        """Open the session of a full request, if the answer grants one."""
        if request.session_epoch == FULL and response.session_id:
            self._sessions[response.session_id] = self.wanted(request)


def failed(response: FetchResponse) -> dict[Key, bool]:
    """Return the partitions of an answer without records, because of an error or a divergence."""
    return {
        (topic.topic_id, partition.partition_index): True
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code or partition.diverging_epoch.epoch >= 0
    }
