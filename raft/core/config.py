"""The settings of a quorum."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from kraftbase.errors import ConfigurationError

FETCH_VERSIONS: Final = (17, 18)
"""The supported versions of Fetch. From version 18 on, a Fetch has the replica's high watermark (KIP-1166, PK-05). A
leader counts fetches of both versions in the same way (RF-74).
"""

FETCH_VERSION_LATEST: Final = max(FETCH_VERSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Times and sizes of the protocol, with Kafka's names and defaults in `controller.quorum.*`.

    Raises ConfigurationError when a value is out of range.
    """

    election_timeout_ms: int = 1000
    """How long a replica without a leader waits before an election: a random time from this up to twice this."""
    fetch_timeout_ms: int = 2000
    """How long a follower waits for a successful fetch before it starts an election."""
    election_backoff_max_ms: int = 1000
    """Bounds the order of elections after a leader's resignation (RF-36)."""
    request_timeout_ms: int = 2000
    """How long a request may remain unanswered before it counts as failed."""
    retry_backoff_ms: int = 20
    """How long no request is sent over a connection that failed."""
    fetch_max_wait_ms: int = 500
    """How long a leader may park this replica's fetches (RF-38)."""
    fetch_max_bytes: int = 1024 * 1024
    """How many bytes of batches this replica requests at a time; one batch is always sent whole."""
    fetch_snapshot_max_bytes: int = 2 * 1024 * 1024
    """How many bytes of a snapshot this replica requests at a time."""
    fetch_version: int = FETCH_VERSION_LATEST
    """The highest Fetch version to use. Version 17 sends no high watermark, as Kafka did before KIP-1166 (PK-03)."""
    batch_bytes_max: int = 8 * 1024 * 1024
    """An append whose batch would be larger is refused (LI-21)."""
    pending_append_bytes_max: int = 64 * 1024 * 1024
    """The limit on bytes in uncommitted appends; further appends are refused (LI-21)."""
    parked_fetches_max: int = 10_000
    """A leader parks at most this many fetches; it answers further ones at once."""
    observer_expiration_ms: int = 300_000
    """A leader forgets an observer that has not fetched for this long (RF-38)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ConfigurationError(f"{field.name} is {value}; it must be at least 1")
        if self.fetch_version not in FETCH_VERSIONS:
            versions = " or ".join(map(str, FETCH_VERSIONS))
            raise ConfigurationError(f"fetch_version is {self.fetch_version}; it must be {versions}")
        patience_ms = min(self.fetch_timeout_ms, self.request_timeout_ms)
        if self.fetch_max_wait_ms >= patience_ms:
            raise ConfigurationError(
                f"fetch_max_wait_ms is {self.fetch_max_wait_ms}; it must be below the fetch and the request timeout,"
                f" so below {patience_ms}, or an idle leader would seem silent"
            )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader resigns when no majority has fetched from it for this long (RF-32)."""
        # Half a fetch timeout more than a follower waits: a fetch that is a little late, behind a slow flush or on a
        # slow network, must not depose a leader that its followers still follow.
        return self.fetch_timeout_ms * 3 // 2

    @property
    def readers_leave_after_ms(self) -> int:
        """How long a node may have heard from no leader before its readers look for another node."""
        # A follower looks for another leader by then, and its readers for a node that has found one.
        return self.fetch_timeout_ms

    @property
    def begin_quorum_interval_ms(self) -> int:
        """How often a leader notifies voters that do not fetch from it (RF-33)."""
        return max(1, self.fetch_timeout_ms // 2)
