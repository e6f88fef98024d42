"""The partitions that a fetcher looks at before its next request, and when it does.

A partition is touched when something of it has changed. The fetcher looks in the event loop's next turn, once for all
that were touched by then. While it applies an answer nothing is scheduled, because it looks when it has applied all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from types import TracebackType

from kraftbase.runtime import Runtime
from kraftlog.replicas.replication.fetch_session import PartitionKey


class Look(Enum):
    """When the fetcher looks at what is touched."""

    NOT_DUE = auto()
    """When something is touched."""
    SCHEDULED = auto()
    """In the event loop's next turn."""
    AT_HAND = auto()
    """It looks now, or at the end of what it does now."""


class TouchedPartitions:
    """Those of one fetcher. `with touched:` surrounds what ends in a look."""

    def __init__(self, runtime: Runtime, look: Callable[[], None]) -> None:
        self.look = Look.NOT_DUE
        self._runtime = runtime
        self._on_due = look
        self.keys: dict[PartitionKey, None] = {}
        """Those that are touched, in their order: to be looked at only."""
        self._before = Look.NOT_DUE

    def add(self, key: PartitionKey) -> None:
        """Touch a partition, and schedule a look unless there will be one."""
        self.keys[key] = None
        if self.look is Look.NOT_DUE:
            self.look = Look.SCHEDULED
            self._runtime.call_soon(self._on_due)

    def add_unscheduled(self, key: PartitionKey) -> None:
        """Touch a partition; the caller sees to it that there is a look."""
        self.keys[key] = None

    def begin_look(self) -> None:
        """The fetcher looks now: what was scheduled is not waited for, and nothing more is scheduled."""
        self.look = Look.AT_HAND

    def take_all(self) -> Iterable[PartitionKey]:
        """Those that are touched, in their order; none of them is touched then."""
        keys, self.keys = self.keys, {}
        return keys

    def end_look(self) -> None:
        """It has looked."""
        self.look = Look.NOT_DUE

    def __enter__(self) -> None:
        self._before, self.look = self.look, Look.AT_HAND

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.look = self._before
