"""A whole snapshot, and the place of the database that it replaces."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from snapshot.store import SnapshotStore
from tests.statemachine.snapshots import filled, snapshot_of


@pytest.fixture
def whole(snapshots: SnapshotStore, tmp_path: Path) -> SnapshotStore:
    """One snapshot, after all of RUNS, of `source.db`."""
    with closing(filled(tmp_path / "source.db")) as store:
        snapshot_of(store, snapshots)
    return snapshots


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Where a node's database is: in a directory of its own."""
    (tmp_path / "node").mkdir()
    return tmp_path / "node" / "metadata.db"
