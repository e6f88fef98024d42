"""The committed metadata of one node in SQLite.

- One transaction applies one or several committed batches and says so: applied end offset, epoch and digest change with
  the tables, so each record takes effect exactly once, whatever dies when.
- One writer at a time, on whichever thread; readers have connections of their own and see whole transactions.
- The digest is a chain over every batch (base offset, epoch, body): two nodes that have applied as much of the same log
  have the same one, however the batches were grouped into transactions.
- SQLite is derived data: a database that is damaged, foreign or ahead of its log is set aside and made again.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, TypeVar

import structlog
from google.protobuf.message import DecodeError
from sqlite_utils import Database

from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, RegisterBrokerRecord
from raft.core.epochs import EpochCache
from raft.core.errors import ErrorCode, KraftlogError, ProtocolError
from raft.core.types import Epoch, Offset
from raft.listener import CommittedBatch
from statemachine.changes import Changes, ReplayError
from statemachine.ids import id_to_bytes, id_to_text
from statemachine.resources import ResourceType
from statemachine.schema import UnusableDatabase, open_database, open_reader, set_aside

DIGEST_BYTES: Final = 16
_DIGESTED_HEADER: Final = Struct(">qi")

CHECKPOINT_TRANSACTIONS: Final = 1_000
"""A checkpoint is due after this many transactions, a KiB of records counting as one more."""

QUERIES_MAX: Final = 256
"""How many queries may wait for their turn."""

_RETRYABLE: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)

T = TypeVar("T")
logger = structlog.get_logger(__name__)


class StoreUnavailable(KraftlogError):
    """The database cannot be written now: no room, or somebody else has locked it. Nothing changed; try again."""


class Applied(NamedTuple):
    """How much of the log the tables hold."""

    end_offset: Offset
    epoch: Epoch
    """Of the last applied batch; 0 before the first."""
    digest: str
    """Over all batches applied so far, 32 hexadecimal digits."""


class MetadataStore:
    """The metadata database of one node. Open it with `open`."""

    def __init__(self, path: Path, cluster_id: str, database: Database) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self._writer_lock = threading.Lock()
        self._query_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-query")
        self._queries_waiting = 0
        self._start_using(database)

    def _start_using(self, database: Database) -> None:
        self._database = database
        self._writer: sqlite3.Connection = database.conn
        self._reader = open_reader(self.path)
        self._query_connection = open_reader(self.path)
        self._checkpoint_due = 0
        row = self._writer.execute("SELECT end_offset, epoch, digest FROM applied").fetchone()
        self._applied = Applied(Offset(row[0]), Epoch(row[1]), row[2])

    @classmethod
    def open(cls, path: Path, cluster_id: str) -> MetadataStore:
        """The store at `path`, made if there is none.

        One that cannot be used is set aside as `<name>.damaged`, and the log fills a new one. Raises DirectoryError if
        it holds another cluster's metadata, StorageError if the file cannot be had.
        """
        try:
            return cls(path, cluster_id, open_database(path, cluster_id))
        except UnusableDatabase as error:
            cls._set_aside(path, str(error))
            return cls(path, cluster_id, open_database(path, cluster_id))

    @staticmethod
    def _set_aside(path: Path, reason: str) -> None:
        target = set_aside(path)
        logger.warning(
            "metadata database set aside; it is made again from the log", reason=reason, moved_to=str(target)
        )

    def close(self) -> None:
        """Wait for a running query, then close every connection."""
        self._query_thread.shutdown()
        self._close_connections()

    def _close_connections(self) -> None:
        for connection in (self._reader, self._query_connection, self._writer):
            connection.close()

    # --- what is applied ----------------------------------------------------------------------------------------------

    @property
    def applied(self) -> Applied:
        """How much of the log the last transaction left applied."""
        return self._applied

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record: where to register the state machine."""
        return self._applied.end_offset

    def rebuild_if_ahead(self, log_end_offset: Offset, epochs: EpochCache | None = None) -> bool:
        """Set the database aside and begin a new one if it holds what the log does not; whether it did.

        That happens when a log was replaced by an older copy; with the log's `epochs` it is noticed even when the log
        has grown past that offset since. Call it before the state machine is registered.
        """
        if self._is_in(log_end_offset, epochs):
            return False
        self._close_connections()
        self._set_aside(
            self.path,
            f"it holds offsets below {self._applied.end_offset}, the last of epoch {self._applied.epoch},"
            f" which the log, that ends at {log_end_offset}, does not have",
        )
        self._start_using(open_database(self.path, self.cluster_id))
        return True

    def _is_in(self, log_end_offset: Offset, epochs: EpochCache | None) -> bool:
        end_offset, epoch, _ = self._applied
        if end_offset == 0 or epochs is None:
            return end_offset <= log_end_offset
        in_log = epochs.end_offset_for_epoch(epoch, log_end_offset)
        return in_log.epoch == epoch and end_offset <= in_log.offset

    def apply(self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None) -> bool:
        """Apply committed batches, in order, in one transaction; those that are applied already are passed over.

        Raises ReplayError if they do not follow on what is applied or cannot be applied: then the node must stop
        (CT-02, CT-18). Raises StoreUnavailable if there is no room or the database is locked. Nothing changed then.
        Costs 50 to 100 microseconds for one record, 3 to 10 for each of many, and 0.5 for each partition that goes with
        its topic; with `removals_max` it returns False and does nothing if more topics than that would go.
        """
        with self._writer_lock:
            before = self._applied
            changes = Changes(self)
            after, size_bytes = self._replay(batches, before, changes)
            if after == before:
                return True
            if removals_max is not None and len(changes.removed_topics) > removals_max:
                return False
            try:
                with self._database.atomic():
                    _flush(self._writer, changes)
                    self._advance(before, after)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF in _RETRYABLE:
                    raise StoreUnavailable(f"cannot write to {self.path}: {error}") from None
                raise
            except ValueError as error:
                raise ReplayError(f"a committed record below offset {after.end_offset} is malformed: {error}") from None
            self._applied = after
            self._checkpoint_due += 1 + size_bytes // 1024
            return True

    def _replay(self, batches: Iterable[CommittedBatch], applied: Applied, changes: Changes) -> tuple[Applied, int]:
        end_offset, epoch, digest = applied.end_offset, applied.epoch, bytes.fromhex(applied.digest)
        size_bytes = 0
        for batch in batches:
            if batch.end_offset <= end_offset:
                _check_applied_before(batch, end_offset, epoch)
                continue
            if batch.base_offset != end_offset or batch.epoch < epoch:
                raise ReplayError(
                    f"the batch at offset {batch.base_offset}, epoch {batch.epoch} does not follow on what is applied:"
                    f" offsets below {end_offset}, epoch {epoch}; if it is not of this log, stop the node and move"
                    " the database away to have it made again"
                )
            body = batch.body
            header = _DIGESTED_HEADER.pack(batch.base_offset, batch.epoch)
            digest = blake2b(digest + header + body, digest_size=DIGEST_BYTES).digest()
            if not batch.is_control:
                changes.replay(_records(batch, body), batch.base_offset)
            end_offset, epoch = batch.end_offset, batch.epoch
            size_bytes += len(body)
        return Applied(end_offset, epoch, digest.hex()), size_bytes

    def _advance(self, before: Applied, after: Applied) -> None:
        moved = self._writer.execute(
            "UPDATE applied SET end_offset = ?, epoch = ?, digest = ? WHERE end_offset = ? AND digest = ?",
            (*after, before.end_offset, before.digest),
        )
        if moved.rowcount != 1:
            raise ReplayError(f"somebody else has written to {self.path}; only this node may")

    def topic_name(self, topic_id: bytes) -> str | None:
        """The stored name of a topic, for `Changes`."""
        found = self._writer.execute("SELECT name FROM topics WHERE topic_id = ?", (id_to_text(topic_id),)).fetchone()
        return None if found is None else found[0]

    def topics_like(self, topic_id: bytes, name: str) -> Sequence[bytes]:
        """The ids of stored topics with that id or that name, for `Changes`."""
        rows = self._writer.execute(
            "SELECT topic_id FROM topics WHERE topic_id = ? OR name = ?", (id_to_text(topic_id), name)
        )
        return [id_to_bytes(text) for (text,) in rows]

    # --- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough was written that the write-ahead log should be moved into the database."""
        return self._checkpoint_due >= CHECKPOINT_TRANSACTIONS

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database. It fsyncs: for a thread; the writer may go on meanwhile."""
        self._checkpoint_due = 0
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection for short reads on the event loop's thread."""
        return self._reader

    async def query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on a consistent state, in a thread of its own, where it may take its time.

        Raises ProtocolError(THROTTLING_QUOTA_EXCEEDED) if too many queries wait.
        """
        if self._queries_waiting >= QUERIES_MAX:
            raise ProtocolError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{QUERIES_MAX} queries are waiting; try again later"
            )
        self._queries_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._query_thread, self._query, function)
        finally:
            self._queries_waiting -= 1

    def _query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._query_connection.execute("BEGIN")
        try:
            return function(self._query_connection)
        finally:
            self._query_connection.execute("ROLLBACK")


def _check_applied_before(batch: CommittedBatch, end_offset: Offset, epoch: Epoch) -> None:
    if batch.epoch > epoch or (batch.end_offset == end_offset and batch.epoch != epoch):
        raise ReplayError(
            f"the batch at offset {batch.base_offset} has epoch {batch.epoch}, what was applied there epoch {epoch}:"
            " the database is not of this log; stop the node and move the database away to have it made again"
        )


def _records(batch: CommittedBatch, body: bytes) -> Sequence[MetadataRecord]:
    try:
        records = MetadataBatch.FromString(body).records
    except DecodeError as error:
        raise ReplayError(f"the committed batch at offset {batch.base_offset} is no MetadataBatch: {error}") from None
    if len(records) != batch.end_offset - batch.base_offset:
        raise ReplayError(
            f"the committed batch at offset {batch.base_offset} holds {len(records)} records,"
            f" its header says {batch.end_offset - batch.base_offset}"
        )
    return records


def _flush(connection: sqlite3.Connection, changes: Changes) -> None:
    """Write the net changes: removals first, then what others depend on first."""
    removed = [(id_to_text(topic_id),) for topic_id in changes.removed_topics]
    if removed:
        connection.executemany("DELETE FROM partitions WHERE topic_id = ?", removed)
        connection.executemany("DELETE FROM topics WHERE topic_id = ?", removed)
    if changes.cleared_topics:
        connection.executemany(
            "DELETE FROM configs WHERE resource_type = ? AND resource_name = ?",
            [(int(ResourceType.TOPIC), name) for name in changes.cleared_topics],
        )
    if changes.topics:
        connection.executemany(
            "INSERT INTO topics VALUES (?, ?)",
            [(id_to_text(topic_id), name) for topic_id, name in changes.topics.items()],
        )
    if changes.brokers:
        connection.executemany(
            "INSERT OR REPLACE INTO brokers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(_broker_row, changes.brokers.values())
        )
    if changes.partitions:
        connection.executemany(
            "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _partition_rows(changes)
        )
    if changes.configs:
        values = [
            (*resource, name, value) for resource, named in changes.configs.items() for name, value in named.items()
        ]
        connection.executemany(
            "INSERT OR REPLACE INTO configs VALUES (?, ?, ?, ?)", [row for row in values if row[3] is not None]
        )
        connection.executemany(
            "DELETE FROM configs WHERE resource_type = ? AND resource_name = ? AND name = ?",
            [row[:3] for row in values if row[3] is None],
        )


def _partition_rows(changes: Changes) -> Iterator[tuple[object, ...]]:
    for topic_id, partitions in changes.partitions.items():
        text = id_to_text(topic_id)
        for partition_id, record in partitions.items():
            yield (
                text,
                partition_id,
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                record.leader_recovery_state,
                _numbers_as_json(tuple(record.replicas)),
                _numbers_as_json(tuple(record.isr)),
                _numbers_as_json(tuple(record.removing_replicas)),
                _numbers_as_json(tuple(record.adding_replicas)),
                _ids_as_json(tuple(record.directories)),
            )


def _broker_row(record: RegisterBrokerRecord) -> tuple[object, ...]:
    listeners = [
        {"name": at.name, "host": at.host, "port": at.port, "security_protocol": at.security_protocol}
        for at in record.end_points
    ]
    return (
        record.broker_id,
        record.broker_epoch,
        id_to_text(record.incarnation_id),
        record.rack if record.HasField("rack") else None,
        record.fenced,
        record.in_controlled_shutdown,
        json.dumps(listeners),
        _ids_as_json(tuple(record.log_dirs)),
    )


# The same lists come again and again.
@lru_cache(maxsize=4_096)
def _numbers_as_json(numbers: tuple[int, ...]) -> str:
    return json.dumps(numbers)


@lru_cache(maxsize=4_096)
def _ids_as_json(ids: tuple[bytes, ...]) -> str:
    return json.dumps([id_to_text(value) for value in ids])
