"""The port to the store: what a state machine needs of it. `statemachine.store.store.MetadataStore` is one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Protocol

from kraftbase.runtime import OnDone, Timer
from kraftbase.types import Offset
from raft.core.types import StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.metadata_tables import PreparedRun


class WriteAheadLogPort(Protocol):
    """What makes room in the store. The properties are for the event loop, the methods for the worker.

    `statemachine.store.write_ahead_log.WriteAheadLog` is one, and documents them.
    """

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        ...

    @property
    def is_due(self) -> bool:
        """Whether it should start over."""
        ...

    @property
    def is_large(self) -> bool:
        """Whether the next transaction should wait until it has."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether it has reached its limit."""
        ...

    def copy(self) -> None:
        """Copy it into the database while the writer continues. Raises sqlite3.Error, FlushFailed."""
        ...

    def start_over(self, wait_seconds: float = 0.0) -> bool:
        """Copy the rest and truncate it while the writer is stopped; False if a reader keeps it. Raises as `copy`."""
        ...

    def holders(self) -> str:
        """The processes that keep it."""
        ...

    def check_bound(self) -> None:
        """Raise WriteAheadLogHeld if it has reached its limit."""
        ...


class StorePort(Protocol):
    """The committed metadata of one node. Methods marked so may take long and are for the worker."""

    has_publishers: bool
    """Whether each applied run leaves a delta."""

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record."""
        ...

    @property
    def has_open_transaction(self) -> bool:
        """Whether committed batches wait for the end of their metadata transaction."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """The size of those batches."""
        ...

    @property
    def state_digest(self) -> StateDigest | None:
        """The digest of the state at the last offset where nodes compare it."""
        ...

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection for short reads on the event loop; another one after a snapshot was loaded."""
        ...

    @property
    def write_ahead_log(self) -> WriteAheadLogPort:
        """The log of the current database: another one after a snapshot was loaded."""
        ...

    def take_state_digests(self) -> list[StateDigest]:
        """The digests recorded since the last call, in order."""
        ...

    def take_deltas(self) -> list[MetadataDelta]:
        """The changes of the runs applied since the last call while it `has_publishers`."""
        ...

    def prepare(
        self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None, rows_max: int | None = None
    ) -> PreparedRun | None:
        """The first half of `apply`; None if it would take too long."""
        ...

    def commit(self, prepared: PreparedRun) -> None:
        """The second half of `apply`, for the last prepared run."""
        ...

    def apply(self, batches: Iterable[CommittedBatch]) -> None:
        """Apply batches in one transaction. For the worker. Raises ReplayError, StoreUnavailable."""
        ...

    def load(self, snapshot: SnapshotReader) -> None:
        """Create a new database from a snapshot, for `use_loaded`. For the worker.

        Raises CorruptSnapshot, StoreUnavailable, StorageError, OutOfSpace.
        """
        ...

    def use_loaded(self, on_done: OnDone, *, unless: Callable[[], bool]) -> Timer:
        """Replace the old database by the new one when no query runs; nothing is done if `unless` is true then.

        Cancel the returned timer to stop waiting: `on_done` is called then, too.
        """
        ...

    def mark_diverged(self, reason: str) -> None:
        """Let the next start set the database aside. For the worker. Raises StoreUnavailable, sqlite3.Error."""
        ...

    def find_corruption(self) -> str | None:
        """Scrub the database: return what the sums lack. For the worker."""
        ...
