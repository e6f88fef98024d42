"""Fetch sessions as simply as they can be said: lists that are searched, and no bookkeeping (DB-90, DB-91)."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftlog.replicas.partitions.reading import Read

UNUSED_MS = 120_000
"""After so long without use a session gives its slot up; so long after it was made it is safe from others as large."""


@dataclass(eq=False)
class ModelSession:
    """One session."""

    session_id: int
    is_follower: bool
    made_ms: int
    used_ms: int
    used: int
    """Which use of any session its last one was."""
    epoch: int = 1
    order: list[int] = field(default_factory=list)
    """The numbers of its partitions."""
    offsets: dict[int, int] = field(default_factory=dict)
    record_sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """High watermark and log start as the reader knows them."""

    def commit(self, results: dict[int, Read]) -> list[int]:
        """The partitions that the answer has."""
        changed = []
        for number, read in results.items():
            if number not in self.offsets:
                continue  # forgotten since, by a request that closed the session
            at = (read.high_watermark, read.log_start_offset)
            if read.records or read.error or read.diverging or self.record_sent.get(number, (-1, -1)) != at:
                changed.append(number)
        for number in changed:
            read = results[number]
            self.record_sent[number] = (-1 if read.error else read.high_watermark, read.log_start_offset)
        gave = [number for number in changed if results[number].records]
        self.order = [number for number in self.order if number not in gave] + gave
        return changed

    def ask(self, asked: dict[int, int], forgotten: list[int]) -> None:
        """Take the changes of a request."""
        self.order += [number for number in asked if number not in self.offsets]
        self.offsets.update(asked)
        for number in forgotten:
            if self.offsets.pop(number, None) is not None:
                self.order.remove(number)
            self.record_sent.pop(number, None)

    @property
    def is_old(self) -> bool:
        """Whether it was last used so long after it was made that one that is worth more may have its slot."""
        return self.used_ms - self.made_ms > UNUSED_MS


@dataclass(eq=False)
class ModelSessions:
    """All sessions, and their bounds."""

    slots: int
    partitions_max: int
    cached_max: int
    sessions: list[ModelSession] = field(default_factory=list)
    uses: int = 0

    def find(self, session_id: int) -> ModelSession | None:
        return next((one for one in self.sessions if one.session_id == session_id), None)

    def close(self, session_id: int) -> None:
        self.sessions = [one for one in self.sessions if one.session_id != session_id]

    @property
    def cached(self) -> int:
        return sum(len(one.offsets) for one in self.sessions)

    def use(self, session: ModelSession, now_ms: int) -> bool:
        """False if it has too many partitions now: it is closed."""
        self.uses += 1
        session.used, session.used_ms = self.uses, now_ms
        if len(session.offsets) > self.partitions_max or self.cached > self.cached_max:
            self.close(session.session_id)
            return False
        return True

    def has_room(self, size: int, is_follower: bool, now_ms: int) -> bool:
        """Whether a newcomer gets a slot; who must go for it is gone then."""
        if size > self.partitions_max:
            return False
        while self.cached + size > self.cached_max:
            if not self._close_unused(now_ms):
                return False
        if len(self.sessions) < self.slots or self._close_unused(now_ms):
            return True
        evictable = [one for one in self.sessions if one.is_old or (is_follower and not one.is_follower)]
        if not evictable:
            return False
        least = min(evictable, key=lambda one: (one.is_follower, len(one.offsets), one.session_id))
        if (is_follower, size) <= (least.is_follower, len(least.offsets)):
            return False
        self.close(least.session_id)
        return True

    def _close_unused(self, now_ms: int) -> bool:
        oldest = min(self.sessions, key=lambda one: one.used, default=None)
        if oldest is None or now_ms - oldest.used_ms <= UNUSED_MS:
            return False
        self.close(oldest.session_id)
        return True

    def add(self, session: ModelSession) -> None:
        self.uses += 1
        session.used = self.uses
        self.sessions.append(session)
