"""When the log start advances to a snapshot, and which snapshots stay (KIP-630, KAFKA-14932; rules SN-40 to SN-55).

A reader below the log start must load a snapshot, even if it would have read the missing records a moment later. So a
leader keeps its log until all its readers are past a snapshot, for a bounded time; followers follow their leader's log
start. The policy is pure: times, positions and sizes are arguments, and the caller carries the decision out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftbase.errors import ConfigurationError
from kraftbase.types import Offset
from raft.core.types import OffsetAndEpoch

SNAPSHOTS_KEPT_MAX: Final = 4
"""The most snapshots at and above the log start. At least 2: one at the log start and one above it (SN-53)."""


class LogStartPolicy(StrEnum):
    """The readers that a node waits for before it advances its log start."""

    REPLICATED = "replicated"
    """A leader waits for its live replicas and listeners, a follower for its leader and its listeners (KAFKA-14932)."""
    EAGER = "eager"
    """No node waits for any reader, as in Kafka today (SN-40 to SN-42)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartConfig:
    """The settings of the log start. Raises ConfigurationError when a value is out of range."""

    policy: LogStartPolicy = LogStartPolicy.REPLICATED
    retention_bytes: int = 104_857_600
    """How many bytes log and snapshots may have before the oldest are deleted; `metadata.max.retention.bytes` in Kafka
    (SN-41)."""
    retention_ms: int = 604_800_000
    """How old the oldest snapshot's last record may be before the snapshot is deleted; `metadata.max.retention.ms` in
    Kafka (SN-41)."""
    lag_time_max_ms: int = 604_800_000
    """How long a leader waits for replicas and listeners, and a follower for its listeners;
    `metadata.start.offset.lag.time.max.ms` in KIP-630 (SN-51).
    """
    replica_session_timeout_ms: int = 9_000
    """How long a new leader waits for its replicas to fetch before it advances the log start."""
    replica_restart_grace_ms: int = 60_000
    """How long the log start waits for a silent replica, which may be restarting; the session timeout if that is
    longer."""

    def __post_init__(self) -> None:
        for name, low in (
            ("retention_bytes", 0),
            ("retention_ms", 0),
            ("lag_time_max_ms", 0),
            ("replica_session_timeout_ms", 1),
            ("replica_restart_grace_ms", 0),
        ):
            value = getattr(self, name)
            if value < low:
                raise ConfigurationError(f"{name} is {value}; it must be at least {low}")


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that this node has."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    timestamp_ms: int
    """When the last record that it contains was appended, by its header, in milliseconds since 1970."""
    eligible_since_ms: int | None
    """When a newer one was stored, in monotonic milliseconds; may be before the process start. None for the newest."""


class ReaderKind(StrEnum):
    """The kind of a reader of the log."""

    REPLICA = "replica"
    """A voter or observer that fetches from this leader."""
    LISTENER = "listener"
    """A listener of this node, such as its state machine."""


@dataclass(frozen=True, slots=True)
class ReaderPosition:
    """How far a replica or a listener has read."""

    kind: ReaderKind
    name: str
    next_offset: Offset
    """The next offset that it will read; it has read everything below. -1 if unknown."""
    last_seen_ms: int | None
    """A replica's last contact in this leader's epoch, in monotonic milliseconds; None: none yet, or a listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartView:
    """The state of a node that the decision depends on."""

    now_ms: int
    """Monotonic milliseconds."""
    wall_clock_ms: int
    """Milliseconds since 1970."""
    start: OffsetAndEpoch
    """The log's start: 0, or the end of a snapshot (SN-43)."""
    log_size_bytes: int
    """The size of the whole log, without snapshots."""
    high_watermark: Offset
    """-1 if it is not known."""
    snapshots: tuple[StoredSnapshot, ...]
    """The oldest first."""
    leading_since_ms: int | None
    """In monotonic milliseconds; None if this node does not lead."""
    leader_log_start_offset: Offset
    """A follower's leader's log start, by its last answer; -1 if unknown."""
    readers: tuple[ReaderPosition, ...]
    """This node's listeners, and if it leads, all other replicas that it knows."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A reader that the log start waits for."""

    kind: ReaderKind
    name: str
    next_offset: Offset


