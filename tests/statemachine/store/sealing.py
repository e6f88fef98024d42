"""For tests that write to a metadata database by themselves: its content then counts as what was applied."""

from __future__ import annotations

import sqlite3

from statemachine.tables.catalogue import TABLES
from statemachine.tables.row_sums import RowSums


def seal(connection: sqlite3.Connection) -> None:
    """Set the sums of rows, and their seal, to those of the database's current content."""
    sums = RowSums()
    for table in TABLES:
        sums.add(table, connection.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}").fetchall())
    columns = "cluster_id, end_offset, epoch, digest, timestamp_ms, state_digest_end_offset, state_digest"
    applied = connection.execute(f"SELECT {columns} FROM applied").fetchone()
    connection.execute("UPDATE applied SET row_sums = ?", (sums.encoded(applied),))
