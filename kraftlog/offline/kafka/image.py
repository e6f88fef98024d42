"""A Kafka's metadata in kraftlog's tables: its newest snapshot is loaded, and the log after it replayed.

The high watermark is not on disk. What lies behind the newest snapshot may be uncommitted: a leader that was cut off
may have written it, and never got it to a majority.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final

from kraftbase.errors import CorruptLog, StorageError
from kraftlog.kafka.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.batch_files import BrokenEnd, metadata_of, records_of
from kraftlog.offline.kafka.checkpoints import checkpoint_records, read_header
from kraftlog.offline.kafka.conversion import from_kafka
from kraftlog.offline.kafka.directory import Checkpoint, KafkaDirectory, LogBatch, Progress, log_batches
from kraftlog.offline.kafka.kafka_only import KafkaOnly
from kraftlog.offline.kafka.secrets import HIDDEN, is_sensitive
from kraftlog.offline.kafka.small_files import COPY_AGAIN
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from raft.core.types import Epoch, Offset, OffsetAndEpoch
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import DIGEST_BYTES, Applied, AppliedState, MetadataTables
from statemachine.tables.database import create_in

MEMORY_KIBIBYTES: Final = 64 * 1024
"""Up to this much of the tables is in memory, the rest in a file without a name: SQLite's temporary database."""

RUN_RECORDS: Final = 1_024
RUN_BATCHES: Final = 200
"""How much is applied in one transaction."""

_MARKERS: Final = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


@dataclass(slots=True)
class KafkaImage:
    """The metadata of a Kafka at an offset of its log. The caller closes `connection`."""

    connection: sqlite3.Connection
    end_offset: int
    epoch: int
    snapshot_id: OffsetAndEpoch | None
    """What is committed for certain: up to where this snapshot ends. None: there is none, and nothing is certain."""
    kafka_only: KafkaOnly
    broken_end: BrokenEnd | None
    """Where the log ends within a batch."""
    has_open_transaction: bool
    """The log ends within a metadata transaction, none of which is applied."""

    def warnings(self) -> list[str]:
        """What a reader must know of it, one line each."""
        certain = 0 if self.snapshot_id is None else self.snapshot_id.offset
        lines = []
        if self.end_offset > certain:
            lines.append(
                f"offsets {certain} to {self.end_offset - 1} lie behind the newest snapshot and may be uncommitted:"
                " the high watermark is not on disk"
            )
        if self.broken_end is not None:
            lines.append(f"the log ends at offset {self.end_offset}: {self.broken_end}")
        if self.has_open_transaction:
            lines.append(
                f"a metadata transaction that begins at or after offset {self.end_offset} does not end in this log:"
                " nothing after that offset is applied"
            )
        return lines

    def left_out(self) -> list[str]:
        """What there is in it that kraftlog has no records for."""
        features = [f"{name}={level}" for name, level in sorted(self.kafka_only.features.items())]
        return [f"{count} {what}" for what, count in self.kafka_only.counts().items()] + features

    def prepare_for_statements(self) -> None:
        """Add the features that kraftlog does not have, hide passwords, and let nothing more be changed."""
        execute = self.connection.execute
        for name, level in self.kafka_only.features.items():
            execute("INSERT INTO features (name, level) VALUES (?, ?)", (name, level))
        for (name,) in execute("SELECT DISTINCT name FROM configs").fetchall():
            if is_sensitive(name):
                execute("UPDATE configs SET value = ? WHERE name = ?", (HIDDEN, name))
        execute("PRAGMA query_only = 1")


