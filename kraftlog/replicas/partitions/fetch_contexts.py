"""Interprets a Fetch by its session (DB-90): which partitions it reads, and which results its response has.

| session id | epoch | kind of request |
|---|---|---|
| any | 0 | full: reads its partitions; the response has all results, and opens a session if there is room |
| any | -1 | full, without a session |
| of a session | the session's | incremental: reads the session's partitions, with the request's changes |

A full request closes the session that it names. So does an incremental request that removes the last partition.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kraftbase.errors import ErrorCode
from kraftlog.replicas.partitions.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Cached,
    FetchPosition,
    FetchSession,
    FetchSessionCache,
    PartitionKey,
)
from kraftlog.replicas.partitions.reading import Read


class FetchIntent(NamedTuple):
    """The session fields of a Fetch request."""

    session_id: int
    epoch: int
    requested: Mapping[PartitionKey, FetchPosition]
    forgotten: Sequence[PartitionKey]
    has_topic_ids: bool
    """Whether the request's version names topics by their ids."""
    is_from_follower: bool


Result = tuple[PartitionKey, Read]


class SessionResponse(NamedTuple):
    """The session fields and the results of a Fetch response."""

    error: ErrorCode
    session_id: int
    results: Sequence[Result]


class FetchContext(Protocol):
    """One request, from its arrival to its answer."""

    @property
    def wanted(self) -> Mapping[PartitionKey, FetchPosition]:
        """The partitions to read, in order."""
        ...

    def changed(self, results: Sequence[Result]) -> Sequence[Result]:
        """Return the results that the response would have, without changes to the session."""
        ...

    def commit(self, results: Sequence[Result], now_ms: float) -> SessionResponse:
        """Make the response of the results, one for each wanted partition; update the session."""
        ...

    def commit_in_slices(self, results: Sequence[Result], now_ms: float) -> Generator[None, None, SessionResponse]:
        """Like `commit`, in slices."""
        ...

    def empty_response(self) -> SessionResponse:
        """Make an empty response for a throttled reader, which repeats its request later."""
        ...


def fetch_context(sessions: FetchSessionCache, intent: FetchIntent, now_ms: float) -> FetchContext | ErrorCode:
    """Return the context of a new request, or an error.

    Errors: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, and FETCH_SESSION_TOPIC_ID_ERROR if earlier
    requests of the session named topics in the other way. After each of them the reader sends a full request.
    """
    if intent.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.remove(intent.session_id)
        return _Sessionless(intent.requested) if intent.epoch == FINAL_EPOCH else _Full(sessions, intent)
    session = sessions.get(intent.session_id)
    if session is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if session.epoch != intent.epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if session.has_topic_ids != intent.has_topic_ids:
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    session.change(intent.requested, intent.forgotten)
    if not len(session):
        sessions.remove(session.session_id)
        return _Sessionless(intent.requested)
    if not sessions.touch(session, now_ms):
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session.advance()
    return _Incremental(session)


class _Sessionless:
    """A request without a session: the response has all results."""

    def __init__(self, wanted: Mapping[PartitionKey, FetchPosition]) -> None:
        self.wanted = wanted

    def changed(self, results: Sequence[Result]) -> Sequence[Result]:
        return results

    def commit(self, results: Sequence[Result], now_ms: float) -> SessionResponse:
        return SessionResponse(ErrorCode.NONE, NO_SESSION, results)

    def commit_in_slices(self, results: Sequence[Result], now_ms: float) -> Generator[None, None, SessionResponse]:
        yield
        return self.commit(results, now_ms)

    def empty_response(self) -> SessionResponse:
        return SessionResponse(ErrorCode.NONE, NO_SESSION, ())


class _Full(_Sessionless):
    """A full request: the response has all results, and opens a session."""

    def __init__(self, sessions: FetchSessionCache, intent: FetchIntent) -> None:
        super().__init__(intent.requested)
        self._sessions = sessions
        self._intent = intent

    def commit(self, results: Sequence[Result], now_ms: float) -> SessionResponse:
        session = self._sessions.create(
            ((key, self.wanted[key], read) for key, read in results), len(results), now_ms,
            is_privileged=self._intent.is_from_follower, has_topic_ids=self._intent.has_topic_ids,
        )  # fmt: skip
        return SessionResponse(ErrorCode.NONE, NO_SESSION if session is None else session.session_id, results)

    def commit_in_slices(self, results: Sequence[Result], now_ms: float) -> Generator[None, None, SessionResponse]:
        partitions: dict[PartitionKey, Cached] = {}
        for key, read in results:
            partitions[key] = Cached(self.wanted[key], read)
            yield
        session = self._sessions.create_of(
            partitions, now_ms, is_privileged=self._intent.is_from_follower, has_topic_ids=self._intent.has_topic_ids
        )
        return SessionResponse(ErrorCode.NONE, NO_SESSION if session is None else session.session_id, results)


class _Incremental:
    """An incremental request: the response has only changed results."""

    def __init__(self, session: FetchSession) -> None:
        self.wanted: Mapping[PartitionKey, FetchPosition] = session.positions()
        self._session = session
        self._epoch = session.epoch

    def changed(self, results: Sequence[Result]) -> Sequence[Result]:
        if self._session.epoch != self._epoch:
            return ()
        return [(key, read) for key, read in results if self._session.has_changed(key, read)]

    def commit(self, results: Sequence[Result], now_ms: float) -> SessionResponse:
        if self._session.epoch != self._epoch:
            return self.empty_response()
        changed = self.changed(results)
        for key, read in changed:
            self._session.record_sent(key, read)
        return SessionResponse(ErrorCode.NONE, self._session.session_id, changed)

    def commit_in_slices(self, results: Sequence[Result], now_ms: float) -> Generator[None, None, SessionResponse]:
        """Like `commit`, in slices; if the session's next request has come in between, the response is an error."""
        changed: list[Result] = []
        for key, read in results:
            if self._session.epoch != self._epoch:
                return self.empty_response()
            if self._session.has_changed(key, read):
                self._session.record_sent(key, read)
                changed.append((key, read))
            yield
        return SessionResponse(ErrorCode.NONE, self._session.session_id, changed)

    def empty_response(self) -> SessionResponse:
        """Make an empty response: INVALID_FETCH_SESSION_EPOCH if the session's next request has come in between."""
        is_current = self._session.epoch == self._epoch
        error = ErrorCode.NONE if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH
        return SessionResponse(error, self._session.session_id, ())
