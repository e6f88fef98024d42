"""What all fetchers of a broker have in common, and how they fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.runtime import Runtime
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.replicas.replication.throttle import ReplicationQuota
from kraftlog.replicas.replication.throttled_fetches import FollowerThrottle
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.observer import BrokerObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Kafka's names and defaults, with `replica.fetch.` before them."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    """Of one partition."""
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """What all fetchers of a broker have in common."""

    broker_id: int
    broker_epoch: Callable[[], int]
    logs: LogManager
    runtime: Runtime
    connector: LeaderConnector
    settings: FetchSettings
    throttle: FollowerThrottle
    quota: ReplicationQuota
    on_gone: Callable[[int], None]
    """Called when a broker has closed its connection, or refuses another: its process may have ended."""
    on_back: Callable[[int], None]
    """Called when it answers again."""
    observer: BrokerObserver
