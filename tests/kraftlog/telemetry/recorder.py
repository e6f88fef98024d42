"""An observer of a broker that keeps what it is told."""

from __future__ import annotations

from kraftlog.telemetry.observer import Decision, FetchEnd


class Recorder:
    """A `BrokerObserver`."""

    def __init__(self, *, wants_details: bool = True) -> None:
        self.wants_details = wants_details
        self.decisions: list[Decision] = []
        self.fetches: list[tuple[object, ...]] = []

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        self.fetches.append(("parked", replica_id, byte_count, min_bytes, max_wait_ms))

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        self.fetches.append(("reads later", read_count, max_wait_ms))

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        self.fetches.append(("completed", replica_id, byte_count, why))

    def decided(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def of(self, kind: type) -> list[Decision]:
        """The decisions of a kind."""
        return [decision for decision in self.decisions if isinstance(decision, kind)]
