"""The settings and dependencies that all fetchers of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftbase.runtime import Runtime
from kraftlog.replicas.replication.follower_throttle import FollowerThrottleConfigs
from kraftlog.replicas.replication.ports import LeaderConnector
from kraftlog.replicas.replication.throttle import ReplicationQuota
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.observer import BrokerObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Kafka's configs that begin with `replica.fetch.`, with its defaults."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    """The limit for one partition."""
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """The dependencies that all fetchers of a broker share."""

    broker_id: int
    broker_epoch: Callable[[], int]
    logs: LogManager
    runtime: Runtime
    connector: LeaderConnector
    settings: FetchSettings
    throttle: FollowerThrottleConfigs
    quota: ReplicationQuota
    on_gone: Callable[[int], None]
    """Called when a broker has closed its connection, or refuses a new one: its process may have ended."""
    on_back: Callable[[int], None]
    """Called when a broker answers again."""
    observer: BrokerObserver
