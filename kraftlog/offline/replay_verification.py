"""Whether a stopped node's metadata database matches its log: snapshot and log are replayed, and the result compared.
Only the applied offset is read from the checked database. The digest and the rows of each table are compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from kraftbase.errors import CorruptSnapshot, InvariantViolation
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Offset
from raft.listener import CommittedBatch
from raft.storage.directory import LOG_NAME, SNAPSHOTS_NAME
from raft.storage.inspection import FoundFrame, LogCursor, segment_base_offsets, walk_segment
from raft.storage.log_start_file import LOG_START_NAME, decode_log_start
from raft.storage.segment import segment_name
from snapshot.store import SnapshotStore
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import Applied, MetadataTables
from statemachine.store.scrub import CorruptDatabase, check_rows, corruption_as_error
from statemachine.tables.catalogue import TABLES
from statemachine.tables.database import create_in
from statemachine.tables.row_sums import sum_of

RUN_BATCHES: Final = 200
"""How many records are replayed in one transaction."""

Progress = Callable[[int, int], None]
"""Called with the number of replayed offsets, and the total."""


def compare_with_log(
    directory: Path,
    connection: sqlite3.Connection,
    applied: Applied,
    cluster_id: str,
    scratch: Path,
    progress: Progress,
) -> str | None:
    """Why the database behind `connection` differs from the log; None if no difference can be determined.

    The log must have everything that is `applied`; `scratch` is a directory for the replay.
    """
    try:
        with corruption_as_error("its file"):
            check_rows(connection)
    except CorruptDatabase as error:
        return str(error)
    with closing(sqlite3.connect(scratch / "replayed.db", isolation_level=None)) as own:
        own.execute("PRAGMA journal_mode = OFF")
        own.execute("PRAGMA synchronous = OFF")
        create_in(own, cluster_id)
        tables = MetadataTables(own, name="the replayed log")
        try:
            _load_snapshot(directory, tables, applied.end_offset)
            if not _replay(directory, tables, applied.end_offset, progress):
                return None
        except (InvariantViolation, CorruptSnapshot) as error:
            return f"the log cannot be replayed to compare: {error}"
        if tables.applied != applied:
            return f"it is at {applied}, and the replayed log is at {tables.applied}"
        different = [table.name for table in TABLES if _sum(own, table) != _sum(connection, table)]
    return f"its rows differ from those of the replayed log, in {', '.join(different)}" if different else None


def _sum(connection: sqlite3.Connection, table: object) -> int:
    columns, name = ", ".join(table.columns), table.name  # type: ignore[attr-defined]
    return sum_of(connection.execute(f"SELECT {columns} FROM {name}"))  # noqa: S608


def _load_snapshot(directory: Path, tables: MetadataTables, end_offset: Offset) -> None:
    """Start with the oldest snapshot that the log continues, unless the log starts at offset 0."""
    start = _log_start(directory)
    if start == 0:
        return
    snapshots = SnapshotStore(PosixFileSystem(), str(directory / SNAPSHOTS_NAME))
    for snapshot_id in sorted(snapshots.ids(), key=lambda snapshot_id: snapshot_id.offset):
        if not start <= snapshot_id.offset <= end_offset:
            continue
        try:
            with snapshots.open(snapshot_id) as reader:
                reader.verify()
            with snapshots.open(snapshot_id) as reader:
                load_image(reader, tables)
        except CorruptSnapshot:
            continue  # reported as a finding of its own
        return


def _log_start(directory: Path) -> Offset:
    path = directory / LOG_NAME / LOG_START_NAME
    return decode_log_start(path.read_bytes(), str(path)).offset if path.exists() else Offset(0)


def _replay(directory: Path, tables: MetadataTables, end_offset: Offset, progress: Progress) -> bool:
    """Apply the log below `end_offset`; False if the log does not continue where the tables end."""
    run: list[CommittedBatch] = []
    for batch in _batches(directory / LOG_NAME):
        if batch.end_offset > end_offset:
            break
        if batch.end_offset <= tables.applied.end_offset:
            continue
        if not run and batch.base_offset > tables.applied.end_offset and not tables.has_open_transaction:
            return False
        run.append(batch)
        if len(run) == RUN_BATCHES:
            tables.apply(run)
            run = []
            progress(tables.applied.end_offset, end_offset)
    if run:
        tables.apply(run)
    return tables.applied.end_offset == end_offset


def _batches(log: Path) -> Iterator[CommittedBatch]:
    for base in segment_base_offsets(log):
        for found in walk_segment((log / segment_name(base)).read_bytes(), LogCursor.at_segment(base)):
            if isinstance(found, FoundFrame) and found.frame.batch is not None:
                yield CommittedBatch(found.frame.batch)
