"""What is compared: one broker with its controller, in a directory of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from kraftlog.bench.broker.topics import Topics


class System(ABC):
    """A broker that runs, or was killed."""

    label: str
    """What it is called, with its version if that is not this one's."""
    topics: Topics
    unflushed: Mapping[str, str]
    """The configs of a topic whose records are acknowledged before they are flushed."""
    flushed: Mapping[str, str]
    """The configs of a topic whose records are flushed before they are acknowledged."""

    @property
    @abstractmethod
    def bootstrap_server(self) -> str:
        """Where clients reach it."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The id of the broker's process."""

    @property
    @abstractmethod
    def data_path(self) -> Path:
        """The directory below which the partitions' directories are."""

    @abstractmethod
    async def kill(self) -> None:
        """End the broker with SIGKILL."""

    @abstractmethod
    async def start(self) -> None:
        """Start the broker that was killed, and wait until it serves clients. Raises ApiError."""
