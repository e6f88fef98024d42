"""Stores with something in them, their content, and snapshots of them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from kraftbase.files.posix import PosixFileSystem
from kraftbase.runtime import awaited
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import OffsetAndEpoch
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from statemachine.store.image import snapshot_point, write_image
from statemachine.store.store import MetadataStore
from statemachine.tables.database import open_reader
from tests.statemachine.builders import CLUSTER_ID, broker, config, log_of, partition, topic

TABLES = ("topics", "partitions", "brokers", "configs", "applied")

RUNS: list[list[MetadataRecord]] = [
    [topic("a", 1), config("a", "retention.ms", "1"), partition(1, 0), partition(1, 1)],
    [broker(1), broker(2, rack="r"), config("a", "segment.ms", "5")],
    [topic("b", 2), partition(2, 0, (3, 1, 2))],
]


def content(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}


def content_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of a database that no connection has open."""
    with closing(MetadataStore.open(path, CLUSTER_ID)) as store:
        return content(store.reader)


def filled(path: Path, batches: Iterable[CommittedBatch] = ()) -> MetadataStore:
    """A store that has applied them, or RUNS."""
    store = MetadataStore.open(path, CLUSTER_ID)
    store.apply(list(batches) or log_of(RUNS))
    return store


def posix_snapshots(path: Path) -> SnapshotStore:
    return SnapshotStore(PosixFileSystem(), str(path))


def snapshot_of(store: MetadataStore, snapshots: SnapshotStore) -> OffsetAndEpoch:
    """Take a snapshot of everything that is applied."""
    with closing(open_reader(store.path)) as connection:
        connection.execute("BEGIN")
        point = snapshot_point(connection)
        assert point is not None
        writer = snapshots.create(*point)
        assert writer is not None
        with writer:
            write_image(connection, writer)
            writer.freeze()
    return point.snapshot_id


def load(store: MetadataStore, reader: SnapshotReader) -> None:
    """Let the store continue with a snapshot's content; for tests that have no event loop."""
    store.load(reader)
    asyncio.run(awaited(store.use_loaded))


def records_of(runs: Iterable[Sequence[MetadataRecord]]) -> list[MetadataRecord]:
    return [record for run in runs for record in run]
