"""Clients' statements: they read, within bounds, and nothing else; those of docs/sql.md find what it states."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.types import Epoch, Offset
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, PartitionRecord
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from statemachine.store.sql import VALUE_BYTES_MAX, QueryResult, run_query
from statemachine.store.store import MetadataStore
from statemachine.tables.database import open_reader
from tests.statemachine.builders import BROKER, an_id, batch, broker, config, partition, topic
from tests.statemachine.sample_cluster import SAMPLE
from tests.statemachine.states import database_of, metadata
from tests.statemachine.tables.test_views import DOC

QUERIES: Final = re.findall(r"^```sql\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)

PAGES: Final = "".join(path.read_text() for path in sorted((DOC.parent / "operations").glob("*.md")))
PAGE_QUERIES: Final = {
    word: next(sql for sql in re.findall(r'kraftlog sql "(.*?)"', PAGES, re.DOTALL) if word in sql)
    for word in ("goes_offline", "min(rack)")
}
"""Queries on the pages for operators, by a word that only they have."""

ENDLESS: Final = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


@pytest.fixture
def reader(store: MetadataStore) -> Iterator[sqlite3.Connection]:
    records = [topic("near", 5), partition(5, 0, (1, 2))]  # brokers of the same rack
    body = MetadataBatch(records=records).SerializeToString()
    hours_later = CommittedBatch(encode_batch(Offset(len(SAMPLE)), Epoch(1), body, len(records), 10_000_000, False))
    store.apply([batch(0, SAMPLE), hours_later])
    with closing(open_reader(store.path)) as connection:
        yield connection


def run(reader: sqlite3.Connection, sql: str, **bounds: Any) -> QueryResult:
    return run_query(reader, sql, **{"rows_max": 1_000, "timeout_seconds": 10.0, **bounds})


def refusal(reader: sqlite3.Connection, sql: str, **bounds: Any) -> str:
    """Why a statement is refused."""
    with pytest.raises(ApiError) as refused:
        run(reader, sql, **bounds)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    message: str = refused.value.args[0]
    return message


# --- results --------------------------------------------------------------------------------------------------------


def test_a_query_has_columns_and_rows_of_all_types(reader: sqlite3.Connection) -> None:
    found = run(reader, "SELECT 1 AS a, 2.5 AS b, 'x' AS c, x'00' AS d, NULL AS e")
    assert found == QueryResult(("a", "b", "c", "d", "e"), [(1, 2.5, "x", b"\0", None)])
    assert run(reader, "SELECT name FROM topics WHERE 0") == QueryResult(("name",), [])


@pytest.mark.parametrize(
    "sql",
    [
        "-- which\n /* topics */ ;select name from topics",
        "WITH x AS (SELECT 1) SELECT * FROM x;",
        "VALUES (1)",
        "EXPLAIN QUERY PLAN SELECT * FROM replicas",
        "EXPLAIN SELECT 1",
        "PRAGMA table_info(topics)",
        "PRAGMA table_info = topics",
        "pragma user_version",
        "SELECT name FROM pragma_table_info('topics')",
        "SELECT value FROM json_each('[1, 2]')",
        "SELECT sql FROM sqlite_master",
        "SELECT replace(upper(name), 'O', '0') FROM topics",
    ],
)
def test_what_reads_can_be_run(reader: sqlite3.Connection, sql: str) -> None:
    assert run(reader, sql).rows


@pytest.mark.parametrize("sql", QUERIES)
def test_the_queries_of_the_documentation_can_be_run(reader: sqlite3.Connection, sql: str) -> None:
    assert run(reader, sql).columns


def test_the_documentation_has_a_dozen_queries_and_each_finds_something(reader: sqlite3.Connection) -> None:
    answers = [run(reader, sql).rows for sql in QUERIES]
    assert len(answers) >= 12
    assert answers[0] == [
        ("under replicated", "orders", 0),
        ("offline", "orders", 1),
        ("under min isr", "orders", 1),
        ("under replicated", "orders", 1),
    ]
    assert answers[1] == [(2, 1), (3, 1)]
    assert answers[2] == [("near", 0, 2, 0), ("orders", 0, 2, 0), ("orders", 2, 2, 0)]
    assert answers[3] == [("near", 0, "east")]
    by_question = dict(zip(QUERIES, answers, strict=True))
    of_acls = next(rows for sql, rows in by_question.items() if "FROM acls" in sql)
    assert of_acls == [("User:alice", "*", "allow"), ("User:bob", "*", "allow")]
    assert [sql for sql, rows in by_question.items() if not rows] == []


STOP_OF_BROKER_2: Final = (
    ("[2]", "[]", 1),
    ("[2]", "[1]", 0),
    ("[2]", "[3]", 1),  # is fenced
    ("[2]", "[5]", 1),  # is shutting down
    ("[2]", "[9]", 1),  # is not registered
    ("[2, 3]", "[1]", 1),  # broker 3 is leaving: while it is in the ISR no other replica is elected
    ("[2, 1]", "[3]", 0),
)


@pytest.mark.parametrize(("isr", "eligible", "goes_offline"), STOP_OF_BROKER_2)
def test_an_eligible_replica_keeps_a_partition_online_when_a_broker_stops(
    isr: str, eligible: str, goes_offline: int
) -> None:
    shuts_down = broker(5, in_controlled_shutdown=True)
    of_ours = PartitionRecord(
        topic_id=an_id(5),
        replicas=[1, 2, 3, 5, 9],
        isr=json.loads(isr),
        eligible_leader_replicas=json.loads(eligible),
        leader=2,
        directories=[an_id(900)] * 5,
    )
    state = metadata(*SAMPLE, shuts_down, topic("near", 5), MetadataRecord(partition=of_ours))
    for sql in (QUERIES[2], PAGE_QUERIES["goes_offline"].replace("102", "2")):
        rows = state.connection.execute(sql).fetchall()
        assert [row for row in rows if row[0] == "near"] == [("near", 0, len(of_ours.isr), goes_offline)]


def documented(question: str) -> str:
    """The query that answers a question of docs/sql.md, by how that begins."""
    found = re.search(rf"^{re.escape(question)}.*?^```sql\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, question
    return found[1]


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ({"1": "2"}, {"all": None, "1": "2", "2": None}),
        ({"": "2", "1": "3"}, {"all": "2", "1": "3", "2": "2"}),
        ({"": "2", "1": "3", "2": "3"}, {"all": "2", "1": "3", "2": "3"}),
        ({"": "2", "1": "2"}, None),
        ({"": "2"}, None),
        ({"": "2", "7": "3"}, None),  # which is no longer registered
    ],
)
def test_a_config_of_one_broker_differs_from_what_the_others_have_by_default(
    configs: dict[str, str], found: dict[str, str | None] | None
) -> None:
    records = [config(name, "min.insync.replicas", value, BROKER) for name, value in configs.items()]
    rows = database_of(broker(1), broker(2), *records).execute(documented("Which configs differ")).fetchall()
    assert [(name, json.loads(values)) for name, values in rows] == (
        [] if found is None else [("min.insync.replicas", found)]
    )


@pytest.mark.parametrize(
    ("of_cluster", "found"),
    [
        ([], [("for_ever", -1)]),
        ([config("", "log.retention.ms", "-1", BROKER)], [("for_ever", -1), ("inherits", -1)]),
        ([config("", "log.retention.ms", "604800001", BROKER)], [("for_ever", -1), ("inherits", 604_800_001)]),
        ([config("", "log.retention.ms", "5", BROKER)], [("for_ever", -1)]),
        ([config("1", "log.retention.ms", "-1", BROKER)], [("for_ever", -1)]),
    ],
)
def test_topics_inherit_how_long_they_keep_their_records(
    of_cluster: list[MetadataRecord], found: list[tuple[str, int]]
) -> None:
    topics = [topic("for_ever", 1), topic("inherits", 2), topic("a_week", 3)]
    of_topics = [config("for_ever", "retention.ms", "-1"), config("a_week", "retention.ms", "604800000")]
    connection = database_of(broker(1), *topics, *of_topics, *of_cluster)
    assert connection.execute(documented("Which topics keep their records")).fetchall() == found


def test_brokers_without_a_rack_are_in_one_rack_together() -> None:
    connection = database_of(
        *(broker(broker_id, rack=rack) for broker_id, rack in ((1, None), (2, None), (3, "east"))),
        topic("none", 1),
        topic("mixed", 2),
        partition(1, 0, (1, 2)),
        partition(2, 0, (1, 3)),
    )
    for sql in (documented("Which partitions have all their replicas in one rack?"), PAGE_QUERIES["min(rack)"]):
        assert connection.execute(sql).fetchall() == [("none", 0, None)]


def test_it_reads_within_the_transaction_that_is_open(reader: sqlite3.Connection, store: MetadataStore) -> None:
    reader.execute("BEGIN")
    before = run(reader, "SELECT end_offset FROM applied").rows
    store.apply([batch(before[0][0], SAMPLE[:1])])
    assert run(reader, "SELECT end_offset FROM applied").rows == before
    assert reader.in_transaction
    reader.execute("COMMIT")
    assert run(reader, "SELECT end_offset FROM applied").rows == [(before[0][0] + 1,)]


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM topics", "begins with DELETE"),
        ("VACUUM INTO '{other}'", "begins with VACUUM"),
        ("ATTACH '{other}' AS other", "begins with ATTACH"),
        ("BEGIN", "begins with BEGIN"),
        ("", "is no statement"),
        ("/* only a comment", "is no statement"),
        ("WITH x AS (SELECT 1) DELETE FROM topics", "would delete rows"),
        ("WITH x AS (SELECT 1) INSERT INTO topics SELECT 'a', 'b'", "would insert rows"),
        ("WITH x AS (SELECT 1) UPDATE topics SET name = 'a'", "would update rows"),
        ("WITH x AS (SELECT 1) UPDATE sqlite_master SET sql = 'a'", "may not be modified"),
        ("EXPLAIN ATTACH '{other}' AS other", "would open another file"),
        ("EXPLAIN CREATE TABLE x (y)", "it may only read"),
        ("EXPLAIN BEGIN", "would begin or end a transaction"),
        ("PRAGMA query_only = 0", "would set PRAGMA query_only"),
        ("PRAGMA user_version = 7", "would set PRAGMA user_version"),
        ("PRAGMA wal_checkpoint", "would use PRAGMA wal_checkpoint"),
        ("PRAGMA database_list", "would use PRAGMA database_list"),
        ("SELECT * FROM pragma_database_list", "would use PRAGMA database_list"),
        ("SELECT load_extension('{other}')", r"would call load_extension\(\)"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT 1; DELETE FROM topics", "one statement at a time"),
        ("SELECT ?", "bindings"),
        ("SELECT \0", "NUL character"),
        ("SELECT '\ud800'", "surrogates"),
        ("SELECT CAST(x'ff' AS TEXT)", "UTF-8"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("SELECT " + ", ".join("1" * 101), "too many columns"),
        ("SELECT FROM topics", 'near "FROM": syntax error'),
        ("SELECT '" + "x" * 100_000 + "'", "has 100009 characters"),
    ],
)
def test_anything_else_is_refused_and_changes_nothing(
    reader: sqlite3.Connection, tmp_path: Path, sql: str, words: str
) -> None:
    other = tmp_path / "other.db"
    before = list(reader.iterdump())
    assert re.search(words, refusal(reader, sql.replace("{other}", str(other))))
    assert not other.exists()
    assert list(reader.iterdump()) == before


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM topcs", "no such table: topcs; did you mean topics?"),
        ("SELECT * FROM main.Partition", "did you mean partitions"),
        ("SELECT * FROM qqqqq", "no such table: qqqqq; there are acls, applied, broker_load,"),
        ("SELECT nme FROM topics", "no such column: nme; did you mean name?"),
        ("SELECT qqqqq FROM topics", "see PRAGMA table_info(a table's name)"),
    ],
)
def test_a_name_that_is_none_is_answered_with_those_that_are(reader: sqlite3.Connection, sql: str, words: str) -> None:
    assert words in refusal(reader, sql)


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["count(*) FROM n", "x FROM n WHERE x < 0", "x FROM n ORDER BY x"])
def test_a_query_that_takes_too_long_is_ended(reader: sqlite3.Connection, what: str) -> None:
    assert "took longer than 0.2 s" in refusal(reader, f"{ENDLESS} {what}", timeout_seconds=0.2)


def test_a_query_that_finds_too_much_is_ended(reader: sqlite3.Connection) -> None:
    assert "more than 10 rows" in refusal(reader, f"{ENDLESS} x FROM n", rows_max=10)
    assert len(run(reader, f"{ENDLESS} x FROM n LIMIT 10", rows_max=10).rows) == 10
    assert "more than 50000 bytes" in refusal(reader, f"{ENDLESS} zeroblob(1000) FROM n LIMIT 100", bytes_max=50_000)


def test_a_value_that_is_too_large_is_refused(reader: sqlite3.Connection) -> None:
    assert len(run(reader, f"SELECT zeroblob({VALUE_BYTES_MAX - 100})").rows[0][0]) == VALUE_BYTES_MAX - 100
    for value in (f"zeroblob({VALUE_BYTES_MAX + 1})", "replace(hex(zeroblob(500000)), '0', '0000')"):
        assert "a single value may have 1048576 bytes" in refusal(reader, f"SELECT length({value} || '')")


def test_a_like_pattern_that_could_run_for_ever_is_refused(reader: sqlite3.Connection) -> None:
    assert "pattern too complex" in refusal(reader, f"SELECT 'aaa' LIKE '{'%a' * 1_000}'")


def test_the_connection_is_as_before_afterwards(reader: sqlite3.Connection) -> None:
    for sql in ("SELECT 1", "SELECT * FROM missing", f"{ENDLESS} x FROM n"):
        try:
            run(reader, sql)
        except ApiError:
            continue
    assert reader.execute("SELECT length(zeroblob(5000000))").fetchone() == (5_000_000,)
    assert reader.execute("PRAGMA database_list").fetchall()


def test_it_needs_a_connection_that_can_only_read(store: MetadataStore) -> None:
    with closing(sqlite3.connect(store.path)) as connection, pytest.raises(InvariantViolation, match="only read"):
        run(connection, "SELECT 1")


def test_a_database_that_cannot_be_read_is_no_fault_of_the_query(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE x (y)")
        connection.execute("CREATE TABLE z (y)")
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA query_only = 1")
        with pytest.raises(ApiError, match="cannot be read: database disk image is malformed") as refused:
            run(connection, "SELECT * FROM x")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
