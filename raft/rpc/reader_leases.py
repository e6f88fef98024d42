"""Leases of readers outside the nodes: the log's start waits for them. Each has a name and a position (KAFKA-14932)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import Offset
from raft.rpc.limits import over_limit

NAME_LENGTH_MAX: Final = 64

LEASE_MS_MAX: Final = 600_000
"""The longest lease: a reader that vanishes holds the log's start for at most this long."""


class NamedReaderPosition(NamedTuple):
    """How far a named reader has read."""

    name: str
    next_offset: Offset
    """-1: it has read nothing."""


@dataclass(frozen=True, slots=True)
class _Lease:
    next_offset: Offset
    ends_at_ms: float


def check_reader(name: str, lease_ms: int) -> None:
    """Raise ApiError INVALID_REQUEST for an invalid name or lease."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name[:NAME_LENGTH_MAX]!r} cannot be a reader's name; give 1 to {NAME_LENGTH_MAX} printable characters",
        )
    if lease_ms < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a lease of {lease_ms} ms is invalid; give 0 to end a lease")


class ReaderLeases:
    """The leases that one node has granted. A lease that is not renewed expires."""

    def __init__(self, readers_max: int, now_ms: Callable[[], float]) -> None:
        """`now_ms` is monotonic."""
        self._readers_max = readers_max
        self._now_ms = now_ms
        self._leases: dict[str, _Lease] = {}

    def hold(self, name: str, next_offset: Offset, lease_ms: int) -> int:
        """Grant a lease, or renew it; return its length in milliseconds. 0 ends the lease.

        Raises ApiError: INVALID_REQUEST, or THROTTLING_QUOTA_EXCEEDED if too many readers have one.
        """
        check_reader(name, lease_ms)
        if next_offset < UNKNOWN_OFFSET:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"next offset {next_offset} is invalid; give -1 for a new reader")
        if not lease_ms:
            self._leases.pop(name, None)
            return 0
        self._end_old_ones()
        if name not in self._leases and len(self._leases) >= self._readers_max:
            raise over_limit("named_readers_max", self._readers_max)
        lease_ms = min(lease_ms, LEASE_MS_MAX)
        self._leases[name] = _Lease(next_offset, self._now_ms() + lease_ms)
        return lease_ms

    def positions(self) -> list[NamedReaderPosition]:
        """How far the readers with unexpired leases have read."""
        self._end_old_ones()
        return [NamedReaderPosition(name, lease.next_offset) for name, lease in self._leases.items()]

    def _end_old_ones(self) -> None:
        now_ms = self._now_ms()
        self._leases = {name: lease for name, lease in self._leases.items() if lease.ends_at_ms > now_ms}
