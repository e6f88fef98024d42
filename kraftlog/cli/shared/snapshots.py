"""A snapshot's metadata as a database, for the commands that read one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kraftlog.cli.shared.progress import late_progress


def load_snapshot(path: Path) -> sqlite3.Connection:
    """A database in memory with all that a snapshot holds. The snapshot is checked as it is read, with a progress bar
    if that takes long.

    Raises CorruptSnapshot, or StorageError if it cannot be read.
    """
    from kraftbase.files.posix import PosixFileSystem
    from snapshot.reader import SnapshotReader
    from statemachine.store.image import load_image
    from statemachine.store.metadata_tables import MetadataTables
    from statemachine.tables.database import create_in

    with SnapshotReader(PosixFileSystem(), str(path)) as reader:
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            create_in(connection, reader.header.cluster_id)
            with late_progress("loading") as progress:
                load_image(reader, MetadataTables(connection), progress)
            connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
    return connection
