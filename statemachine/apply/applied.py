"""The port to the applied metadata of this node: what the controller needs of the store and of the state machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Protocol

from kraftbase.types import Offset
from raft.core.types import LeaderAndEpoch
from statemachine.tables.table import Table


class Subscriber(Protocol):
    """A listener on the state machine's progress. Its methods must be quick."""

    def applied(self, end_offset: Offset) -> None:
        """Everything below `end_offset` is in the store now."""
        ...

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """The leader, as this node's listener learned of it (LI-05)."""
        ...

    def shut_down(self) -> None:
        """The last call: no others follow."""
        ...


class CommittedMetadata(Protocol):
    """The committed metadata in SQLite. `statemachine.store.store.MetadataStore` is one."""

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection for short reads; another connection after a snapshot was loaded."""
        ...

    @property
    def applied_end_offset(self) -> Offset:
        """The end of the last transaction, or of the snapshot loaded since: while this stays, so do all tables."""
        ...

    def changed_at(self, table: Table[Any]) -> Offset:
        """The end of the last transaction that may have changed `table`: while it stays the same, so does the table."""
        ...


class StateMachine(Protocol):
    """The part that applies the committed log. `statemachine.apply.machine.MetadataMachine` is one."""

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record that all subscribers know of."""
        ...

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied, None while they can."""
        ...

    @property
    def has_open_transaction(self) -> bool:
        """Whether committed batches wait for the end of their metadata transaction."""
        ...

    def refuse_if_fenced(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the store's content must not be trusted."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` from now on."""
        ...

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Call `on_committed` before applying committed records, where that is next; it returns whether it answered."""
        ...
