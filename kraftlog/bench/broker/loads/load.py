"""The base class of all loads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.bench.figures import percentile
from kraftlog.bench.process_usage import processor_seconds

STALL_SECONDS: Final = 60.0
"""A load that makes no progress for this long has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(ABC):
    """The work of a client with one topic."""

    bootstrap_servers: str
    topic: str
    broker_pids: Sequence[int]
    """The processes whose processor time is counted."""
    record_bytes: int = 1_000

    @abstractmethod
    def run(self) -> dict[str, float]:
        """Carry out the load and return the figures by their keys. Raises ApiError if anything failed."""

    @property
    def client_settings(self) -> dict[str, Any]:
        """The settings that all producers and consumers have; all others are confluent-kafka's defaults."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "allow.auto.create.topics": False}

    def processor_seconds(self) -> float:
        """Return the processor time of all brokers since they started."""
        return sum(map(processor_seconds, self.broker_pids))

    def value(self) -> bytes:
        """Return a record's value, which cannot be compressed."""
        return os.urandom(self.record_bytes)


def times_ms(name: str, seconds: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds. Raises ApiError if there are no times."""
    if not seconds:
        raise failed(f"no time of {name!r} was measured")
    ordered = sorted(seconds)
    return {f"{name}_ms_p{percent}": round(1_000 * percentile(ordered, percent), 3) for percent in (50, 99)}


def failed(reason: str) -> ApiError:
    """Return the error of a load that did not complete."""
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
