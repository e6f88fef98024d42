"""The partitions that a fetcher must prepare before its next request, and the time at which it does.

A partition is touched when its state has changed. The fetcher prepares touched partitions in the event loop's next
turn, once for all that were touched by then. While it applies a response nothing is scheduled, because it prepares them
at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from types import TracebackType
from typing import Final

from kraftbase.runtime import Runtime
from kraftlog.replicas.replication.fetch_session import PartitionKey


class Look(Enum):
    """When the fetcher prepares the touched partitions."""

    NOT_DUE = auto()
    """Not before a partition is touched."""
    SCHEDULED = auto()
    """In the event loop's next turn."""
    AT_HAND = auto()
    """Now, or at the end of the present work."""


NOT_DUE: Final = Look.NOT_DUE
"""Access to a module constant takes a third of the time of access to an enumeration's member."""


class TouchedPartitions:
    """The touched partitions of one fetcher. `with touched:` encloses work that ends with their preparation."""

    def __init__(self, runtime: Runtime, look: Callable[[], None]) -> None:
        self.look = Look.NOT_DUE
        self._runtime = runtime
        self._on_due = look
        self.keys: dict[PartitionKey, None] = {}
        """The touched partitions, in order."""
        self._before = Look.NOT_DUE

    def add(self, key: PartitionKey) -> None:
        """Touch a partition, and schedule its preparation unless that is due already."""
        self.keys[key] = None
        if self.look is Look.NOT_DUE:
            self.look = Look.SCHEDULED
            self._runtime.call_soon(self._on_due)

    def add_unscheduled(self, key: PartitionKey) -> None:
        """Touch a partition; the caller ensures that it will be prepared."""
        self.keys[key] = None

    def begin_look(self) -> None:
        """Begin to prepare partitions; until `end_look` nothing is scheduled for newly touched ones."""
        self.look = Look.AT_HAND

    def take_all(self) -> Iterable[PartitionKey]:
        """Return the touched partitions, in order, and clear them."""
        keys, self.keys = self.keys, {}
        return keys

    def end_look(self) -> None:
        """End the preparation."""
        self.look = Look.NOT_DUE

    def __enter__(self) -> None:
        self._before, self.look = self.look, Look.AT_HAND

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.look = self._before
