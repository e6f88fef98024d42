"""Records that only Kafka uses: put, replaced and removed by key, in snapshots, and read by no statement."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import ApiError
from kraftbase.files.posix import PosixFileSystem
from kraftpb.v1.metadata_pb2 import MetadataRecord, OpaqueRecord
from snapshot.store import SnapshotStore
from statemachine.store.image import load_image, snapshot_point, write_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.store.sql import run_query
from statemachine.store.store import MetadataStore
from statemachine.tables.database import create_in
from statemachine.tables.opaque_tables import OPAQUE_NAMES
from tests.statemachine.builders import CLUSTER_ID, batch
from tests.statemachine.conftest import Query

PUT = {
    "user_scram_credential": "scram_credentials",
    "delegation_token": "delegation_tokens",
    "zk_migration_state": "zk_migration_states",
}


def opaque(kind: str, key: str, value: bytes = b"") -> MetadataRecord:
    return MetadataRecord(**{kind: OpaqueRecord(key=key, value=value)})


@pytest.mark.parametrize(("kind", "table"), PUT.items())
def test_one_replaces_that_of_its_key(store: MetadataStore, rows: Query, kind: str, table: str) -> None:
    store.apply([batch(0, [opaque(kind, "a", b"1"), opaque(kind, "b", b"2"), opaque(kind, "a", b"3")])])
    assert rows(f"SELECT * FROM {table}") == [("a", b"3"), ("b", b"2")]


@pytest.mark.parametrize("kind", ["user_scram_credential", "delegation_token"])
def test_one_is_removed_by_its_key_if_it_is_there(store: MetadataStore, rows: Query, kind: str) -> None:
    store.apply([batch(0, [opaque(kind, "a", b"1"), opaque(kind, "b", b"2")])])
    store.apply([batch(2, [opaque(f"remove_{kind}", "a"), opaque(f"remove_{kind}", "c")])])
    assert rows(f"SELECT * FROM {PUT[kind]}") == [("b", b"2")]


def test_a_snapshot_has_them(tmp_path: Path) -> None:
    records = [opaque(kind, "key", kind.encode()) for kind in PUT]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_in(connection, CLUSTER_ID)
        MetadataTables(connection).apply([batch(0, records)])
        point = snapshot_point(connection)
        assert point is not None
        snapshots = SnapshotStore(PosixFileSystem(), str(tmp_path))
        writer = snapshots.create(*point)
        assert writer is not None
        with writer:
            write_image(connection, writer)
            writer.freeze()
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as other,
        snapshots.open(point.snapshot_id) as reader,
    ):
        create_in(other, CLUSTER_ID)
        load_image(reader, MetadataTables(other))
        for kind, table in PUT.items():
            assert other.execute(f"SELECT * FROM {table}").fetchall() == [("key", kind.encode())]


@pytest.mark.parametrize("table", sorted(OPAQUE_NAMES))
def test_a_statement_counts_them_and_reads_nothing(table: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create_in(connection, CLUSTER_ID)
        MetadataTables(connection).apply([batch(0, [opaque(kind, "key", b"value") for kind in PUT])])
        connection.execute("PRAGMA query_only = 1")

        def ask(sql: str) -> list[tuple[object, ...]]:
            return run_query(connection, sql, rows_max=10, timeout_seconds=60).rows

        assert ask(f"SELECT count(*) FROM {table}") == [(1,)]
        for columns in ("*", "key", "value", "hex(value)", "count(value)"):
            with pytest.raises(ApiError, match=f"would read {table}, which is never shown; count its rows"):
                ask(f"SELECT {columns} FROM {table}")
        with pytest.raises(ApiError, match="never shown"):
            ask(f"SELECT 1 FROM topics WHERE EXISTS (SELECT 1 FROM {table} WHERE key LIKE 'k%')")
