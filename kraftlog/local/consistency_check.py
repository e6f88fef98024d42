"""Counts in a node's SQLite, to be compared with those of Spark in the exported log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from raft.storage.directory import METADATA_DATABASE_NAME
from statemachine.query.descriptions import Counts
from statemachine.query.metadata_queries import counts
from statemachine.tables.database import open_reader


def node_counts(data_directory: Path) -> Counts:
    """The counts of the node whose data is in that directory, all at one applied offset, also while the node runs.

    Raises StorageError if there is no database that can be read.
    """
    with closing(open_reader(data_directory / METADATA_DATABASE_NAME)) as connection:
        return counts(connection)
