"""The connection to each peer: one request at a time, a back-off after a failure (RF-63).

Connections are kept by endpoint, because a replica that looks for the leader does not know which node listens where.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch
from raft.core.messages import FetchRequest, FetchSnapshotRequest, Request

CONNECTIONS_MAX: Final = 256
"""Above this number of connections, idle ones are dropped: peers can name addresses, too."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that was sent: its destination, and its epoch."""

    correlation_id: int
    endpoint: Endpoint
    request: Request
    epoch: Epoch
    sent_ms: int
    deadline_ms: int


class Connections:
    """Requests in progress, and peers in back-off. Answers with an unknown correlation id are dropped."""

    __slots__ = (
        "_backing_off",
        "_by_correlation",
        "_by_endpoint",
        "_next_id",
        "_request_timeout_ms",
        "_retry_backoff_ms",
    )

    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._next_id = 0
        self._by_endpoint: dict[Endpoint, Pending] = {}
        self._by_correlation: dict[int, Pending] = {}
        self._backing_off: dict[Endpoint, int] = {}

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next connection becomes ready again."""
        if not self._by_endpoint and not self._backing_off:
            return None
        deadlines = [pending.deadline_ms for pending in self._by_endpoint.values()]
        deadlines.extend(self._backing_off.values())
        return min(deadlines)

    @property
    def has_fetch_under_way(self) -> bool:
        """Whether a fetch of records or of a snapshot is unanswered: at most one is, over all peers (RF-63, SN-12)."""
        # Two fetches from the same log end would bring the same records twice, and a late answer could be taken for the
        # answer to a later fetch, from another end. So only one fetch is unanswered at a time, whichever peer it was
        # sent to.
        return any(
            isinstance(pending.request, FetchRequest | FetchSnapshotRequest) for pending in self._by_endpoint.values()
        )

    @property
    def under_way(self) -> Collection[Pending]:
        """The requests whose answers would be accepted."""
        return self._by_correlation.values()

    def is_ready(self, endpoint: Endpoint) -> bool:
        """Whether a request may be sent to that endpoint."""
        return endpoint not in self._by_endpoint and endpoint not in self._backing_off

    def is_backing_off(self, endpoint: Endpoint) -> bool:
        """Whether the last request to that endpoint failed, and its back-off has not ended."""
        return endpoint in self._backing_off

    def sent(self, endpoint: Endpoint, request: Request, epoch: Epoch, now_ms: int) -> int:
        """Record that `request` is sent to `endpoint`, which must be ready; return its correlation id."""
        self._next_id += 1
        pending = Pending(self._next_id, endpoint, request, epoch, now_ms, now_ms + self._request_timeout_ms)
        self._by_endpoint[endpoint] = pending
        self._by_correlation[pending.correlation_id] = pending
        return pending.correlation_id

    def take(self, correlation_id: int) -> Pending | None:
        """Remove and return the request with that id; None if it was never sent or was abandoned."""
        pending = self._by_correlation.pop(correlation_id, None)
        if pending is not None:
            del self._by_endpoint[pending.endpoint]
        return pending

    def back_off(self, endpoint: Endpoint, now_ms: int) -> None:
        """Send nothing to `endpoint` for the retry back-off."""
        # If the back-off is dropped, this peer may only get a request a little earlier.
        if len(self._backing_off) >= CONNECTIONS_MAX:
            del self._backing_off[next(iter(self._backing_off))]
        self._backing_off[endpoint] = now_ms + self._retry_backoff_ms

    def expire(self, now_ms: int) -> list[Pending]:
        """Make connections ready whose back-off has expired; abandon and return the requests that timed out."""
        if self._backing_off:
            self._backing_off = {peer: until for peer, until in self._backing_off.items() if until > now_ms}
        if not self._by_endpoint:
            return []
        timed_out = [pending for pending in self._by_endpoint.values() if pending.deadline_ms <= now_ms]
        for pending in timed_out:
            self.take(pending.correlation_id)
        return timed_out

    def reset(self) -> None:
        """Make every connection ready and abandon all requests in progress, as a new state begins (RF-12)."""
        self._by_endpoint.clear()
        self._by_correlation.clear()
        self._backing_off.clear()
