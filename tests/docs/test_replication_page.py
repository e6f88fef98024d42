"""docs/operations/replication.md explains every word that is said about a replica, and docs/sql.md has every column."""

from __future__ import annotations

import re
from typing import Final

from kraftlog.broker.apis.replicas import DISK_FULL
from kraftlog.clients.replica_tables import ABOUT_TO_JOIN, ABOUT_TO_LEAVE, COLUMNS, TABLES
from kraftlog.replicas.replication import leading
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "operations" / "replication.md").read_text()
SQL: Final = (ROOT / "docs" / "sql.md").read_text()
ALWAYS_THERE: Final = {"Topic", "Partition", "Broker"}


def test_every_reason_is_explained_with_what_to_do() -> None:
    explained = re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    reasons = [
        value for value in vars(leading).values() if isinstance(value, str) and re.fullmatch(r"[a-z]+(-[a-z]+)*", value)
    ]
    assert len(reasons) >= 8
    assert sorted(explained) == sorted([*reasons, ABOUT_TO_JOIN, DISK_FULL])
    assert f"`{ABOUT_TO_LEAVE}`" in PAGE


def test_every_column_is_explained() -> None:
    rows = re.findall(r"^\| (`[A-Z]\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)
    assert ALWAYS_THERE | {name for row in rows for name in re.findall(r"\w+", row) if not name.isupper()} >= set(
        COLUMNS
    )


def test_the_tables_in_sql_are_those_of_the_page() -> None:
    section = SQL.partition("\n## Replicas, as their leaders see them\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([a-z_, ]+) \|$", section, re.MULTILINE)
    assert {table: tuple(columns.split(", ")) for table, columns in rows} == TABLES
