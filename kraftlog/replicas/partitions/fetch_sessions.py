"""Fetch sessions (KIP-227): the broker keeps what a reader fetches, so that its requests name only changes (DB-90).

A session has an id, which is secret, and an epoch, the number of its next request. Each request of a session increments
the epoch, so a repeated request is refused. The number of sessions is limited. A full cache evicts a session for a new
one if the old one has not been used for `EVICTABLE_AFTER_MS`, or if the new one is worth more. Followers' sessions are
worth more than consumers', and among equals the one with more partitions is. For `EVICTABLE_AFTER_MS` after its
creation, a follower's session is not evicted for a session that is worth more, and a consumer's only for a follower's
(DB-91).

Time, in monotonic milliseconds, and the source of ids are arguments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kraftlog.replicas.partitions.reading import NO_REPLICA, Read

SLOTS_MAX: Final = 1_000
"""Kafka's default of `max.incremental.fetch.session.cache.slots`."""

EVICTABLE_AFTER_MS: Final = 120_000
"""Kafka's `MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS`."""

PARTITIONS_MAX: Final = 100_000
"""The most partitions of one session; our own bound."""

CACHED_PARTITIONS_MAX: Final = 500_000
"""The most partitions of all sessions together; our own bound."""

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_EPOCH: Final = 1
"""The epoch of a session's first incremental request."""
EPOCH_MAX: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as requests name it: by its topic's name in older versions, by its topic's id in newer ones."""

    topic: str
    """Empty in a request with topic ids."""
    topic_id: bytes
    """Zeros in a request with names."""
    number: int


class FetchPosition(NamedTuple):
    """The position from which a reader fetches a partition."""

    offset: int
    bytes_max: int
    current_leader_epoch: int = UNKNOWN_EPOCH
    last_fetched_epoch: int = UNKNOWN_EPOCH
    log_start_offset: int = -1
    """The log start offset of a follower."""


class Cached:
    """A partition of a session: its position, and the offsets in the last response."""

    __slots__ = ("high_watermark", "log_start_offset", "position")

    def __init__(self, position: FetchPosition, read: Read | None = None) -> None:
        """`read` is the result in the response that opens the session, if any."""
        self.position = position
        self.high_watermark: int = UNKNOWN_OFFSET
        self.log_start_offset: int = UNKNOWN_OFFSET
        if read is not None:
            self.record_sent(read)

    def has_changed(self, read: Read) -> bool:
        """Whether the response must have a result."""
        return bool(
            read.records
            or read.error is not None
            or read.diverging is not None
            or read.preferred_replica != NO_REPLICA
            or read.high_watermark != self.high_watermark
            or read.log_start_offset != self.log_start_offset
        )

    def record_sent(self, read: Read) -> None:
        """Note that a result is sent. After an error the next result without one is sent even if nothing changed."""
        self.high_watermark = UNKNOWN_OFFSET if read.error is not None else read.high_watermark
        self.log_start_offset = read.log_start_offset


_Worth = tuple[bool, int, int]
"""Whether a session is a follower's, its number of partitions, its id: the smallest is evicted first."""


class FetchSession:
    """One reader's partitions, in the order in which they get a share of a response's bytes."""

    def __init__(
        self, session_id: int, now_ms: float, partitions: dict[PartitionKey, Cached], *,
        is_privileged: bool, has_topic_ids: bool,
    ) -> None:  # fmt: skip
        self.session_id = session_id
        self.epoch = FIRST_EPOCH
        """The epoch that the next request must have."""
        self.is_privileged = is_privileged
        """Whether the reader is a follower."""
        self.has_topic_ids = has_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.worth: _Worth = (is_privileged, 0, session_id)
        """Its worth at its last use."""
        self._partitions = partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def change(self, requested: Mapping[PartitionKey, FetchPosition], forgotten: Iterable[PartitionKey]) -> None:
        """Add or change partitions, then remove some."""
        for key, position in requested.items():
            cached = self._partitions.get(key)
            if cached is None:
                self._partitions[key] = Cached(position)
            else:
                cached.position = position
        for key in forgotten:
            self._partitions.pop(key, None)

    def positions(self) -> dict[PartitionKey, FetchPosition]:
        """Return the present position of each partition, in order."""
        return {key: cached.position for key, cached in self._partitions.items()}

    def has_changed(self, key: PartitionKey, read: Read) -> bool:
        """Whether the response must have a partition's result."""
        cached = self._partitions.get(key)
        return cached is not None and cached.has_changed(read)

    def record_sent(self, key: PartitionKey, read: Read) -> None:
        """Note that a result is sent. A partition with records moves to the end, so that no partition starves."""
        cached = self._partitions.get(key)
        if cached is None:
            return
        cached.record_sent(read)
        if read.records:
            del self._partitions[key]
            self._partitions[key] = cached

    def advance(self) -> None:
        """Expect the next epoch in the next request."""
        self.epoch = FIRST_EPOCH if self.epoch == EPOCH_MAX else self.epoch + 1


