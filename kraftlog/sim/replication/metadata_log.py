"""The log of the controller, which no fault of this world reaches, and the tables that it decides by.

It is all that the production controller needs of a node: `kraftlog.controller.metadata_log.MetadataLog`, and of the
state machine `statemachine.apply.applied`. What is scheduled is committed after a moment, and applied at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from random import Random
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import InvariantViolation
from kraftbase.types import DirectoryId, Epoch, NodeId, Offset
from kraftlog.sim.engine.tables_in_memory import empty_image, tables_in_memory
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from raft.core.types import LeaderAndEpoch, ReplicaKey
from raft.listener import CommittedBatch
from raft.shell.appends import OnSettled
from raft.storage.batch import encode_batch
from statemachine.apply.applied import Subscriber
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.table import Table

CLUSTER_ID: Final = "simulatedReplicationAA"
CONTROLLER_ID: Final = NodeId(1_000)
EPOCH: Final = Epoch(1)
COMMIT_US: Final = (300, 6 * MICROSECONDS_PER_MS)

OnCommitted = Callable[[list[MetadataDelta]], None]


class MetadataLogAndTables:
    """See the module."""

    def __init__(self, event_queue: EventQueue, random: Random) -> None:
        self._event_queue = event_queue
        self._random = random
        self._prepared: list[tuple[Offset, Offset, bytes, OnSettled]] = []
        self._is_scheduled = False
        self._subscribers: list[Subscriber] = []
        self._end_offset = Offset(0)
        self.tables = empty_tables()
        self.batches: list[CommittedBatch] = []
        """Everything that is committed, in order."""
        self.on_committed: OnCommitted = lambda deltas: None
        self.cluster_id = CLUSTER_ID
        self.node_key = ReplicaKey(CONTROLLER_ID, DirectoryId(int=7))
        self.voter_ids = frozenset({CONTROLLER_ID})
        self.leader_and_epoch = LeaderAndEpoch(CONTROLLER_ID, EPOCH)
        self.leader_endpoint: Endpoint | None = None

    # --- the log ------------------------------------------------------------------------------------------------------

    @property
    def next_append_offset(self) -> Offset:
        """The end of what is prepared."""
        return self._prepared[-1][1] if self._prepared else self._end_offset

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Never refused."""
        base_offset = self.next_append_offset
        self._prepared.append((base_offset, Offset(base_offset + record_count), body, on_settled))
        return base_offset

    def schedule_appends(self) -> None:
        """Commit everything that is prepared by then, in a moment."""
        if self._prepared and not self._is_scheduled:
            self._is_scheduled = True
            self._event_queue.after(self._random.randint(*COMMIT_US), self._commit)

    def resign(self, epoch: Epoch) -> None:
        """Nobody else could lead: that the controller wants to is a bug."""
        raise InvariantViolation("the controller resigns")

    def fatal(self, error: BaseException) -> None:
        """A bug of the controller."""
        raise error

    def _commit(self) -> None:
        self._is_scheduled = False
        committed, self._prepared = self._prepared, []
        batches = [
            CommittedBatch(encode_batch(base_offset, EPOCH, body, end_offset - base_offset, 1))
            for base_offset, end_offset, body, _ in committed
        ]
        for _, end_offset, _, on_settled in committed:
            on_settled(None)
            self._end_offset = end_offset
        for batch in batches:  # each by itself: of two changes of a partition both are seen
            self.tables.apply([batch], note_delta=True)
            self.batches.append(batch)
            self.on_committed(self.tables.take_deltas())
        for subscriber in self._subscribers:
            subscriber.applied(self.applied_end_offset)

    # --- the tables and the state machine -----------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """The tables."""
        return self.tables.connection

    @property
    def applied_end_offset(self) -> Offset:
        """Everything that is committed."""
        return Offset(self.tables.applied.end_offset)

    def changed_at(self, table: Table[Any]) -> Offset:
        """Of the tables."""
        return self.tables.changed_at(table)

    @property
    def unavailable_reason(self) -> str | None:
        """Always available."""
        return None

    @property
    def has_open_transaction(self) -> bool:
        """Of the tables."""
        return self.tables.has_open_transaction

    def refuse_if_fenced(self) -> None:
        """Never fenced."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify it from now on."""
        self._subscribers.append(subscriber)

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Nothing comes between commit and application here."""

    def begin(self) -> None:
        """The one node leads."""
        for subscriber in self._subscribers:
            subscriber.leader_changed(self.leader_and_epoch)


def empty_tables() -> MetadataTables:
    """The tables of a state machine that has applied nothing."""
    return tables_in_memory(empty_image(CLUSTER_ID))
