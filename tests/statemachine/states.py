"""Metadata for tests of decisions: records replayed over an empty database, committed or not."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from kraftbase.types import Offset
from kraftlog.controller.overlay import Overlay
from kraftlog.sim.engine.tables_in_memory import connect, empty_image
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from statemachine.metadata.state import MetadataState
from statemachine.replay.changes import Changes
from statemachine.tables.database import open_database
from statemachine.tables.row_sums import RowSums
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST
from tests.statemachine.builders import CLUSTER_ID


class Metadata(MetadataState):
    """A state that takes records: `commit` puts them into the database, `append` into the overlay.

    Its connection is closed when nothing refers to the state.
    """

    def __init__(self) -> None:
        self.connection = connect(empty_image(CLUSTER_ID))
        weakref.finalize(self, self.connection.close)
        self._store = SimpleNamespace(reader=self.connection, applied_end_offset=0)
        self.overlay = Overlay(cast(Any, self._store))
        self.end_offset = 0
        super().__init__(self.overlay)

    def commit(self, *records: MetadataRecord) -> Metadata:
        """Apply `records` as committed."""
        changes = Changes(self.connection)
        changes.replay(records, self.end_offset)
        changes.flush(RowSums())
        self.end_offset += len(records)
        self._store.applied_end_offset = self.end_offset
        return self

    def append(self, records: Iterable[MetadataRecord]) -> Metadata:
        """Put `records` into the overlay, like those of an operation that is appended."""
        appended = list(records)
        if appended:
            self.end_offset += len(appended)
            self.overlay.replay(appended, Offset(self.end_offset))
        return self


def metadata(*records: MetadataRecord, version: int = METADATA_VERSION_LATEST) -> Metadata:
    """A cluster of that metadata.version with `records` committed."""
    level = MetadataRecord(feature_level=FeatureLevelRecord(name=METADATA_VERSION, level=version))
    return Metadata().commit(level, *records)


@cache
def _new_database(cluster_id: str) -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory, "metadata.db")
        open_database(path, cluster_id).conn.close()
        return path.read_bytes()


def write_new_database(path: Path, cluster_id: str = CLUSTER_ID) -> Path:
    """Write the file that a node begins with. Copying it takes a tenth of the time that making one takes."""
    path.touch(mode=0o600)
    path.write_bytes(_new_database(cluster_id))
    return path


_kept: list[Metadata] = []


def database_of(*records: MetadataRecord) -> sqlite3.Connection:
    """The database of such a cluster, open until the test has ended."""
    _kept.append(metadata(*records))
    return _kept[-1].connection


def close_databases() -> None:
    """Close what `database_of` has opened."""
    _kept.clear()
