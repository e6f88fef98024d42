"""The query of docs/formats/export.md, "who led what, when", in SQLite; test_spark.py has it in Spark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Final

from tests.kraftlog.analytics.exports import expected_rows
from tests.kraftlog.analytics.logs import HandMadeLog, small_log
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "formats" / "export.md").read_text()
QUERY: Final = PAGE.split("```sql\n")[1].split("```")[0]
COLUMNS: Final = ("offset", "timestamp", "record_type", "topic_id", "topic", "partition", "leader")

Leadership = tuple[str, str, int, int, datetime, datetime | None]


def leaderships(log: HandMadeLog) -> set[Leadership]:
    """By a plain replay: topic, id, partition, leader, since when, and until when, None if it leads still."""
    names: dict[str, str] = {}
    leading: dict[tuple[str, int], tuple[int, datetime]] = {}
    found: set[Leadership] = set()

    def end(topic_id: str, partition: int, until: datetime | None) -> None:
        if (topic_id, partition) in leading:
            leader, since = leading.pop((topic_id, partition))
            found.add((names[topic_id], topic_id, partition, leader, since, until))

    for row in expected_rows(log):
        topic_id, now = row["topic_id"], row["timestamp"]
        match row["record_type"]:
            case "TOPIC_RECORD":
                names[topic_id] = row["topic"]
            case "PARTITION_RECORD" | "PARTITION_CHANGE_RECORD" if row["leader"] is not None:
                end(topic_id, row["partition"], now)
                leading[topic_id, row["partition"]] = row["leader"], now
            case "REMOVE_TOPIC_RECORD":
                for of, partition in [key for key in leading if key[0] == topic_id]:
                    end(of, partition, now)
    for topic_id, partition in list(leading):
        end(topic_id, partition, None)
    return found


def test_it_ends_with_a_deleted_topic_and_begins_again_with_one_of_the_same_name() -> None:
    rows = [tuple(row[name] for name in COLUMNS) for row in expected_rows(small_log())]
    times = {str(row[1]): row[1] for row in rows}
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE log ({', '.join(COLUMNS)})")
        lines = [(row[0], str(row[1]), *row[2:]) for row in rows]
        database.executemany(f"INSERT INTO log VALUES ({', '.join('?' * len(COLUMNS))})", lines)
        answered = database.execute(QUERY).fetchall()
    spans = {(*row[:4], times[row[4]], times.get(row[5])) for row in answered}
    assert len(answered) == len(spans)
    assert spans == leaderships(small_log())
    clicks = sorted(
        (since, until) for topic, _, partition, _, since, until in spans if (topic, partition) == ("clicks", 0)
    )
    assert [until is None for _, until in clicks] == [False, True]