class FetchSessionCache:
    """The sessions of a broker. For one thread."""

    def __init__(
        self,
        new_id: Callable[[], int],
        slots_max: int = SLOTS_MAX,
        *,
        evictable_after_ms: int = EVICTABLE_AFTER_MS,
        partitions_max: int = PARTITIONS_MAX,
        cached_partitions_max: int = CACHED_PARTITIONS_MAX,
    ) -> None:
        """`new_id` returns unpredictable random numbers from 1 to 2^31 - 1."""
        self._new_id = new_id
        self._slots_max = slots_max
        self._evictable_after_ms = evictable_after_ms
        self._partitions_max = partitions_max
        self._cached_partitions_max = cached_partitions_max
        self._sessions: dict[int, FetchSession] = {}
        """By id, the least recently used session first."""
        self._evictable_by_all: list[_Worth] = []
        self._evictable_by_privileged: list[_Worth] = []
        self.partition_count = 0
        """The total of the sessions' partitions, each as of its last use."""
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session with an id, or None."""
        return self._sessions.get(session_id)

    def create(
        self,
        sent: Iterable[tuple[PartitionKey, FetchPosition, Read]],
        size: int,
        now_ms: float,
        *,
        is_privileged: bool,
        has_topic_ids: bool,
    ) -> FetchSession | None:
        """Create a session of `size` partitions, with the results in the response; None if there is no room for it."""
        if not self._make_room((is_privileged, size, NO_SESSION), now_ms):
            return None
        partitions = {key: Cached(position, read) for key, position, read in sent}
        return self._made(partitions, now_ms, is_privileged=is_privileged, has_topic_ids=has_topic_ids)

    def create_of(
        self, partitions: dict[PartitionKey, Cached], now_ms: float, *, is_privileged: bool, has_topic_ids: bool
    ) -> FetchSession | None:
        """Like `create`, with ready `Cached` partitions."""
        if not self._make_room((is_privileged, len(partitions), NO_SESSION), now_ms):
            return None
        return self._made(partitions, now_ms, is_privileged=is_privileged, has_topic_ids=has_topic_ids)

    def _made(
        self, partitions: dict[PartitionKey, Cached], now_ms: float, *, is_privileged: bool, has_topic_ids: bool
    ) -> FetchSession:
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, now_ms, partitions, is_privileged=is_privileged, has_topic_ids=has_topic_ids)
        self._sessions[session_id] = session
        self._place(session)
        return session

    def touch(self, session: FetchSession, now_ms: float) -> bool:
        """Note that a session is used. Return False if it has grown beyond the bounds; then it is removed."""
        self._displace(session)
        session.last_used_ms = now_ms
        if self._is_too_much(len(session)):
            return False
        self._sessions[session.session_id] = session
        self._place(session)
        return True

    def remove(self, session_id: int) -> None:
        """Close a session, if one with that id exists."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._displace(session)

    # --- room ---------------------------------------------------------------------------------------------------------

    def _is_too_much(self, size: int) -> bool:
        return size > self._partitions_max or self.partition_count + size > self._cached_partitions_max

    def _make_room(self, worth: _Worth, now_ms: float) -> bool:
        """Evict sessions if needed; return whether there is room for a session of that worth."""
        if self._slots_max <= 0 or worth[1] > self._partitions_max:
            return False
        while self._is_too_much(worth[1]):
            if not self._evict_unused(now_ms):
                return False
        return len(self._sessions) < self._slots_max or self._evict_unused(now_ms) or self._evict_worth_less(worth)

    def _evict_unused(self, now_ms: float) -> bool:
        session = next(iter(self._sessions.values()), None)
        if session is None or now_ms - session.last_used_ms <= self._evictable_after_ms:
            return False
        self._evict(session)
        return True

    def _evict_worth_less(self, worth: _Worth) -> bool:
        evictable = self._evictable_by_privileged if worth[0] else self._evictable_by_all
        if not evictable or worth < evictable[0]:
            return False
        self._evict(self._sessions[evictable[0][2]])
        return True

    def _evict(self, session: FetchSession) -> None:
        self._displace(session)
        self.eviction_count += 1

    def _place(self, session: FetchSession) -> None:
        """Add a session to the orders of eviction; whether it is old enough is decided at each use, as in Kafka."""
        session.worth = (session.is_privileged, len(session), session.session_id)
        self.partition_count += len(session)
        is_old = session.last_used_ms - session.created_ms > self._evictable_after_ms
        if is_old or not session.is_privileged:
            insort(self._evictable_by_privileged, session.worth)
        if is_old:
            insort(self._evictable_by_all, session.worth)

    def _displace(self, session: FetchSession) -> None:
        if self._sessions.pop(session.session_id, None) is None:
            return
        self.partition_count -= session.worth[1]
        for evictable in (self._evictable_by_all, self._evictable_by_privileged):
            at = bisect_left(evictable, session.worth)
            if evictable[at : at + 1] == [session.worth]:
                del evictable[at]