@dataclass(frozen=True, slots=True)
class LogStartDecision:
    """The decision for a view."""

    start: OffsetAndEpoch | None
    """The new log start: the end of a stored snapshot above it, at or below the high watermark. None: it stays."""
    holders: tuple[Holder, ...]
    """The readers that hold it back, in the order of the view. Empty if it advances, or has no next step."""


_STAY: Final = LogStartDecision(None, ())


def decide(config: LogStartConfig, view: LogStartView) -> LogStartDecision:
    """The next step of the log start. Apply it and decide again, with the new sizes, until the log start stays.

    Each step advances to a stored snapshot. Under `REPLICATED` that is never the newest, so that there is one above
    the log start, too (SN-53); under `EAGER` it may be.
    """
    # Snapshots below the start do not belong to the log, though their files may still exist.
    stored = tuple(found for found in view.snapshots if found.snapshot_id.offset >= view.start.offset)
    if config.policy is LogStartPolicy.EAGER:
        return _decide_eagerly(config, view, stored)
    if view.leading_since_ms is None:
        return _follow(config, view, stored)
    return _lead(config, view, stored, view.leading_since_ms)


def surplus(ids: Sequence[OffsetAndEpoch], start_offset: Offset) -> tuple[OffsetAndEpoch, ...]:
    """The snapshots to delete, out of all `ids`, the oldest first.

    Those below the log start are deleted (SN-42). Of the others `SNAPSHOTS_KEPT_MAX` stay: the two oldest, because slow
    readers pass them first and the log start may then advance there, and the two newest, so that another one exists if
    the newest is damaged, and a replica that is fetching the one before it can finish.
    """
    below = tuple(found for found in ids if found.offset < start_offset)
    # With a log start at 2000 and snapshots at 1000, 2000, 2500, 3000, 3500, 4000 and 4500: 1000, 3000 and 3500 are
    # deleted; 2000, 2500, 4000 and 4500 stay.
    others = [found for found in ids if found.offset >= start_offset]
    return below + tuple(others[SNAPSHOTS_KEPT_MAX - 2 : -2])


def _decide_eagerly(config: LogStartConfig, view: LogStartView, stored: tuple[StoredSnapshot, ...]) -> LogStartDecision:
    """Delete the oldest snapshot, and advance the log start to the next one (SN-42)."""
    if not _retention_wants(config, view, stored):
        return _STAY
    following = stored[1]
    return LogStartDecision(following.snapshot_id, ()) if _is_a_step(view, following) else _STAY


def _lead(
    config: LogStartConfig, view: LogStartView, stored: tuple[StoredSnapshot, ...], leading_since_ms: int
) -> LogStartDecision:
    """Advance to the oldest snapshot above except the newest, when live readers are past it or out of time (SN-51)."""
    # Consider a leader whose log goes from 0 to 3200, with snapshots at 1000, 2000 and 3000, and larger than retention
    # allows. Follower 2 is at 3200, follower 3 at 900, and the leader's own listener at 3100.
    #
    # The next step is 1000. 3 holds it back: from a log that starts at 1000, a replica that ends at 900 would have to
    # fetch the snapshot at 3000 because of a hundred records that it would have fetched a moment later (SN-50). Soon 3
    # is at 1200, and the log start advances to 1000; the next step is 2000, which 3 holds back until it is there.
    #
    # The log start stops at 2000, though all readers are past 3000: with the log start at 3000 there would be one
    # snapshot, and a replica at 2990 would need it. With two, the one at the start and a newer one, a replica behind
    # the newest can still continue from the log, and if the newest is damaged the one at the start and the log have
    # everything (SN-53).
    candidate = next((found for found in stored[:-1] if _is_a_step(view, found)), None)
    if candidate is None or not _retention_wants(config, view, stored):
        return _STAY
    is_new = view.now_ms - leading_since_ms < config.replica_session_timeout_ms
    live_ms = max(config.replica_session_timeout_ms, config.replica_restart_grace_ms)

    def is_live(reader: ReaderPosition) -> bool:
        # A replica without contact may have fetched from the previous leader: its grace starts with this leadership.
        seen_ms = leading_since_ms if reader.last_seen_ms is None else reader.last_seen_ms
        return reader.kind is ReaderKind.LISTENER or view.now_ms - seen_ms < live_ms

    # Consider follower 3 at 900 with its last contact ten minutes ago. The log start does not wait for it: when it
    # returns, it fetches a snapshot. A replica that only restarts is back within the minute of its grace.
    holders = _behind(candidate, [reader for reader in view.readers if is_live(reader)])
    # A new leader has had no fetches yet. Until they had time to arrive, an observer at 900 that the previous leader
    # waited for would not even be among its readers.
    if is_new and any(reader.kind is ReaderKind.REPLICA for reader in view.readers):
        return LogStartDecision(None, holders)  # a replica that the leader does not know may still fetch
    if holders and not _is_overdue(config, view, candidate):
        return LogStartDecision(None, holders)
    return _step(candidate)


