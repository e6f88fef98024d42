"""Metadata for tests of decisions: records replayed over an empty database, committed or not."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from kraftlog.controller.overlay import Overlay
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord
from raft.core.types import Offset
from statemachine.metadata.state import MetadataState
from statemachine.replay.changes import Changes
from statemachine.tables.database import create_in
from statemachine.tables.row_sums import RowSums
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST
from tests.statemachine.builders import CLUSTER_ID


class Metadata(MetadataState):
    """A state that takes records: `commit` puts them into the database, `append` into the overlay.

    Its connection is closed when nothing refers to the state.
    """

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self.connection.close)
        create_in(self.connection, CLUSTER_ID)
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


_kept: list[Metadata] = []


def database_of(*records: MetadataRecord) -> sqlite3.Connection:
    """The database of such a cluster, open until the test has ended."""
    _kept.append(metadata(*records))
    return _kept[-1].connection


def close_databases() -> None:
    """Close what `database_of` has opened."""
    _kept.clear()
