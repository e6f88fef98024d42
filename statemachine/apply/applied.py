"""The port to what is applied on this node: what the controller needs of the store and of the state machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Protocol

from raft.core.types import LeaderAndEpoch, Offset
from statemachine.tables.table import Table


class Subscriber(Protocol):
    """What is told how the state machine moves on. The calls must be quick."""

    def applied(self, end_offset: Offset) -> None:
        """Everything below `end_offset` is in the store now."""
        ...

    def leader_changed(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """The leader that everybody up to now applied was told of (LI-05)."""
        ...

    def shut_down(self) -> None:
        """Nothing more will come."""
        ...


class CommittedMetadata(Protocol):
    """The committed metadata in SQLite. `statemachine.store.store.MetadataStore` is one."""

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection for short reads; another one after a snapshot was loaded."""
        ...

    def changed_at(self, table: Table[Any]) -> Offset:
        """How far the last transaction went that may have changed `table`: while this stays, so does the table."""
        ...


class StateMachine(Protocol):
    """What applies the committed log. `statemachine.apply.machine.MetadataMachine` is one."""

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record that everybody was told of."""
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
        """Raise ApiError(KAFKA_STORAGE_ERROR) if what the store says must not be believed."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber` from now on."""
        ...

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Tell `on_committed` what is committed before it is applied, where that is next; returns if it answered."""
        ...
