"""A database whose schema is corrupted where SQLite does not check is set aside; the node still starts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from statemachine.store.store import MetadataStore
from tests.statemachine.builders import batch, topic


def test_a_rotten_column_name_makes_the_database_anew(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = MetadataStore.open(path, "cluster")
    store.apply([batch(0, [topic("a", 1)])])
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'state_digest_end_offset', 'stateOdigest_end_offset')"
        )
    store = MetadataStore.open(path, "cluster")
    assert store.applied_end_offset == 0
    assert (tmp_path / "metadata.db.damaged").exists()
    store.close()
