"""What a broker has decided in a step, for the judges: an observer of the broker (`kraftlog.telemetry.observer`)."""

from __future__ import annotations

from typing import Final

from kraftlog.telemetry.observer import Decision, FetchEnd


class SeenDecisions:
    """Of one process. A `BrokerObserver`."""

    wants_details: Final = False

    def __init__(self) -> None:
        self._decisions: list[Decision] = []

    def fetch_parked(self, replica_id: int, byte_count: int, min_bytes: int, max_wait_ms: int) -> None:
        """Nobody judges it."""

    def fetch_reads_later(self, read_count: int, max_wait_ms: float) -> None:
        """Nobody judges it."""

    def fetch_completed(self, replica_id: int, byte_count: int, why: FetchEnd) -> None:
        """Nobody judges it."""

    def decided(self, decision: Decision) -> None:
        """Keep it until the step is judged."""
        self._decisions.append(decision)

    def take(self) -> list[Decision]:
        """Those since the last call."""
        taken, self._decisions = self._decisions, []
        return taken
