"""The committed metadata of one node in SQLite.

- One transaction applies one or several committed batches and records it: applied end offset, epoch and digest change
  with the tables, so each record takes effect exactly once, even after a crash at any time.
- One writer at a time, on any thread; readers have connections of their own and see whole transactions.
- The digest is a chain over every batch (base offset, epoch, body) and the effects of its records: two nodes that have
  applied as much of the same log have the same digest, however the batches were grouped into transactions.
- SQLite is derived data: a database that is damaged, foreign or unlike the quorum's is set aside and
  rebuilt.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
from sqlite_utils import Database

from kraftbase.errors import StorageError
from kraftbase.runtime import OnDone, Timer
from kraftbase.types import Offset
from kraftpb.v1.admin_pb2 import QueryResponse
from raft.core.types import StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.replay.deltas import MetadataDelta
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import Applied, MetadataTables, PreparedRun
from statemachine.store.query_lane import QueryLane
from statemachine.store.query_messages import Statement
from statemachine.store.scrub import CorruptDatabase, corruption_as_error, scrub
from statemachine.store.statement_lane import StatementLane
from statemachine.store.write_ahead_log import WriteAheadLog
from statemachine.tables.database import (
    DivergedDatabase,
    UnusableDatabase,
    install,
    open_database,
    open_reader,
    remove,
    set_aside,
    sync,
    translated,
)
from statemachine.tables.table import Table

READ_MAX_MS: Final = 10_000
"""How long a read of the node's own may take, unless its owner sets another limit."""

T = TypeVar("T")
logger = structlog.get_logger(__name__)


