"""What all loads have in common."""

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
"""A load in which nothing happens for this long has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(ABC):
    """What a client is to do with one topic."""

    bootstrap_servers: str
    topic: str
    broker_pids: Sequence[int]
    """The processes whose processor time is counted."""
    record_bytes: int = 1_000

    @abstractmethod
    def run(self) -> dict[str, float]:
        """Carry it out; returns the figures by their keys. Raises ApiError if anything failed."""

    @property
    def client_settings(self) -> dict[str, Any]:
        """What producers and consumers of confluent-kafka share; all else is the library's default."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, "allow.auto.create.topics": False}

    def processor_seconds(self) -> float:
        """Of all brokers, since they began."""
        return sum(map(processor_seconds, self.broker_pids))

    def value(self) -> bytes:
        """A record's value, which does not compress."""
        return os.urandom(self.record_bytes)


def times_ms(name: str, seconds: list[float]) -> dict[str, float]:
    """The median and the 99th percentile, in milliseconds. Raises ApiError if there are none."""
    if not seconds:
        raise failed(f"no time of {name!r} was measured")
    ordered = sorted(seconds)
    return {f"{name}_ms_p{percent}": round(1_000 * percentile(ordered, percent), 3) for percent in (50, 99)}


def failed(reason: str) -> ApiError:
    """The error of a load that did not come to its end."""
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
