"""The observer that every broker has: it counts decisions in the broker's registry."""

from __future__ import annotations

from typing import Final

from kraftlog.telemetry import catalogue
from kraftlog.telemetry.observer import (
    Decision,
    FencingChanged,
    FetchEnd,
    IsrChanged,
    IsrChangeRefused,
    LeadershipRefused,
    LogTruncated,
)
from kraftlog.telemetry.registry import Registry

FETCH: Final = "Fetch"
FOLLOWER, CONSUMER = "follower", "consumer"


class CountingObserver:
    """A `BrokerObserver` that counts."""

    wants_details: Final = False

    def __init__(self, registry: Registry) -> None:
        self._parked = registry.counter(catalogue.PURGATORY_SIZE, FETCH)
        self._expired_followers = registry.counter(catalogue.FETCHES_EXPIRED, FOLLOWER)
        self._expired_consumers = registry.counter(catalogue.FETCHES_EXPIRED, CONSUMER)
        self._shrinks = registry.counter(catalogue.ISR_SHRINKS)
        self._expands = registry.counter(catalogue.ISR_EXPANDS)
        self._failed_isr_updates = registry.counter(catalogue.FAILED_ISR_UPDATES)
        self._truncations = registry.counter(catalogue.TRUNCATIONS)
        self._refused_leaderships = registry.counter(catalogue.REFUSED_LEADERSHIPS)
        self._fenced = registry.counter(catalogue.FENCED)
        self._fenced.value = 1

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Count one more parked Fetch."""
        self._parked.value += 1

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Count one more parked Fetch."""
        self._parked.value += 1

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Count one fewer parked Fetch, and an expired one."""
        self._parked.value -= 1
        if why is FetchEnd.TIME_OR_CLIENT:
            (self._expired_consumers if replica_id < 0 else self._expired_followers).value += 1

    def decided(self, decision: Decision) -> None:
        """Count the decisions that operators watch."""
        match decision:
            case IsrChanged(_, isr, changed):
                self._shrinks.value += not set(isr) <= set(changed)
                self._expands.value += not set(changed) <= set(isr)
            case IsrChangeRefused():
                self._failed_isr_updates.value += 1
            case LogTruncated():
                self._truncations.value += 1
            case LeadershipRefused():
                self._refused_leaderships.value += 1
            case FencingChanged(is_fenced):
                self._fenced.value = int(is_fenced)
            case _:
                pass
