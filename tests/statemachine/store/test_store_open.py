"""Opening the database: ours is kept, an unusable one is set aside, another cluster's is refused."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from kraftbase.errors import DirectoryError, StorageError
from statemachine.query import metadata_queries
from statemachine.query.descriptions import Counts
from statemachine.store.store import MetadataStore
from statemachine.tables.database import open_reader
from tests.statemachine.builders import CLUSTER_ID, config, log_of, partition, topic

LOG = log_of([[topic("a", 1)], [partition(1)], [config("a", "retention.ms", "1")]])


def filled(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply(LOG)


def test_a_new_database_starts_before_the_first_offset(store: MetadataStore) -> None:
    assert store.applied == (0, 0, "00" * 16)


def test_what_was_applied_is_there_after_a_reopen(database: Path) -> None:
    filled(database)
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 3
        assert metadata_queries.counts(store.reader) == Counts(3, topics=1, partitions=1, brokers=0, configs=1)
    assert not database.with_name("metadata.db.damaged").exists()


def overwrite_header(database: Path) -> None:
    database.write_bytes(b"this is no database at all" * 200)


def overwrite_pages(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[4096 : 3 * 4096] = b"\x5a" * (2 * 4096)
    database.write_bytes(content)


def cut_off(database: Path) -> None:
    database.write_bytes(database.read_bytes()[: 3 * 4096])


def drop_a_table(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TABLE applied")


def make_it_foreign(database: Path) -> None:
    database.unlink()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE holiday_pictures (name TEXT)")


def make_it_newer(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        Database(connection)["_sqlite_migrations"].insert(  # type: ignore[union-attr]
            {"migration_set": "kraftlog", "name": "0099_from_the_future", "applied_at": "2099"}
        )


@pytest.mark.parametrize(
    "spoil", [overwrite_header, overwrite_pages, cut_off, drop_a_table, make_it_foreign, make_it_newer]
)
def test_a_database_that_cannot_be_used_is_set_aside_and_made_again(
    database: Path, spoil: Callable[[Path], None]
) -> None:
    filled(database)
    spoil(database)
    spoiled = database.read_bytes()
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 0
        store.apply(LOG)
        assert metadata_queries.counts(store.reader).partitions == 1
    aside = database.with_name("metadata.db.damaged")
    assert aside.stat().st_size >= len(spoiled)


def test_only_the_last_one_set_aside_is_kept(database: Path) -> None:
    for _ in range(2):
        filled(database)
        overwrite_header(database)
        MetadataStore.open(database, CLUSTER_ID).close()
    assert sorted(path.name for path in database.parent.iterdir()) == ["metadata.db", "metadata.db.damaged"]


def test_another_clusters_database_is_refused_and_left_alone(database: Path) -> None:
    filled(database)
    with pytest.raises(DirectoryError, match="of cluster 5L6g3nShT-eMCtK--X86sw, not of someOtherCluster"):
        MetadataStore.open(database, "someOtherCluster")
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 3


def test_a_database_that_cannot_be_had_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "no-such-directory" / "metadata.db"
    with pytest.raises(StorageError, match="no-such-directory"):
        MetadataStore.open(missing, CLUSTER_ID)


@pytest.mark.parametrize("opened_before", [1, 2])
def test_a_store_that_cannot_open_one_more_connection_leaves_none_open(
    database: Path, monkeypatch: pytest.MonkeyPatch, opened_before: int
) -> None:
    """As when the process has no file descriptor left; the first connection is the writer's."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def limited(*arguments: Any, **options: Any) -> sqlite3.Connection:
        if len(opened) == opened_before:
            raise sqlite3.OperationalError("unable to open database file")
        opened.append(connect(*arguments, **options))
        return opened[-1]

    with monkeypatch.context() as patches:
        patches.setattr(sqlite3, "connect", limited)
        with pytest.raises(StorageError, match="unable to open database file"):
            MetadataStore.open(database, CLUSTER_ID)
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_only_its_owner_may_read_the_database(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply(LOG)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in database.parent.iterdir()}
    assert modes == {"metadata.db": 0o600, "metadata.db-wal": 0o600, "metadata.db-shm": 0o600}


def test_a_database_can_be_read_while_its_node_runs_and_when_it_does_not(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        store.apply(LOG)
        with closing(open_reader(database)) as reader:
            assert metadata_queries.counts(reader).topics == 1
    with closing(open_reader(database)) as reader:
        assert metadata_queries.applied_end_offset(reader) == 3


def test_reading_what_is_no_metadata_database_is_an_error_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        open_reader(tmp_path / "missing.db")
    assert list(tmp_path.iterdir()) == []