def _follow(config: LogStartConfig, view: LogStartView, stored: tuple[StoredSnapshot, ...]) -> LogStartDecision:
    """Advance as far as the leader has, if there is a newer snapshot, when listeners are past or out of time (SN-52).

    SN-52 has no time limit for a follower. Consider a listener that never closes a reader: without a limit the
    follower's log would grow until its disk is full.
    """
    # Consider a leader whose log starts at 2000, and a follower with snapshots at 1000, 1900 and 2500, since it takes
    # its own. The follower advances to 1900, the last that is not ahead of its leader. At 2500 it would, if elected,
    # have to send a snapshot to a replica at 2200, though that replica can continue from the current leader's log.
    # Without the snapshot at 2500 it would stay at 0, because only one snapshot would be left, the one at its start.
    # With a listener at 1500 it advances to 1000, and 1900 waits for that listener.
    reached = [
        found
        for found in stored
        if _is_a_step(view, found) and found.snapshot_id.offset <= view.leader_log_start_offset
    ]
    if not reached or stored[-1].snapshot_id.offset <= view.leader_log_start_offset:
        return _STAY
    listeners = [reader for reader in view.readers if reader.kind is ReaderKind.LISTENER]
    passed = [found for found in reached if not _behind(found, listeners) or _is_overdue(config, view, found)]
    return _step(passed[-1]) if passed else LogStartDecision(None, _behind(reached[-1], listeners))


def _retention_wants(config: LogStartConfig, view: LogStartView, stored: tuple[StoredSnapshot, ...]) -> bool:
    """Whether the data is too large or too old, and a snapshot is left when the oldest is deleted (SN-41)."""
    if len(stored) < 2:
        return False
    size_bytes = view.log_size_bytes + sum(found.size_bytes for found in stored)
    age_ms = view.wall_clock_ms - stored[0].timestamp_ms
    return size_bytes > config.retention_bytes or age_ms > config.retention_ms


def _is_overdue(config: LogStartConfig, view: LogStartView, snapshot: StoredSnapshot) -> bool:
    """Whether readers have had enough time to pass it (SN-51)."""
    since_ms = snapshot.eligible_since_ms
    return since_ms is not None and view.now_ms - since_ms >= config.lag_time_max_ms


def _is_a_step(view: LogStartView, snapshot: StoredSnapshot) -> bool:
    return view.start.offset < snapshot.snapshot_id.offset <= view.high_watermark


def _behind(snapshot: StoredSnapshot, readers: Sequence[ReaderPosition]) -> tuple[Holder, ...]:
    end_offset = snapshot.snapshot_id.offset
    return tuple(
        Holder(reader.kind, reader.name, reader.next_offset) for reader in readers if reader.next_offset < end_offset
    )


def _step(snapshot: StoredSnapshot) -> LogStartDecision:
    return LogStartDecision(snapshot.snapshot_id, ())