def load_image(
    directory: KafkaDirectory,
    start: Checkpoint | None,
    *,
    end_offset: int | None = None,
    progress: Progress | None = None,
) -> KafkaImage:
    """The metadata at the end of the log, or at `end_offset`, beginning with a snapshot, or with the log's beginning.

    The tables are in memory while they are small. Raises StorageError if the files are not whole, do not belong
    together, or are of a newer Kafka.
    """
    connection = sqlite3.connect("", isolation_level=None)
    try:
        connection.execute(f"PRAGMA cache_size = -{MEMORY_KIBIBYTES}")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        create_in(connection, directory.identity.cluster_id)
        replay = _Replay(MetadataTables(connection, name="the tables"))
        if start is not None:
            replay.load(start, progress)
        elif directory.segments and directory.segments[0].base_offset > 0:
            raise StorageError(
                f"{directory.partition} begins at offset {directory.segments[0].base_offset} and has no snapshot of"
                f" what was before; {COPY_AGAIN}"
            )
        broken_end = replay.follow(directory, end_offset, progress)
    except BaseException:
        connection.close()
        raise
    applied = replay.tables.applied
    return KafkaImage(
        connection,
        applied.end_offset,
        applied.epoch,
        None if start is None else start.snapshot_id,
        replay.kafka_only,
        broken_end,
        replay.tables.has_open_transaction,
    )


class _Replay:
    """Fills the tables."""

    def __init__(self, tables: MetadataTables) -> None:
        self.tables = tables
        self.kafka_only = KafkaOnly()

    def load(self, checkpoint: Checkpoint, progress: Progress | None) -> None:
        """Fill them with what a snapshot holds."""
        header = read_header(checkpoint.path)
        snapshot_id = checkpoint.snapshot_id
        named = f"{snapshot_id.offset}-{snapshot_id.epoch}".encode()
        digest = blake2b(named, digest_size=DIGEST_BYTES).hexdigest()
        applied = Applied(Offset(snapshot_id.offset), Epoch(snapshot_id.epoch), digest)
        records = self._converted(checkpoint_records(checkpoint.path, progress))
        runs = iter(lambda: list(islice(records, RUN_RECORDS)), [])
        timestamp_ms = max(0, header.last_contained_log_timestamp_ms)
        try:
            self.tables.restore(AppliedState(applied, timestamp_ms, None), runs)
        except ReplayError as error:
            raise StorageError(f"{checkpoint.path} cannot be applied: {error}") from None

    def _converted(self, records: Iterable[tuple[Message, int]]) -> Iterator[MetadataRecord]:
        return (self._of_ours(record, version) for record, version in records)

    def follow(self, directory: KafkaDirectory, end_offset: int | None, progress: Progress | None) -> BrokenEnd | None:
        """Apply the log from where the tables end; returns where it is torn, if it is."""
        run: list[CommittedBatch] = []
        broken_end = None
        for found in log_batches(directory, self.tables.applied.end_offset, progress):
            if isinstance(found, BrokenEnd):
                broken_end = found
                break
            if end_offset is not None and found.batch.end_offset > end_offset:
                break
            run.append(self._batch_of_ours(found))
            if len(run) == RUN_BATCHES:
                self._apply(directory, run)
                run = []
        self._apply(directory, run)
        return broken_end

    def _apply(self, directory: KafkaDirectory, run: list[CommittedBatch]) -> None:
        try:
            self.tables.apply(run)
        except ReplayError as error:
            raise StorageError(f"{directory.partition} cannot be replayed: {error}") from None

    def _batch_of_ours(self, found: LogBatch) -> CommittedBatch:
        """The batch as kraftlog would have it, with the same offsets; NoOps take the place of what is Kafka's alone."""
        batch, body = found.batch, b""
        count = batch.end_offset - batch.base_offset
        if not batch.is_control:
            records = records_of(found.path, batch)
            if [record.offset for record in records] != list(range(batch.base_offset, batch.end_offset)):
                raise CorruptLog(f"{found.path}: the batch at offset {batch.base_offset} has not one record an offset")
            converted = self._converted(metadata_of(found.path, record) for record in records)
            body = MetadataBatch(records=converted).SerializeToString()
        return CommittedBatch(
            encode_batch(
                Offset(batch.base_offset),
                Epoch(max(1, batch.partition_leader_epoch)),
                body,
                count,
                max(0, batch.max_timestamp_ms),
                batch.is_control,
            )
        )

    def _of_ours(self, record: Message, version: int) -> MetadataRecord:
        converted = from_kafka(record, version)
        if converted is None or isinstance(record, _MARKERS):
            self.kafka_only.take(record)
        return MetadataRecord(no_op=NoOpRecord()) if converted is None else converted
