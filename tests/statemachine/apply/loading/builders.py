"""The log of which the snapshots are taken, and views of the directory and the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from tests.statemachine.builders import log_of
from tests.statemachine.snapshots import RUNS

LOG = log_of(RUNS)
"""The content of the snapshot, as committed batches."""


def newest(snapshots: SnapshotStore) -> SnapshotReader:
    """The only snapshot."""
    (snapshot_id,) = snapshots.ids()
    return snapshots.open(snapshot_id)


def names(path: Path) -> list[str]:
    """Whatever is in the directory of a database."""
    return sorted(each.name for each in path.parent.iterdir())


def applied_there(connection: sqlite3.Connection) -> int:
    """How far a database is, as a query sees it."""
    return int(connection.execute("SELECT end_offset FROM applied").fetchone()[0])
