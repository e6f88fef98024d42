"""Snapshots as files on this machine: list them, show what is in one, and check whether it is whole.

Nothing is written, locked or created, so the node that they belong to may run.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftbase.errors import CorruptSnapshot, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftlog.analytics.rows import record_type
from kraftlog.analytics.schema import UNKNOWN_RECORD_TYPE
from kraftlog.offline.file_reports import FileReport, FileStatus, is_sound
from kraftlog.offline.record_json import committed_records
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import records
from raft.storage.directory import META_NAME, SNAPSHOTS_NAME
from snapshot.format import VERSION
from snapshot.names import parse_snapshot_name
from snapshot.reader import SnapshotReader

COLUMNS: Final = ("EndOffset", "Epoch", "SizeBytes", "LastContainedLogTimestamp", "Path")

_EPOCH_OF_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def open_snapshot(path: Path) -> SnapshotReader:
    """Raises StorageError if it cannot be read or is not named like a snapshot, CorruptSnapshot without a header."""
    if not path.exists():  # otherwise the error would be about its name
        raise StorageError(f"cannot open {path}: {os.strerror(errno.ENOENT)}") from FileNotFoundError()
    return SnapshotReader(PosixFileSystem(), str(path))


# --- which there are --------------------------------------------------------------------------------------------------


def snapshot_row(snapshot_id: OffsetAndEpoch, size_bytes: int, timestamp_ms: int | None, path: str) -> dict[str, Any]:
    """A snapshot in a list; `timestamp_ms` is that of its header, None if it has none."""
    return {
        "EndOffset": snapshot_id.offset,
        "Epoch": snapshot_id.epoch,
        "SizeBytes": size_bytes,
        "LastContainedLogTimestamp": None if timestamp_ms is None else timestamp_text(timestamp_ms),
        "Path": path,
    }


def timestamp_text(timestamp_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC; the bare number if it is beyond the year 9999."""
    try:
        moment = _EPOCH_OF_TIME + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def list_directory(directory: Path) -> list[dict[str, Any]]:
    """One row per snapshot in a node's data directory, or in a directory of snapshots, the oldest first.

    The row of one that has no header, or cannot be read, has a `Problem`. Raises StorageError for a directory that is
    no node's and holds no snapshots, OSError for one that cannot be listed.
    """
    is_of_node = (directory / META_NAME).exists() or (directory / SNAPSHOTS_NAME).is_dir()
    place = directory / SNAPSHOTS_NAME if is_of_node else directory
    if is_of_node and not place.exists():
        return []
    found = {snapshot_id: path for path in place.iterdir() if (snapshot_id := parse_snapshot_name(path.name))}
    if not found and not is_of_node:
        raise StorageError(
            f"{directory} holds no snapshots; name a node's data directory, or a directory with snapshots"
        )
    rows = []
    for snapshot_id, path in sorted(found.items()):
        with suppress(FileNotFoundError):  # deleted since: the node may be running
            rows.append(_row_of(snapshot_id, path))
    return rows


def _row_of(snapshot_id: OffsetAndEpoch, path: Path) -> dict[str, Any]:
    size_bytes = path.stat().st_size
    try:
        with open_snapshot(path) as reader:
            timestamp_ms = reader.header.last_contained_log_timestamp_ms
            return snapshot_row(snapshot_id, reader.size_bytes, timestamp_ms, str(path))
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise error.__cause__ from None
        return {**snapshot_row(snapshot_id, size_bytes, None, str(path)), "Problem": reason_of(error, path)}


# --- what is in one ---------------------------------------------------------------------------------------------------


def inspect(path: Path) -> dict[str, Any]:
    """What a whole snapshot is and holds. Raises StorageError, CorruptSnapshot if it is damaged."""
    with open_snapshot(path) as reader:
        summary = reader.verify()
        kinds = Counter(map(_kind, (record for batch in reader.batches() for record in records(batch))))
    return {
        "Path": str(path),
        "EndOffset": summary.snapshot_id.offset,
        "Epoch": summary.snapshot_id.epoch,
        "Version": VERSION,
        "ClusterId": summary.header.cluster_id,
        "LastContainedLogTimestamp": timestamp_text(summary.header.last_contained_log_timestamp_ms),
        "SizeBytes": summary.size_bytes,
        "Digest": summary.digest.hex(),
        "Batches": summary.batch_count,
        "Records": summary.record_count,
        "RecordsByType": dict(kinds),
    }


def decoded_records(path: Path) -> Iterator[dict[str, Any]]:
    """Type and data of every record of a whole snapshot, as `kraftlog watch` prints them, in order.

    Reads all of it before the first. Raises as `inspect` does.
    """
    with open_snapshot(path) as reader:
        reader.verify()
        for batch in reader.batches():
            for record in committed_records(batch):
                yield {"type": record["type"], "data": record["data"]}


def _kind(encoded: bytes) -> str:
    try:
        record = MetadataRecord.FromString(encoded)
    except DecodeError:
        return UNKNOWN_RECORD_TYPE
    kind = record.WhichOneof("record")
    return UNKNOWN_RECORD_TYPE if kind is None else record_type(kind, getattr(record, kind))


# --- whether it is whole ----------------------------------------------------------------------------------------------


class SnapshotChecks(NamedTuple):
    """The findings for several snapshots."""

    reports: list[FileReport]
    failures: list[StorageError]
    """Why the others cannot be checked: they cannot be read, or are not named like snapshots."""

    @property
    def are_sound(self) -> bool:
        """Whether all are whole."""
        return not self.failures and is_sound(self.reports)


def verify_files(paths: Iterable[Path]) -> SnapshotChecks:
    """Read all of each and report whether it is whole."""
    checks = SnapshotChecks([], [])
    for path in paths:
        try:
            checks.reports.append(snapshot_report(path, str(path)))
        except StorageError as error:
            checks.failures.append(error)
    return checks


def snapshot_report(path: Path, file: str, cluster_id: str | None = None) -> FileReport:
    """Whether the snapshot at `path` is whole, and of that cluster if one is given; `file` is its name in the report.

    Raises StorageError if it cannot be checked: it cannot be read, or is not named like a snapshot.
    """
    try:
        with open_snapshot(path) as reader:
            summary = reader.verify()
    except CorruptSnapshot as error:
        return FileReport(file, FileStatus.DAMAGED, "damaged", reason_of(error, path))
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EIO:
            return FileReport(file, FileStatus.DAMAGED, f"cannot be read: {cause.strerror}")
        raise
    found = f"{summary.record_count} records, {summary.size_bytes} bytes"
    if cluster_id is not None and summary.header.cluster_id != cluster_id:
        return FileReport(file, FileStatus.DAMAGED, found, f"it is of cluster {summary.header.cluster_id}")
    return FileReport(file, found=found)


def reason_of(error: StorageError, path: Path) -> str:
    """What is wrong, without the path in front."""
    return str(error).removeprefix(f"the snapshot {path} is damaged: ")
