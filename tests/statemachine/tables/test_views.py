"""The views show what the tables hold, topics by name, as docs/sql.md describes them."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from kraftbase.ids import id_to_text
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.store.store import MetadataStore
from statemachine.tables.database import UnusableDatabase, check_tables
from tests.paths import ROOT
from tests.statemachine.builders import BROKER, an_id, batch, broker, config, partition, topic
from tests.statemachine.remote_logs import copied, segment
from tests.statemachine.sample_cluster import SAMPLE
from tests.statemachine.states import database_of, metadata

DOC: Final = ROOT / "docs" / "sql.md"


@pytest.fixture
def connection() -> sqlite3.Connection:
    return database_of(*SAMPLE)


def rows(connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    """The rows found; JSON arrays as lists."""
    found = connection.execute(sql).fetchall()
    return [
        tuple(json.loads(value) if isinstance(value, str) and value[:1] == "[" else value for value in row)
        for row in found
    ]


def test_replicas_are_shown_one_by_one(connection: sqlite3.Connection) -> None:
    assert rows(
        connection,
        "SELECT partition_id, broker_id, position, is_leader, is_preferred, in_sync, is_adding, is_removing"
        " FROM replicas WHERE topic = 'orders' ORDER BY partition_id, position",
    ) == [
        (0, 1, 0, 1, 1, 1, 0, 0),
        (0, 2, 1, 0, 0, 1, 0, 0),
        (0, 3, 2, 0, 0, 0, 0, 0),
        (1, 3, 0, 0, 1, 1, 0, 0),
        (1, 2, 1, 0, 0, 0, 0, 0),
        (2, 2, 0, 0, 1, 1, 0, 1),
        (2, 1, 1, 1, 0, 1, 0, 0),
        (2, 3, 2, 0, 0, 0, 1, 0),
    ]
    directories = rows(connection, "SELECT DISTINCT directory FROM replicas WHERE broker_id = 3")
    assert directories == [(id_to_text(an_id(903)),)]


def test_in_sync_replicas_are_shown_one_by_one(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM isr ORDER BY topic, partition_id, broker_id") == [
        ("logs", 0, 9),
        ("orders", 0, 1),
        ("orders", 0, 2),
        ("orders", 1, 3),
        ("orders", 2, 1),
        ("orders", 2, 2),
    ]


def test_a_partition_is_under_replicated_by_those_that_are_to_stay() -> None:
    fallen_behind = PartitionRecord(
        topic_id=an_id(1),
        partition_id=3,
        replicas=[1, 3, 2],
        isr=[1],
        leader=1,
        adding_replicas=[3],
        removing_replicas=[2],
    )
    connection = database_of(*SAMPLE, MetadataRecord(partition=fallen_behind))
    assert rows(connection, "SELECT * FROM under_replicated_partitions ORDER BY partition_id") == [
        ("orders", 0, 1, [1, 2, 3], [1, 2], [3]),
        ("orders", 1, -1, [3, 2], [3], [2]),
    ]


def test_db22_the_least_isr_is_the_topics_then_the_clusters_then_one_and_at_most_the_replicas(
    connection: sqlite3.Connection,
) -> None:
    def under_min_isr() -> list[tuple[Any, ...]]:
        return rows(connection, "SELECT * FROM under_min_isr_partitions ORDER BY topic, partition_id")

    assert under_min_isr() == [("orders", 1, -1, [3], 2)]
    state = metadata(*SAMPLE, config("orders", "min.insync.replicas", "3"), config("logs", "min.insync.replicas", None))
    connection = state.connection
    assert under_min_isr() == [
        ("orders", 0, 1, [1, 2], 3),
        ("orders", 1, -1, [3], 2),  # of two replicas
        ("orders", 2, 1, [2, 1], 3),
    ]
    state.commit(config("", "min.insync.replicas", None, BROKER), config("orders", "min.insync.replicas", None))
    assert under_min_isr() == []


def test_partitions_without_a_leader_are_offline(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM offline_partitions") == [("orders", 1, 4, [3, 2], [3], [], [])]


def test_leaders_are_counted_where_they_are_and_where_they_should_be(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM leader_skew") == [
        (1, 2, 1, 0, 0.0),
        (2, 0, 1, 1, 1.0),
        (3, 0, 1, 1, 1.0),
        (4, 0, 0, 0, 0.0),
        (9, 1, 1, 0, 0.0),
    ]


def test_every_broker_has_its_load(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM broker_load") == [
        (1, 1, 0, "east", 2, 2),
        (2, 1, 0, "east", 3, 0),
        (3, 1, 1, "west", 3, 0),
        (4, 1, 0, None, 0, 0),
        (9, 0, None, None, 1, 1),
    ]


def test_every_log_directory_has_its_replicas() -> None:
    held, failed, cordoned, unknown = an_id(901), an_id(902), an_id(903), bytes(16)
    registered = broker(1)
    registered.register_broker.log_dirs.extend([held, cordoned])
    registered.register_broker.cordoned_log_dirs.append(cordoned)
    registered.register_broker.full_log_dirs.append(held)
    kept = PartitionRecord(topic_id=an_id(1), partition_id=0, replicas=[1, 2], isr=[1], leader=1)
    kept.directories.extend([held, unknown])
    lost = PartitionRecord(topic_id=an_id(1), partition_id=1, replicas=[1], isr=[1], leader=-1, directories=[failed])
    records = [topic("orders", 1), *(MetadataRecord(partition=of) for of in (kept, lost))]
    connection = database_of(registered, *records)
    assert set(rows(connection, "SELECT * FROM log_directories")) == {
        (1, id_to_text(held), 1, 0, 1, 1, 1),
        (1, id_to_text(failed), 0, 0, 0, 1, 0),
        (1, id_to_text(cordoned), 1, 1, 0, 0, 0),
        (2, "A" * 22, 0, 0, 0, 1, 0),
    }


def test_reassignments_say_what_comes_of_them(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM reassignments") == [("orders", 2, [2, 1, 3], [3], [2], [1, 3])]


def test_tiered_partitions_are_summed_up_even_after_their_topic(connection: sqlite3.Connection) -> None:
    assert rows(connection, "SELECT * FROM tiered_partitions ORDER BY topic_id") == [
        ("orders", id_to_text(an_id(1)), 0, 2, 300, 0, 29, 1, 0, None),
        (None, id_to_text(an_id(3)), 0, 0, 0, None, None, 0, 1, 0),
    ]


OF_TOPICS = (
    "replicas",
    "isr",
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "offline_partitions",
    "reassignments",
    "tiered_partitions",
)


def test_of_one_topic_a_view_reads_no_other() -> None:
    def steps(topics: int) -> dict[str, int]:
        records = [topic(f"t{number}", number) for number in range(topics)]
        records += [partition(number, part) for number in range(topics) for part in range(5)]
        for number in range(topics):
            records += [record for part in range(20) for record in copied(segment(part, part, part, topic=number))]
        database = database_of(*records)
        return {view: steps_of(database, f"SELECT * FROM {view} WHERE topic = 't3'") for view in OF_TOPICS}

    many, few = steps(100), steps(10)
    assert {view: (many[view], few[view]) for view in OF_TOPICS if many[view] > 1.1 * few[view]} == {}


def steps_of(connection: sqlite3.Connection, sql: str) -> int:
    """How many instructions SQLite's machine executes for a statement; their number shows more than its plan."""
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    connection.set_progress_handler(counted, 1)
    connection.execute(sql).fetchall()
    connection.set_progress_handler(None, 0)
    return count


