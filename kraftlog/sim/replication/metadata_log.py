"""The controller's log, which no fault of this world reaches, and the tables by which the controller decides.

It is all that the production controller needs of a node: `kraftlog.controller.metadata_log.MetadataLog`, and of the
state machine `statemachine.apply.applied`. Scheduled appends are committed after a moment and applied at once.
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
    """The log and the tables of the controller."""

    def __init__(self, event_queue: EventQueue, random: Random) -> None:
        self._event_queue = event_queue
        self._random = random
        self._prepared: list[tuple[Offset, Offset, bytes, OnSettled]] = []
        self._is_scheduled = False
        self._subscribers: list[Subscriber] = []
        self._end_offset = Offset(0)
        self.tables = empty_tables()
        self.batches: list[CommittedBatch] = []
        """Every committed batch, in order."""
        self.on_committed: OnCommitted = lambda deltas: None
        self.cluster_id = CLUSTER_ID
        self.node_key = ReplicaKey(CONTROLLER_ID, DirectoryId(int=7))
        self.voter_ids = frozenset({CONTROLLER_ID})
        self.leader_and_epoch = LeaderAndEpoch(CONTROLLER_ID, EPOCH)
        self.leader_endpoint: Endpoint | None = None

    # --- the log ------------------------------------------------------------------------------------------------------

    @property
    def next_append_offset(self) -> Offset:
        """The end offset of the prepared appends."""
        return self._prepared[-1][1] if self._prepared else self._end_offset

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Prepare an append, which is never refused."""
        base_offset = self.next_append_offset
        self._prepared.append((base_offset, Offset(base_offset + record_count), body, on_settled))
        return base_offset

    def schedule_appends(self) -> None:
        """Commit, in a moment, everything that is prepared by then."""
        if self._prepared and not self._is_scheduled:
            self._is_scheduled = True
            self._event_queue.after(self._random.randint(*COMMIT_US), self._commit)

    def resign(self, epoch: Epoch) -> None:
        """Report a bug: no other node could lead."""
        raise InvariantViolation("the controller resigns")

    def fatal(self, error: BaseException) -> None:
        """Raise a bug of the controller."""
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
        for batch in batches:  # each by itself, so that both of two changes of a partition are seen
            self.tables.apply([batch], note_delta=True)
            self.batches.append(batch)
            self.on_committed(self.tables.take_deltas())
        for subscriber in self._subscribers:
            subscriber.applied(self.applied_end_offset)

    # --- the tables and the state machine -----------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """The connection to the tables."""
        return self.tables.connection

    @property
    def applied_end_offset(self) -> Offset:
        """The end offset of everything committed."""
        return Offset(self.tables.applied.end_offset)

    def changed_at(self, table: Table[Any]) -> Offset:
        """Return the offset at which `table` last changed."""
        return self.tables.changed_at(table)

    @property
    def unavailable_reason(self) -> str | None:
        """None: the tables are always available."""
        return None

    @property
    def has_open_transaction(self) -> bool:
        """Whether the tables have an open metadata transaction."""
        return self.tables.has_open_transaction

    def refuse_if_fenced(self) -> None:
        """Do nothing: the state machine is never fenced."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` from now on."""
        self._subscribers.append(subscriber)

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Ignore the callback: records are applied as soon as they are committed."""

    def begin(self) -> None:
        """Let the only node become leader."""
        for subscriber in self._subscribers:
            subscriber.leader_changed(self.leader_and_epoch)


def empty_tables() -> MetadataTables:
    """Return the tables of a state machine that has applied nothing."""
    return tables_in_memory(empty_image(CLUSTER_ID))
