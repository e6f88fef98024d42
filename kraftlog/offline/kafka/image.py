"""A Kafka's metadata in kraftlog's tables: its newest snapshot is loaded, and the log after it replayed.

The high watermark is not on disk. Records after the newest snapshot may be uncommitted: a leader that was cut off may
have written them without reaching a majority (FM-02). The records of a metadata transaction take effect at its end
(FM-24).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final

from kraftbase.errors import StorageError
from kraftbase.types import Epoch, Offset
from kraftlog.kafka.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.batch_files import BrokenEnd
from kraftlog.offline.kafka.checkpoints import checkpoint_records, read_header
from kraftlog.offline.kafka.directory import Checkpoint, KafkaDirectory, Progress, behind_snapshot, log_batches
from kraftlog.offline.kafka.log_conversion import batch_of_ours, converted
from kraftlog.offline.kafka.other_features import OtherFeatures
from kraftlog.offline.kafka.secrets import HIDDEN, is_sensitive
from kraftlog.offline.kafka.small_files import COPY_AGAIN
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import OffsetAndEpoch
from raft.listener import CommittedBatch
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import DIGEST_BYTES, Applied, AppliedState, MetadataTables
from statemachine.tables.database import create_in
from statemachine.tables.opaque_tables import OPAQUE_TABLES

MEMORY_KIBIBYTES: Final = 64 * 1024
"""Up to this much of the tables is in memory, the rest in a file without a name: SQLite's temporary database."""

RUN_RECORDS: Final = 1_024
RUN_BATCHES: Final = 200
"""How much is applied in one transaction."""

_TAKEN: Final = (FeatureLevelRecord, BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
"""The records that `OtherFeatures` takes."""


@dataclass(slots=True)
class KafkaImage:
    """The metadata of a Kafka at an offset of its log. The caller closes `connection`."""

    connection: sqlite3.Connection
    end_offset: int
    epoch: int
    snapshot_id: OffsetAndEpoch | None
    """The newest snapshot: records below its end are committed for certain. None: there is none, and nothing is
    certain.
    """
    other_features: OtherFeatures
    broken_end: BrokenEnd | None
    """Where the log ends within a batch."""
    has_open_transaction: bool
    """The log ends within a metadata transaction, none of which is applied."""

    def warnings(self) -> list[str]:
        """Warnings for the reader, one line each."""
        certain = 0 if self.snapshot_id is None else self.snapshot_id.offset
        lines = behind_snapshot(certain, self.end_offset)
        if self.broken_end is not None:
            lines.append(f"the log ends at offset {self.end_offset}: {self.broken_end}")
        if self.has_open_transaction:
            lines.append(
                f"a metadata transaction that begins at or after offset {self.end_offset} does not end in this log:"
                " nothing after that offset is applied"
            )
        return lines

    def left_out(self) -> list[str]:
        """The names and levels of features that kraftlog has no records for."""
        return [f"{name}={level}" for name, level in sorted(self.other_features.levels.items())]

    def kept_closed(self) -> list[str]:
        """The number of rows of each kind that kraftlog only stores."""
        counts = {
            table: self.connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]  # noqa: S608
            for table in OPAQUE_TABLES
        }
        return [f"{count} {table.name}" for table, count in counts.items() if count]

    def add_other_features(self) -> None:
        """Add the levels of features that kraftlog does not have to the tables."""
        rows = self.other_features.levels.items()
        self.connection.executemany("INSERT INTO features (name, level) VALUES (?, ?)", rows)

    def prepare_for_statements(self) -> None:
        """Add the other features, hide passwords and credentials, and make the tables read-only."""
        self.add_other_features()
        execute = self.connection.execute
        for (name,) in execute("SELECT DISTINCT name FROM configs").fetchall():
            if is_sensitive(name):
                execute("UPDATE configs SET value = ? WHERE name = ?", (HIDDEN, name))
        for table in OPAQUE_TABLES:  # their rows can be counted
            execute(f"UPDATE {table.name} SET key = hex(randomblob(16)), value = x''")  # noqa: S608 (names of our own)
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
                f" the earlier records; {COPY_AGAIN}"
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
        replay.other_features,
        broken_end,
        replay.tables.has_open_transaction,
    )


class _Replay:
    """Fills the tables."""

    def __init__(self, tables: MetadataTables) -> None:
        self.tables = tables
        self.other_features = OtherFeatures()

    def load(self, checkpoint: Checkpoint, progress: Progress | None) -> None:
        """Fill the tables from a snapshot."""
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
        """Apply the log from where the tables end; return where the log is torn, if it is."""
        run: list[CommittedBatch] = []
        broken_end = None
        for found in log_batches(directory, self.tables.applied.end_offset, progress):
            if isinstance(found, BrokenEnd):
                broken_end = found
                break
            if end_offset is not None and found.batch.end_offset > end_offset:
                break
            run.append(CommittedBatch(batch_of_ours(found, self._of_ours)))
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

    def _of_ours(self, record: Message, version: int) -> MetadataRecord:
        if isinstance(record, _TAKEN):
            self.other_features.take(record)
        return converted(record, version)
