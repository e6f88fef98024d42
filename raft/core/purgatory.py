"""Fetches that the leader has parked, until there is something new for them or their wait expires (PK-02, PK-12)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from raft.core.messages import FetchRequest

STALE_DEADLINES_MAX: Final = 64
"""Deadlines of fetches that are no longer parked are removed when they exceed this number and half of all."""


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch, the call that waits for its answer, and its deadline."""

    request_id: int
    request: FetchRequest
    deadline_ms: int


class Purgatory:
    """Parked fetches in the order of their arrival, at most `capacity`."""

    __slots__ = ("_capacity", "_deadlines", "_parked")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._parked: dict[int, ParkedFetch] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def parked(self) -> Collection[ParkedFetch]:
        """The fetches that are parked, in the order of their arrival."""
        return self._parked.values()

    @property
    def is_full(self) -> bool:
        """Whether no further fetch can be parked."""
        return len(self._parked) >= self._capacity

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next wait expires."""
        # Answered fetches leave their deadlines behind, because a heap can cheaply remove only its first entry.
        while self._deadlines and self._deadlines[0][1] not in self._parked:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def park(self, fetch: ParkedFetch) -> None:
        """Keep `fetch`; there must be room."""
        self._parked[fetch.request_id] = fetch
        heapq.heappush(self._deadlines, (fetch.deadline_ms, fetch.request_id))
        if len(self._deadlines) > 2 * len(self._parked) + STALE_DEADLINES_MAX:
            # Deadlines of answered fetches are removed when they expire; a peer may have set one far in the future.
            self._deadlines = [(parked.deadline_ms, parked.request_id) for parked in self._parked.values()]
            heapq.heapify(self._deadlines)

    def forget(self, request_id: int) -> None:
        """Drop the fetch of a cancelled call; nothing happens if it is not parked."""
        self._parked.pop(request_id, None)

    def take_all(self) -> list[ParkedFetch]:
        """Remove and return all parked fetches."""
        fetches = list(self._parked.values())
        self._parked.clear()
        self._deadlines.clear()
        return fetches

    def take_if(self, is_wanted: Callable[[FetchRequest], bool]) -> list[ParkedFetch]:
        """Remove and return the fetches whose requests are wanted."""
        fetches = [fetch for fetch in self._parked.values() if is_wanted(fetch.request)]
        for fetch in fetches:
            del self._parked[fetch.request_id]
        return fetches

    def take_expired(self, now_ms: int) -> list[ParkedFetch]:
        """Remove and return the fetches whose wait has expired."""
        expired = []
        deadline_ms = self.next_deadline_ms
        while deadline_ms is not None and deadline_ms <= now_ms:
            expired.append(self._parked.pop(heapq.heappop(self._deadlines)[1]))
            deadline_ms = self.next_deadline_ms
        return expired
