"""The committed metadata as tables on one SQLite connection: transactions, their progress and their digest.

This module uses neither files nor threads: `statemachine.store.store` has those. The digest is a chain over every batch
(base offset, epoch, body) and what its records did. At regular offsets it is recorded as a `StateDigest`, for nodes to
compare theirs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, NamedTuple

from kraftbase.errors import KraftlogError
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.epochs import EpochCache
from raft.core.types import StateDigest
from raft.listener import CommittedBatch
from statemachine.replay.changes import Changes, TooManyRows
from statemachine.replay.deltas import MetadataDelta, delta_of
from statemachine.replay.replay import ReplayError
from statemachine.replay.transactions import MARKERS, CommittedRun, OpenTransaction, applied_together
from statemachine.tables.database import read_sums
from statemachine.tables.row_sums import RowSums
from statemachine.tables.table import Table

DIGEST_BYTES: Final = 16
_DIGESTED_HEADER: Final = Struct(">qiI")

STATE_DIGEST_INTERVAL_OFFSETS: Final = 1_000
"""How far apart the offsets are at which the digests of nodes are compared."""

_RETRYABLE: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)
_RETRYABLE_EXTENDED: Final = (sqlite3.SQLITE_IOERR_SHMSIZE,)
"""There is no room for the index of the write-ahead log."""


class StoreUnavailable(KraftlogError):
    """The database cannot be written now: no room, or another process has locked it. Nothing changed; try again."""


class Applied(NamedTuple):
    """How much of the log the tables hold."""

    end_offset: Offset
    epoch: Epoch
    """The epoch of the last applied batch; 0 before the first."""
    digest: str
    """The digest over all batches applied so far and their effects, 32 hexadecimal digits."""


class AppliedState(NamedTuple):
    """A snapshot's description of the state that it holds."""

    applied: Applied
    timestamp_ms: int
    """When the leader appended the last batch applied, milliseconds since 1970."""
    state_digest: StateDigest | None


class _Replayed(NamedTuple):
    """The result of replaying batches, besides the changes."""

    applied: Applied
    timestamp_ms: int
    size_bytes: int
    state_digests: list[StateDigest]


class PreparedRun(NamedTuple):
    """The result of replaying batches, valid as long as nothing else is written to the tables."""

    changes: Changes
    restored: AppliedState
    size_bytes: int
    state_digests: list[StateDigest]
    open_transaction: OpenTransaction | None

    @property
    def end_offset(self) -> Offset:
        """The applied end offset after it."""
        return self.restored.applied.end_offset