def test_without_partitions_the_views_are_empty_but_for_brokers() -> None:
    connection = database_of(broker(1))
    assert rows(connection, "SELECT * FROM leader_skew") == [(1, 0, 0, 0, 0.0)]
    assert rows(connection, "SELECT * FROM broker_load") == [(1, 1, 0, None, 0, 0)]
    assert rows(connection, "SELECT * FROM replicas") == []


# --- the schema -------------------------------------------------------------------------------------------------------


def test_a_view_that_is_gone_or_another_is_noticed(connection: sqlite3.Connection) -> None:
    check_tables(connection)
    connection.execute("DROP VIEW isr")
    with pytest.raises(UnusableDatabase, match="views"):
        check_tables(connection)
    connection.execute("CREATE VIEW isr AS SELECT 'orders' AS topic, 0 AS partition_id, 1 AS broker_id")
    with pytest.raises(UnusableDatabase, match="views"):
        check_tables(connection)


def test_a_database_without_its_views_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = MetadataStore.open(path, "cluster")
    store.apply([batch(0, [broker(1)])])
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP VIEW leader_skew")
    store = MetadataStore.open(path, "cluster")
    assert store.applied_end_offset == 0
    assert rows(store.reader, "SELECT * FROM leader_skew") == []
    store.close()


def test_the_documentation_has_every_table_and_view_with_every_column(connection: sqlite3.Connection) -> None:
    actual = {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        if name != "_sqlite_migrations"
    }
    documented = {
        heading: re.findall(r"^\| (\w+) \|", section, re.MULTILINE)[1:]
        for heading, section in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", DOC.read_text(), re.MULTILINE | re.DOTALL)
    }
    assert documented == actual