class MetadataStore:
    """The metadata database of one node. Open it with `open`."""

    def __init__(self, path: Path, cluster_id: str, database: Database, read_max_ms: int = READ_MAX_MS) -> None:
        self.path = path
        self._read_seconds_max = read_max_ms / 1000
        self.cluster_id = cluster_id
        self.has_publishers = False
        """Whether each applied run leaves a delta."""
        self._writer_lock = threading.Lock()
        self._start_using(database)
        try:
            self._queries = QueryLane("kraftlog-query", path, self._read_seconds_max)
        except BaseException:
            self._stop_using()
            raise
        self._statements = StatementLane(path, lambda: self._write_ahead_log)

    def _start_using(self, database: Database) -> None:
        with ExitStack() as opened:
            opened.callback(database.conn.close)
            self._tables = MetadataTables(database.conn, name=str(self.path))
            self._reader = opened.enter_context(closing(open_reader(self.path)))
            self._write_ahead_log = WriteAheadLog(self.path)
            opened.pop_all()

    def _stop_using(self) -> None:
        self._reader.close()
        self._tables.connection.close()
        self._write_ahead_log.close()

    @classmethod
    def open(
        cls,
        path: Path,
        cluster_id: str,
        *,
        forget_snapshots: Callable[[], None] = lambda: None,
        read_max_ms: int = READ_MAX_MS,
    ) -> MetadataStore:
        """Open the store at `path`, which is created if it is missing.

        A database that cannot be used is set aside as `<name>.damaged`, and snapshot and log fill a new one. If it
        differed from the quorum's, `forget_snapshots` is called first: the snapshots were taken of it. A read that
        takes longer than `read_max_ms` is ended. Raises DirectoryError if it holds another cluster's metadata,
        StorageError if the file cannot be opened or made.
        """
        remove(_new_path(path))  # a crash has left it half-filled
        try:
            database = open_database(path, cluster_id)
        except UnusableDatabase as error:
            if isinstance(error, DivergedDatabase):
                forget_snapshots()
            cls._set_aside(path, str(error))
            database = open_database(path, cluster_id)
        store = cls(path, cluster_id, database, read_max_ms)
        try:
            store._start_over_at_open()
        except BaseException:
            store.close()
            raise
        return store

    @staticmethod
    def _set_aside(path: Path, reason: str) -> None:
        target = set_aside(path)
        logger.warning(
            "metadata database set aside; it is rebuilt from snapshot and log", reason=reason, moved_to=str(target)
        )

    def close(self) -> None:
        """End statements, wait for a running query, then close every connection."""
        self._statements.shut_down()
        self._queries.shut_down()
        self._close_connections()

    def _close_connections(self) -> None:
        self._queries.close_connection()
        self._stop_using()

    def _open_again(self, database: Database) -> None:
        self._start_using(database)
        self._queries.reopen()

    # --- what is applied ----------------------------------------------------------------------------------------------

    @property
    def applied(self) -> Applied:
        """How much of the log was applied as of the last transaction."""
        return self._tables.applied

    @property
    def applied_bytes(self) -> int:
        """The size of the bodies of all batches applied since the store was opened."""
        return self._tables.applied_bytes

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record: where to register the state machine."""
        return self._tables.applied.end_offset

    def changed_at(self, table: Table[Any]) -> Offset:
        """The end of the last transaction that may have changed `table`: while it stays the same, so does the table."""
        return self._tables.changed_at(table)

    @property
    def has_open_transaction(self) -> bool:
        """Whether committed batches wait for the end of their metadata transaction."""
        return self._tables.has_open_transaction

    @property
    def waiting_bytes(self) -> int:
        """The size of those batches."""
        return self._tables.waiting_bytes

    @property
    def state_digest(self) -> StateDigest | None:
        """The digest of the state at the last offset where nodes compare it, None before the first."""
        return self._tables.state_digest

    def take_state_digests(self) -> list[StateDigest]:
        """The digests recorded since the last call, in order."""
        return self._tables.take_state_digests()

    def take_deltas(self) -> list[MetadataDelta]:
        """The changes of the runs applied since the last call while it `has_publishers`; none is empty."""
        return self._tables.take_deltas()

    def mark_diverged(self, reason: str) -> None:
        """Mark the database, for `reason`, so that the next opening sets it aside. It fsyncs: for a thread."""
        with self._writer_lock:
            self._tables.mark_diverged(reason)

    def find_corruption(self) -> str | None:
        """Scrub the database: return what the sums lack. For a thread: see `statemachine.store.scrub`."""
        try:
            with corruption_as_error("its file"), closing(open_reader(self.path)) as connection:
                scrub(connection)
        except CorruptDatabase as error:
            return str(error)
        except StorageError as error:
            logger.error("the metadata database cannot be read", reason=str(error))
        return None

    def complete_row_sums(self, missing: Sequence[int]) -> None:
        """Complete the sums of rows by what a scrub found missing: see `MetadataTables.complete_row_sums`."""
        with self._writer_lock:
            self._tables.complete_row_sums(missing)

    def load(self, reader: SnapshotReader) -> None:
        """Create a new database from a snapshot, for `use_loaded`. For a thread: 10 microseconds a row.

        The store continues with the old database. Raises CorruptSnapshot, StoreUnavailable or StorageError, OutOfSpace
        for lack of room; then the new one is removed.
        """
        new_path = _new_path(self.path)
        remove(new_path)
        try:
            with closing(open_database(new_path, self.cluster_id).conn) as connection:
                connection.execute("PRAGMA journal_mode = MEMORY")  # half of it is useless after a crash
                connection.execute("PRAGMA synchronous = OFF")
                load_image(reader, MetadataTables(connection, name=str(new_path)))
            sync(new_path)
        except BaseException as error:
            remove(new_path)
            if isinstance(error, sqlite3.Error):
                raise translated(new_path, error) from None
            raise

    def use_loaded(self, on_done: OnDone, *, unless: Callable[[], bool] = lambda: False) -> Timer:
        """Replace the old database by the one that `load` has created, and continue with it.

        Waits for running queries; queries that arrive during the wait are delayed. Nothing is done if `unless` is true
        after the wait. A crash leaves the old database or the new one. Cancel the returned timer to stop waiting: then
        nothing is done, and `on_done` gets CancelledError.
        """

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                on_done(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                on_done(error)

        using = asyncio.get_running_loop().create_task(self._use_loaded(unless, partial(on_done, None)))
        using.add_done_callback(ended)
        return using

    async def _use_loaded(self, unless: Callable[[], bool], on_used: Callable[[], None]) -> None:
        async with self._queries.held(), self._statements.held():
            if not unless():
                # SQLite removes a database's write-ahead log by its name when the last connection is closed: all
                # connections to the old database are closed before the new one has that name.
                self._close_connections()
                install(_new_path(self.path), self.path)
                self._open_again(open_database(self.path, self.cluster_id, is_known_sound=True))
        # Do this in the same turn of the loop: until the publishers are notified, they would read by a closed
        # connection.
        on_used()

    def apply(self, batches: Iterable[CommittedBatch]) -> None:
        """Apply committed batches, in order, in one transaction: see `MetadataTables.apply`. One thread at a time."""
        with self._writer_lock:
            self._tables.apply(batches, note_delta=self.has_publishers)

    def prepare(
        self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None, rows_max: int | None = None
    ) -> PreparedRun | None:
        """The first half of `apply`; None if it would take too long: see `MetadataTables.prepare`."""
        with self._writer_lock:
            return self._tables.prepare(batches, removals_max=removals_max, rows_max=rows_max)

    def commit(self, prepared: PreparedRun) -> None:
        """The second half of `apply`, for the last prepared run: see `MetadataTables.commit`."""
        with self._writer_lock:
            self._tables.commit(prepared, note_delta=self.has_publishers)

    # --- the write-ahead log ------------------------------------------------------------------------------------------

    @property
    def write_ahead_log(self) -> WriteAheadLog:
        """The log of the current database: another one after `use_loaded`."""
        return self._write_ahead_log

    def _start_over_at_open(self) -> None:
        """Remove the write-ahead log that a killed process has left."""
        try:
            is_done = self._write_ahead_log.start_over()
        except sqlite3.Error as error:
            logger.warning("could not remove the write-ahead log of the metadata database", reason=str(error))
        else:
            if not is_done:
                logger.warning("a reader holds the write-ahead log of the metadata database", path=str(self.path))

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection for short reads on the event loop's thread."""
        return self._reader

    async def query(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on a consistent state, in a thread of its own, where it may take long.

        Raises ApiError: THROTTLING_QUOTA_EXCEEDED if too many queries wait, REQUEST_TIMED_OUT if it takes longer
        than a read may.
        """
        return await self._queries.query(function)

    async def run_statement(self, sql: str, timeout_seconds: float) -> list[QueryResponse]:
        """The answer to a client's SQL statement, in pieces; one after the other, each in its own process.

        It ends when this is cancelled or the store is closed. Raises ApiError: see `QueryProcess`, and
        THROTTLING_QUOTA_EXCEEDED if too many wait, or another reader has let the write-ahead log grow.
        """
        statement = Statement(sql, min(timeout_seconds, self._read_seconds_max))
        return await self._statements.run_statement(statement)


def _new_path(path: Path) -> Path:
    return path.with_name(path.name + ".new")
