"""A system that is compared: brokers with their controller, in a separate directory."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from kraftlog.bench.broker.topics import Topics


class System(ABC):
    """Brokers that run, or have been ended."""

    label: str
    """The name of the system, with its version if it is not this project."""
    topics: Topics
    broker_ids: Sequence[int]
    unflushed: ClassVar[Mapping[str, str]]
    """The configs of a topic whose records are acknowledged before they are flushed."""
    flushed: ClassVar[Mapping[str, str]]
    """The configs of a topic whose records are flushed before they are acknowledged."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """Where clients reach the brokers."""

    @abstractmethod
    def pid(self, broker_id: int) -> int:
        """The id of a broker's process."""

    @property
    def pids(self) -> list[int]:
        """The process ids of all brokers."""
        return [self.pid(broker_id) for broker_id in self.broker_ids]

    @abstractmethod
    def data_path(self, broker_id: int) -> Path:
        """The directory below which the directories of a broker's partitions are."""

    def log_path(self, broker_id: int) -> Path | None:
        """The file with a broker's log lines, if it has reports of its event loop (`loop.report.interval.ms`)."""
        return None

    @abstractmethod
    async def end(self, broker_id: int, number: signal.Signals) -> None:
        """Send a broker's process a signal that ends it, unless it has ended, and wait for its end."""

    @abstractmethod
    async def start(self, broker_id: int) -> None:
        """Start a broker that was ended, and wait until it serves clients. Raises ApiError."""