class MetadataTables:
    """The one writer of a metadata database. `connection` has the tables of `statemachine.tables.database`."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        name: str = "the metadata database",
        digest_interval: int = STATE_DIGEST_INTERVAL_OFFSETS,
    ) -> None:
        """`name` is what errors call the database; `digest_interval` is in offsets and the same on all nodes."""
        self.connection = connection
        self._name = name
        self.applied_bytes = 0
        """The size of the bodies of all batches applied since it was opened."""
        self._digest_interval = digest_interval
        self.cluster_id, end_offset, epoch, self._timestamp_ms, digest, compared_at, compared = connection.execute(
            "SELECT cluster_id, end_offset, epoch, timestamp_ms, digest, state_digest_end_offset, state_digest"
            " FROM applied"
        ).fetchone()
        self._row_sums = read_sums(connection)
        self._applied = Applied(Offset(end_offset), Epoch(epoch), digest)
        self._state_digest = None if compared is None else StateDigest(Offset(compared_at), bytes.fromhex(compared))
        self._new_state_digests: list[StateDigest] = []
        self._new_deltas: list[MetadataDelta] = []
        self._open_transaction: OpenTransaction | None = None
        self._opened_at = self._applied.end_offset
        self._changed_at: dict[Table[Any], Offset] = {}

    @property
    def applied(self) -> Applied:
        """How much of the log was applied as of the last transaction."""
        return self._applied

    @property
    def state_digest(self) -> StateDigest | None:
        """The last recorded digest, None before the first: at the last batch that reached or passed a multiple of the
        interval.
        """
        return self._state_digest

    def changed_at(self, table: Table[Any]) -> Offset:
        """The end of the last transaction that touched `table`, the opening of the tables and `restore` included."""
        return self._changed_at.get(table, self._opened_at)

    @property
    def has_open_transaction(self) -> bool:
        """Whether batches wait for the end of their metadata transaction, to take effect if it is not aborted."""
        return self._open_transaction is not None

    @property
    def waiting_bytes(self) -> int:
        """The size of those batches: the next run is larger by this if it ends their transaction."""
        return 0 if self._open_transaction is None else self._open_transaction.size_bytes

    def take_state_digests(self) -> list[StateDigest]:
        """The digests recorded since the last call, in order, without those that another process has recorded."""
        taken, self._new_state_digests = self._new_state_digests, []
        return taken

    def take_deltas(self) -> list[MetadataDelta]:
        """The deltas that `apply` has noted since the last call, in order; none is empty."""
        taken, self._new_deltas = self._new_deltas, []
        return taken

    def mark_diverged(self, reason: str) -> None:
        """Mark the database, for `reason`, so that the next opening sets it aside. Waits for the disk.

        Raises StoreUnavailable as `apply` does.
        """
        self.connection.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            self.connection.execute("UPDATE applied SET diverged = ?", (reason,))

    def complete_row_sums(self, missing: Sequence[int]) -> None:
        """Complete the sums by older rows, which were not counted: `missing` is what the sums lack, slice by slice.

        Nothing happens if the sums count all rows. Raises StoreUnavailable as `apply` does.
        """
        if self._row_sums.is_complete:
            return
        row_sums = self._row_sums.completed(missing)
        with self._transaction():
            self._advance(self._applied, AppliedState(self._applied, self._timestamp_ms, self._state_digest), row_sums)
        self._row_sums = row_sums

    def is_in(self, log_end_offset: Offset, epochs: EpochCache | None) -> bool:
        """Whether a log with that end and those epochs holds everything applied, or did before its start."""
        end_offset, epoch, _ = self._applied
        if end_offset == 0 or epochs is None:
            return end_offset <= log_end_offset
        if end_offset < epochs.start.offset:
            return epoch <= epochs.start.epoch
        in_log = epochs.end_offset_for_epoch(epoch, log_end_offset)
        return in_log.epoch == epoch and end_offset <= in_log.offset

    def apply(self, batches: Iterable[CommittedBatch], *, note_delta: bool = False) -> None:
        """Apply committed batches, in order, in one transaction; batches that are applied already are skipped.

        Batches of a metadata transaction that has not ended wait in memory for its end, and the applied end offset
        stays before them; a restarted process receives them again (CT-16).

        Raises ReplayError if the batches do not follow the applied ones or cannot be applied: then the node must stop
        (CT-02, CT-18). Raises StoreUnavailable if there is no room or the database is locked. After an error nothing
        has changed. Costs 50 to 100 microseconds for one record, 3 to 10 for each of many, and 0.5 for each partition
        removed with its topic. With `note_delta` the run leaves a delta, which costs 2 to 15 microseconds for each row.
        """
        self.commit(self._prepared(batches, rows_max=None), note_delta=note_delta)

    def prepare(
        self, batches: Iterable[CommittedBatch], *, removals_max: int | None = None, rows_max: int | None = None
    ) -> PreparedRun | None:
        """The first half of `apply`, which writes nothing: the result of replaying the batches, for `commit`.

        None if the run is too large: more `Changes.removals` than `removals_max`, or more rows than `rows_max`, as
        `Changes` counts them; a record of tiered storage has some for each leader epoch. Raises ReplayError.
        """
        try:
            prepared = self._prepared(batches, rows_max)
        except TooManyRows:
            return None
        return None if removals_max is not None and prepared.changes.removals() > removals_max else prepared

    def _prepared(self, batches: Iterable[CommittedBatch], rows_max: int | None) -> PreparedRun:
        changes = Changes(self.connection, rows_max)
        together = applied_together(self._new(batches), self._open_transaction)
        after, timestamp_ms, size_bytes, state_digests = self._replay(together.runs, self._applied, changes)
        restored = AppliedState(after, timestamp_ms, state_digests[-1] if state_digests else self._state_digest)
        return PreparedRun(changes, restored, size_bytes, state_digests, together.open_transaction)

    def commit(self, prepared: PreparedRun, *, note_delta: bool = False) -> None:
        """The second half of `apply`: write the last prepared run. Raises ReplayError and StoreUnavailable."""
        before, after, changes, delta = self._applied, prepared.restored.applied, prepared.changes, None
        if after == before:
            self._open_transaction = prepared.open_transaction
            return
        try:
            with self._transaction():
                delta = delta_of(changes, after.end_offset) if note_delta else None
                row_sums = self._row_sums.copy()
                changes.flush(row_sums)
                self._advance(before, prepared.restored, row_sums)
        except ValueError as error:
            raise ReplayError(f"a committed record below offset {after.end_offset} is malformed: {error}") from None
        self._applied, self._timestamp_ms, self._state_digest = prepared.restored
        self._row_sums = row_sums
        self._changed_at.update(dict.fromkeys(changes.tables, after.end_offset))
        self._open_transaction = prepared.open_transaction
        self._new_state_digests += prepared.state_digests
        self._new_deltas += [delta] if delta is not None and not delta.is_empty else []
        self.applied_bytes += prepared.size_bytes

    def restore(self, restored: AppliedState, runs: Iterable[Sequence[MetadataRecord]]) -> None:
        """Fill the tables, which must be empty, with the records of a snapshot, in one transaction.

        Raises ReplayError if the records cannot be applied, StoreUnavailable as `apply` does, and whatever `runs`
        raises. Nothing changed then.
        """
        try:
            with self._transaction():
                row_sums = RowSums()
                for run in runs:
                    _check_no_markers(run)
                    changes = Changes(self.connection)
                    changes.replay(run, restored.applied.end_offset)
                    changes.flush(row_sums)
                self._advance(self._applied, restored, row_sums)
        except ValueError as error:
            raise ReplayError(f"a record of a snapshot is malformed: {error}") from None
        self._applied, self._timestamp_ms, self._state_digest = restored
        self._row_sums = row_sums
        self._opened_at = restored.applied.end_offset

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make all changes within take effect, or none. Raises StoreUnavailable if the database cannot be written."""
        execute = self.connection.execute
        try:
            execute("BEGIN")
            try:
                yield
                execute("COMMIT")
            except BaseException:
                self.connection.rollback()  # nothing if the error has ended the transaction
                raise
        except sqlite3.OperationalError as error:
            raise self._translated(error) from None

    def _translated(self, error: sqlite3.OperationalError) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _RETRYABLE or code in _RETRYABLE_EXTENDED:
            return StoreUnavailable(f"cannot write to {self._name}: {error}")
        return error

    def _new(self, batches: Iterable[CommittedBatch]) -> Iterator[CommittedBatch]:
        """The batches of `batches` that are not applied, and do not wait for the end of a transaction."""
        last = None if self._open_transaction is None else self._open_transaction.last_batch
        end_offset, epoch = (last.end_offset, last.epoch) if last is not None else self._applied[:2]
        for batch in batches:
            if batch.end_offset <= end_offset:
                _check_applied_before(batch, end_offset, epoch)
            else:
                end_offset, epoch = batch.end_offset, batch.epoch
                yield batch

    def _replay(self, runs: Iterable[CommittedRun], applied: Applied, changes: Changes) -> _Replayed:
        end_offset, epoch, digest = applied.end_offset, applied.epoch, bytes.fromhex(applied.digest)
        timestamp_ms, size_bytes = self._timestamp_ms, 0
        state_digests: list[StateDigest] = []
        for batch, records in runs:
            if batch.base_offset != end_offset or batch.epoch < epoch:
                raise ReplayError(
                    f"the batch at offset {batch.base_offset}, epoch {batch.epoch} does not follow the applied batches:"
                    f" offsets below {end_offset}, epoch {epoch}; if it is not of this log, stop the node and move"
                    " the database away to have it rebuilt"
                )
            body = batch.body
            changes.replay(records, batch.base_offset)
            header = _DIGESTED_HEADER.pack(batch.base_offset, batch.epoch, len(body))
            digest = blake2b(
                b"".join((digest, header, body, changes.take_effects())), digest_size=DIGEST_BYTES
            ).digest()
            if end_offset // self._digest_interval < batch.end_offset // self._digest_interval:
                state_digests.append(StateDigest(batch.end_offset, digest))
            end_offset, epoch, timestamp_ms = batch.end_offset, batch.epoch, batch.timestamp_ms
            size_bytes += len(body)
        return _Replayed(Applied(end_offset, epoch, digest.hex()), timestamp_ms, size_bytes, state_digests)

    def _advance(self, before: Applied, after: AppliedState, row_sums: RowSums) -> None:
        state_digest = after.state_digest
        compared = (None, None) if state_digest is None else (state_digest.end_offset, state_digest.digest.hex())
        values = (*after.applied, after.timestamp_ms, *compared)
        moved = self.connection.execute(
            "UPDATE applied SET end_offset = ?, epoch = ?, digest = ?, timestamp_ms = ?, state_digest_end_offset = ?,"
            " state_digest = ?, row_sums = ? WHERE end_offset = ? AND digest = ?",
            (*values, row_sums.encoded((self.cluster_id, *values)), before.end_offset, before.digest),
        )
        if moved.rowcount != 1:
            raise ReplayError(f"another process has written to {self._name}; only this node may")


def _check_no_markers(run: Sequence[MetadataRecord]) -> None:
    """A snapshot ends before a metadata transaction that is open, and holds the results of the others (CT-16)."""
    for record in run:
        if record.WhichOneof("record") in MARKERS:
            raise ReplayError(f"it has the marker of a metadata transaction, {record.WhichOneof('record')}")


def _check_applied_before(batch: CommittedBatch, end_offset: Offset, epoch: Epoch) -> None:
    if batch.epoch > epoch or (batch.end_offset == end_offset and batch.epoch != epoch):
        raise ReplayError(
            f"the batch at offset {batch.base_offset} has epoch {batch.epoch}, what was applied there epoch {epoch}:"
            " the database is not of this log; stop the node and move the database away to have it rebuilt"
        )
