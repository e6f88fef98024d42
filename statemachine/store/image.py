"""The committed metadata as a snapshot, and back (docs/formats/snapshot.md).

The records are in a fixed order: the applied state, then table by table (SN-33), each by its key; at most 1,024 in a
batch. So the bytes depend on the state alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftbase.errors import CorruptSnapshot
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import AppliedStateRecord, MetadataBatch, MetadataRecord
from raft.core.types import Batch, OffsetAndEpoch, StateDigest
from raft.storage.batch import batch_body
from snapshot.format import SnapshotHeader
from snapshot.reader import SnapshotReader
from snapshot.writer import SnapshotWriter
from statemachine.replay.replay import ReplayError
from statemachine.store.metadata_tables import DIGEST_BYTES, Applied, AppliedState, MetadataTables
from statemachine.tables.catalogue import TABLES
from statemachine.tables.table import Table

RECORDS_PER_BATCH_MAX: Final = 1_024
"""How many records a batch of a snapshot has at most."""

BATCH_BYTES_SOFT_MAX: Final = 1024 * 1024
"""A batch that has this many bytes of records gets no further one."""


class SnapshotPoint(NamedTuple):
    """The position of a read transaction in the log, and the snapshot that can be taken of it."""

    snapshot_id: OffsetAndEpoch
    header: SnapshotHeader


def snapshot_point(connection: sqlite3.Connection) -> SnapshotPoint | None:
    """The id and header of a snapshot of the current read transaction; None if nothing is applied.

    The id is always at the end of a batch, because transactions end there (SN-31).
    """
    end_offset, epoch, timestamp_ms, cluster_id = connection.execute(
        "SELECT end_offset, epoch, timestamp_ms, cluster_id FROM applied"
    ).fetchone()
    if end_offset == 0:
        return None
    return SnapshotPoint(
        OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(end_offset)), SnapshotHeader(timestamp_ms, cluster_id)
    )


def write_image(
    connection: sqlite3.Connection, writer: SnapshotWriter, progress: Callable[[int], None] | None = None
) -> None:
    """Append everything that the current read transaction sees to `writer`, whose id is its `snapshot_point`'s.

    `progress` is called with the number of records written so far. Costs about 10 microseconds a row. Raises OutOfSpace
    or StorageError as the writer does.
    """
    tables = (table for table in TABLES if table.kind is not None)
    records = chain(_applied_state(connection), chain.from_iterable(_all(connection, table) for table in tables))
    written = 0
    for run in _runs(records):
        writer.append(MetadataBatch(records=run).SerializeToString(deterministic=True), len(run))
        written += len(run)
        if progress is not None:
            progress(written)


def load_image(
    reader: SnapshotReader, tables: MetadataTables, progress: Callable[[int, int], None] | None = None
) -> None:
    """Fill `tables`, which must be empty, with a snapshot, in one transaction.

    `progress` is called after each batch with the number of bytes of the snapshot read, and of all. Raises
    CorruptSnapshot if it is damaged, another cluster's, or no metadata; nothing changed then. Costs about 10
    microseconds a record.
    """
    if reader.header.cluster_id != tables.cluster_id:
        raise CorruptSnapshot(f"the snapshot {reader.path} is of cluster {reader.header.cluster_id}")
    batches = reader.batches(progress)
    first = next(batches, None)
    leading = [] if first is None else _records(reader, first)
    if not leading or leading[0].WhichOneof("record") != "applied_state":
        raise CorruptSnapshot(f"the snapshot {reader.path} does not have the applied state of its state machine")
    restored = _restored(reader, leading[0].applied_state)
    try:
        tables.restore(restored, chain([leading[1:]], (_records(reader, batch) for batch in batches)))
    except ReplayError as error:
        raise CorruptSnapshot(f"the snapshot {reader.path} cannot be applied: {error}") from None


def _runs(records: Iterable[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    run: list[MetadataRecord] = []
    size_bytes = 0
    for record in records:
        run.append(record)
        size_bytes += record.ByteSize()
        if len(run) == RECORDS_PER_BATCH_MAX or size_bytes >= BATCH_BYTES_SOFT_MAX:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def _restored(reader: SnapshotReader, state: AppliedStateRecord) -> AppliedState:
    compared = None
    if state.HasField("state_digest_end_offset"):
        compared = StateDigest(Offset(state.state_digest_end_offset), state.state_digest)
    digests = [state.digest] if compared is None else [state.digest, compared.digest]
    if any(len(digest) != DIGEST_BYTES for digest in digests):
        raise CorruptSnapshot(f"the snapshot {reader.path} has a state digest that is not {DIGEST_BYTES} bytes long")
    end = reader.snapshot_id
    applied = Applied(end.offset, end.epoch, state.digest.hex())
    return AppliedState(applied, reader.header.last_contained_log_timestamp_ms, compared)


def _records(reader: SnapshotReader, batch: Batch) -> list[MetadataRecord]:
    try:
        records = list(MetadataBatch.FromString(batch_body(batch)).records)
    except DecodeError:
        records = []
    if len(records) != batch.record_count:
        raise CorruptSnapshot(
            f"the snapshot {reader.path} has a batch at offset {batch.base_offset} that is no MetadataBatch with"
            f" {batch.record_count} records"
        )
    return records


def _applied_state(connection: sqlite3.Connection) -> Iterator[MetadataRecord]:
    digest, compared_at, compared = connection.execute(
        "SELECT digest, state_digest_end_offset, state_digest FROM applied"
    ).fetchone()
    state = AppliedStateRecord(digest=bytes.fromhex(digest))
    if compared is not None:
        state.state_digest_end_offset = compared_at
        state.state_digest = bytes.fromhex(compared)
    yield MetadataRecord(applied_state=state)


def _all(connection: sqlite3.Connection, table: Table[Any]) -> Iterator[MetadataRecord]:
    return (table.to_record(record) for _, record in table.find(connection))
