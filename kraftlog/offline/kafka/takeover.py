"""From a Kafka's metadata to a kraftlog snapshot, and from a kraftlog snapshot to a Kafka checkpoint."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from kraftbase.errors import FlushFailed, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftlog.kafka.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import CONTROL, encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record, encode_metadata_record
from kraftlog.kafka.records import Record
from kraftlog.offline.kafka.directory import Progress
from kraftlog.offline.kafka.image import KafkaImage
from kraftlog.offline.kafka.to_kafka import to_kafka
from raft.core.types import OffsetAndEpoch
from snapshot.names import snapshot_name
from snapshot.store import SnapshotStore
from statemachine.store.image import SnapshotPoint, snapshot_point, write_image
from statemachine.tables.catalogue import TABLES
from statemachine.tables.cluster_tables import CONFIGS, FEATURES
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_MIN

RECORDS_PER_BATCH: Final = 1_024


def import_image(image: KafkaImage, target: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Write a kraftlog snapshot with all that the tables hold, and describe it. `progress` is in records. Raises
    StorageError, and leaves no file, if there is nothing to write or a file of the snapshot's name exists.
    """
    point = _point(image.connection)
    directory = _directory_of(target, point.snapshot_id)
    snapshots = SnapshotStore(PosixFileSystem(), str(directory))
    writer = snapshots.create(*point)
    if writer is None:
        raise _exists(directory / snapshot_name(point.snapshot_id))
    try:
        with writer:
            write_image(image.connection, writer, _of_total(image.connection, progress))
            writer.freeze()
    except FlushFailed as error:
        raise StorageError(f"{error}; check the disk") from None
    with snapshots.open(point.snapshot_id) as reader:
        summary = reader.verify()
    return {
        "Path": reader.path,
        "FromClusterId": summary.header.cluster_id,
        "EndOffset": summary.snapshot_id.offset,
        "Epoch": summary.snapshot_id.epoch,
        "SizeBytes": summary.size_bytes,
        "Records": summary.record_count,
    }


def export_snapshot(
    connection: sqlite3.Connection, target: Path, progress: Progress | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Write a Kafka checkpoint with all that the tables of a loaded snapshot hold; return its description, and what is
    left out. The voters are not in it: a Kafka that starts from it has its own. Raises StorageError as `import_image`.
    """
    point = _point(connection)
    directory = _directory_of(target, point.snapshot_id)
    path = directory / snapshot_name(point.snapshot_id)
    if path.exists():
        raise _exists(path)
    left_out: Counter[str] = Counter()
    part = path.with_name(path.name + ".part")
    with closing(_created(part)) as file:
        try:
            told = _of_total(connection, progress)
            written = _write(file, point, _records(connection, left_out), told)
            file.flush()
            os.fsync(file.fileno())
            path.hardlink_to(part)  # unlike a rename it never replaces a file
        except FileExistsError:
            raise _exists(path) from None
        finally:
            part.unlink()
    fields = {
        "Path": str(path),
        "EndOffset": point.snapshot_id.offset,
        "Epoch": point.snapshot_id.epoch,
        "SizeBytes": path.stat().st_size,
        "Records": written,
    }
    return fields, [f"{number} rows of {name}" for name, number in left_out.items()]


def _of_total(connection: sqlite3.Connection, progress: Progress | None) -> Callable[[int], None]:
    """Calls `progress` with the total number of records, too."""
    if progress is None:
        return lambda written: None
    total = sum(table.row_count(connection) for table in TABLES if table.kind is not None)
    return lambda written: progress(written, total)


def _point(connection: sqlite3.Connection) -> SnapshotPoint:
    point = snapshot_point(connection)
    if point is None:
        raise StorageError("it has no metadata yet: nothing is applied; read from another controller")
    return point


def _directory_of(target: Path, snapshot_id: OffsetAndEpoch) -> Path:
    """The path of the file. Raises StorageError for a name that it cannot have."""
    if target.is_dir():
        return target
    if target.name != snapshot_name(snapshot_id):
        raise StorageError(
            f"{target} is neither a directory nor the name of this snapshot, {snapshot_name(snapshot_id)}; name a"
            " directory that exists, or use that name"
        )
    if not target.parent.is_dir():
        raise StorageError(f"directory {target.parent} does not exist; create it, or name another")
    return target.parent


def _exists(path: Path) -> StorageError:
    return StorageError(f"{path} already exists and is left unchanged; remove it, or name another directory")


def _created(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        raise StorageError(
            f"{path} exists: another export is writing it, or was interrupted; remove it when no export runs"
        ) from None


# --- Kafka's checkpoint -----------------------------------------------------------------------------------------------


def _records(connection: sqlite3.Connection, left_out: Counter[str]) -> Iterator[tuple[Message, int]]:
    """The records that Kafka knows, metadata.version first, which decides how the others are written."""
    levels = {record.name: record for _, record in FEATURES.find(connection)}
    version = levels.pop(METADATA_VERSION, None)
    metadata_version = METADATA_VERSION_MIN if version is None else version.level
    for level in (*((version,) if version is not None else ()), *levels.values()):
        converted = to_kafka(FEATURES.to_record(level), metadata_version)
        if converted is not None:
            yield converted
    for table in TABLES:
        if table is FEATURES or table.kind is None:
            continue
        for _, record in table.find(connection):
            ours = table.to_record(record)
            converted = to_kafka(ours, metadata_version)
            if converted is None:
                left_out[f"{table.name} ({ours.config.name})" if table is CONFIGS else table.name] += 1
            else:
                yield converted


def _write(
    file: BinaryIO, point: SnapshotPoint, records: Iterator[tuple[Message, int]], progress: Callable[[int], None]
) -> int:
    """Write the batches; returns how many metadata records there are."""
    epoch, timestamp_ms = point.snapshot_id.epoch, point.header.last_contained_log_timestamp_ms
    offsets = count()

    def control(kind: ControlType, value: Message) -> None:
        key, data = encode_control_record(kind, value, 0)
        offset = next(offsets)
        record = Record(offset, timestamp_ms, key, data)
        file.write(encode_batch([record], base_offset=offset, partition_leader_epoch=epoch, attributes=CONTROL))

    control(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms))
    written = 0
    while run := list(islice(records, RECORDS_PER_BATCH)):
        batch = [
            Record(next(offsets), timestamp_ms, None, encode_metadata_record(record, version))
            for record, version in run
        ]
        file.write(encode_batch(batch, base_offset=batch[0].offset, partition_leader_epoch=epoch))
        written += len(batch)
        progress(written)
    control(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord())
    return written
