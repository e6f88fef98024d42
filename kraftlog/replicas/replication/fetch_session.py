"""The follower's end of a fetch session (KIP-227): a request names only what has changed since the previous one.

    session.want(key, position)              fetch a partition from now on
    session.remove(key)
    request = session.next_request()         at most one in flight
    session.answered(response)               or session.lost(), if there is no response

Both ends count the requests of a session. When their counts may differ, or the leader no longer knows the session, the
next request is full: it names all partitions, and opens a new session. This module has no clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftbase.errors import ErrorCode, error_name
from kraftlog.kafka.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
"""The epoch of a full request: it opens a new session, and closes the one that it names."""
FIRST_EPOCH: Final = 1
EPOCH_MAX: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as requests name it."""

    topic_id: bytes
    number: int


class SessionRequest(NamedTuple):
    """The session fields of a Fetch request."""

    session_id: int
    epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


class FetchSession:
    """The partitions that are fetched from one leader."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._wanted: dict[PartitionKey, FetchPartition] = {}
        self._asked: dict[PartitionKey, FetchPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._is_reset = False

    def __len__(self) -> int:
        """The number of partitions to fetch."""
        return len(self._wanted)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._wanted

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions."""
        return self._epoch == FULL_EPOCH

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """Return the position of a partition in the last request that named it, or None; do not modify it."""
        return self._asked.get(key)

    # --- partitions to fetch ------------------------------------------------------------------------------------------

    def want(self, key: PartitionKey, position: FetchPartition) -> None:
        """Fetch a partition from this position in the next request."""
        self._wanted[key] = position
        self._forgotten.pop(key, None)
        requested = self._asked.get(key)
        if requested is not None and requested.fetch_offset == position.fetch_offset and requested == position:
            self._changed.pop(key, None)
        else:
            self._changed[key] = None

    def remove(self, key: PartitionKey) -> None:
        """Stop fetching a partition, if it is fetched."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._asked:
                self._forgotten[key] = None

    def reset(self) -> None:
        """Make the next request full, since a result that the leader counts as delivered was not used.

        Consider a leader's response with the high watermark 7, which was ignored since the leader epoch had changed. In
        the same session the leader sends its high watermark again only when it changes.
        """
        self._is_reset = True

    # --- requests and responses ---------------------------------------------------------------------------------------

    def next_request(self) -> SessionRequest:
        """Return the next request. Call `answered` or `lost` for the previous one first."""
        if self._is_reset:
            self._close()
        changed: Iterable[PartitionKey] = self._changed
        if self.is_full:
            changed = self._wanted
            self._asked.clear()
            self._forgotten.clear()
        topics: dict[bytes, list[FetchPartition]] = {}
        for key in changed:
            self._asked[key] = position = self._wanted[key]
            topics.setdefault(key.topic_id, []).append(position)
        self._changed.clear()
        return SessionRequest(
            self._session_id,
            self._epoch,
            tuple(FetchTopic(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in topics.items()),
            self._take_forgotten() if self._forgotten else (),
        )

    def _take_forgotten(self) -> tuple[ForgottenTopic, ...]:
        gone: dict[bytes, list[int]] = {}
        for key in self._forgotten:
            del self._asked[key]
            gone.setdefault(key.topic_id, []).append(key.number)
        self._forgotten.clear()
        return tuple(ForgottenTopic(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in gone.items())

    def answered(self, response: FetchResponse) -> str:
        """Apply the response to the request in flight; return why it must not be used, or an empty string.

        After an unusable response the next request is full.
        """
        problem = self._problem(response)
        if problem:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self._close()
            return problem
        if response.session_id == NO_SESSION:
            self._session_id = NO_SESSION
            self._close()
        elif self.is_full:
            self._session_id, self._epoch = response.session_id, FIRST_EPOCH
        else:
            self._epoch = FIRST_EPOCH if self._epoch == EPOCH_MAX else self._epoch + 1
        return ""

    def _problem(self, response: FetchResponse) -> str:
        if response.error_code != ErrorCode.NONE:
            return error_name(response.error_code)
        if not self.is_full and response.session_id not in (NO_SESSION, self._session_id):
            return f"the response is of session {response.session_id}, and the request of {self._session_id}"
        strange = [
            PartitionKey(topic.topic_id, data.partition_index)
            for topic in response.responses
            for data in topic.partitions
            if PartitionKey(topic.topic_id, data.partition_index) not in self._asked
        ]
        if strange:
            return f"partition {strange[0].number} of topic {strange[0].topic_id.hex()} was not requested"
        return ""

    def lost(self) -> None:
        """Note that the request in flight gets no response; the leader may have handled it."""
        self._close()

    def _close(self) -> None:
        """Make the next request close the session, and open a new one."""
        self._epoch = FULL_EPOCH
        self._is_reset = False
