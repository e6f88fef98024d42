"""The follower's end of a fetch session (KIP-227): a request names only what has changed since the one before.

    session.want(key, position)              what is to be fetched from now on
    session.forget(key)
    request = session.next_request()         in flight: one at most
    session.answered(response)               or session.lost(), if there is no answer

Both ends count the requests of a session. As soon as they may disagree, or the leader does not know the session any
more, the next request is full: it names everything, and a new session begins with it. No clock and no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftbase.errors import ErrorCode, error_name
from kraftlog.kafka.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FULL_EPOCH: Final = 0
"""As the epoch of a request: it is full, and a session begins with it; the one that it names is closed."""
FIRST_EPOCH: Final = 1
EPOCH_MAX: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as requests name it."""

    topic_id: bytes
    number: int


class SessionRequest(NamedTuple):
    """What a request says of its session."""

    session_id: int
    epoch: int
    topics: tuple[FetchTopic, ...]
    forgotten: tuple[ForgottenTopic, ...]


class FetchSession:
    """What is fetched from one leader."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._wanted: dict[PartitionKey, FetchPartition] = {}
        self._asked: dict[PartitionKey, FetchPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._forgotten: dict[PartitionKey, None] = {}
        self._begins_anew = False

    def __len__(self) -> int:
        """How many partitions are to be fetched."""
        return len(self._wanted)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._wanted

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self._epoch == FULL_EPOCH

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """What the leader was asked of a partition last; it must not be changed."""
        return self._asked.get(key)

    # --- what is to be fetched ----------------------------------------------------------------------------------------

    def want(self, key: PartitionKey, position: FetchPartition) -> None:
        """Fetch a partition from this position from now on."""
        self._wanted[key] = position
        self._forgotten.pop(key, None)
        asked = self._asked.get(key)
        if asked is not None and asked.fetch_offset == position.fetch_offset and asked == position:
            self._changed.pop(key, None)
        else:
            self._changed[key] = None

    def forget(self, key: PartitionKey) -> None:
        """Fetch a partition no more; nothing happens if it is not fetched."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._asked:
                self._forgotten[key] = None

    def begin_anew(self) -> None:
        """Have the next request be full, as what the leader takes for told was not used.

        Consider a leader that has told its high watermark 7 in an answer that was ignored, since the leader epoch has
        changed meanwhile. In the same session it tells it again only when it has changed.
        """
        self._begins_anew = True

    # --- requests and answers -----------------------------------------------------------------------------------------

    def next_request(self) -> SessionRequest:
        """The next request. Whatever was told of earlier answers counts no more."""
        if self._begins_anew:
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
        """Take the answer to the request in flight. Returns why nothing of it is to be used, or nothing.

        The next request is full then.
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
            return f"it is of session {response.session_id}, and {self._session_id} was asked for"
        strange = [
            PartitionKey(topic.topic_id, data.partition_index)
            for topic in response.responses
            for data in topic.partitions
            if PartitionKey(topic.topic_id, data.partition_index) not in self._asked
        ]
        if strange:
            return f"partition {strange[0].number} of topic {strange[0].topic_id.hex()} was not asked for"
        return ""

    def lost(self) -> None:
        """There is no answer to the request in flight, and it may have been handled."""
        self._close()

    def _close(self) -> None:
        """The next request closes the session, and begins one."""
        self._epoch = FULL_EPOCH
        self._begins_anew = False
