"""How the metadata of two Kafkas differs, row by row. Both are read once, in the order of their keys."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from typing import Any, Final, NamedTuple

from kraftlog.offline.kafka.directory import Progress
from kraftlog.offline.kafka.secrets import HIDDEN, is_sensitive
from statemachine.tables.catalogue import TABLES
from statemachine.tables.cluster_tables import CONFIGS
from statemachine.tables.opaque_tables import OPAQUE_TABLES
from statemachine.tables.table import Row, Table

COLUMNS: Final = ("Table", "Key", "Change", "Columns")

ROWS_PER_STEP: Final = 1_024
"""Progress is reported after this many rows."""


class Difference(NamedTuple):
    """A row that is in only one of the two, or differs."""

    table: Table[Any]
    key: dict[str, Any]
    """By column; of a partition, with the topic's name."""
    before: Row | None
    after: Row | None

    def row(self) -> dict[str, Any]:
        """For people and programs."""
        if self.table in OPAQUE_TABLES:
            change = "added" if self.before is None else "removed" if self.after is None else "changed"
            return {"Table": self.table.name, "Key": {"key": HIDDEN}, "Change": change, "Columns": {"value": HIDDEN}}
        if self.before is None or self.after is None:
            change, columns = ("added", self.after) if self.before is None else ("removed", self.before)
            named = zip(self.table.columns, columns or (), strict=True)
            changed = {name: value for name, value in named if name not in self.table.key}
        else:
            change = "changed"
            both = zip(self.table.columns, self.before, self.after, strict=True)
            changed = {name: f"{old} -> {new}" for name, old, new in both if old != new}
        if self.table is CONFIGS and is_sensitive(self.key["name"]):
            changed = {"value": HIDDEN}
        return {"Table": self.table.name, "Key": self.key, "Change": change, "Columns": changed}


def differences(
    before: sqlite3.Connection, after: sqlite3.Connection, progress: Progress | None = None
) -> Iterator[Difference]:
    """The rows that differ, table by table. A snapshot does not record which broker got the last producer ids.
    `progress` is called with the number of rows read of both, and the total.
    """
    compared = [table for table in TABLES if table.kind is not None and not table.name.startswith("remote_")]
    read = _ReadRows(compared, (before, after), progress)
    for table in compared:
        yield from _of_table(table, before, after, read)
    read.tell()


class _ReadRows:
    """Reads rows, and reports how many of all rows have been read."""

    def __init__(
        self, tables: list[Table[Any]], connections: tuple[sqlite3.Connection, ...], progress: Progress | None
    ) -> None:
        self._progress = progress
        self._done = self._total = 0
        if progress is not None:
            self._total = sum(table.row_count(connection) for table in tables for connection in connections)

    def rows(self, table: Table[Any], connection: sqlite3.Connection) -> Iterator[tuple[Row, Row]]:
        """Each row after its key. SQLite orders text by its UTF-8 bytes, which is the order of Python's, too."""
        places = [table.columns.index(column) for column in table.key]
        for row in connection.execute(table.select_sql(0)):
            self._done += 1
            if self._done % ROWS_PER_STEP == 0:
                self.tell()
            shown = (row[0], None, None, row[3]) if table.name == "producer_ids" else row
            yield tuple(row[place] for place in places), shown

    def tell(self) -> None:
        """Report the progress."""
        if self._progress is not None:
            self._progress(self._done, self._total)


def _of_table(
    table: Table[Any], before: sqlite3.Connection, after: sqlite3.Connection, read: _ReadRows
) -> Iterator[Difference]:
    stored, new = read.rows(table, before), read.rows(table, after)
    merged = merge(
        ((key, 0, row) for key, row in stored), ((key, 1, row) for key, row in new), key=lambda entry: entry[:2]
    )
    for key, entries in groupby(merged, key=lambda entry: entry[0]):
        found = {side: row for _, side, row in entries}
        old, present = found.get(0), found.get(1)
        if old != present:
            yield Difference(table, _named(table, key, before if present is None else after), old, present)


def _named(table: Table[Any], key: Row, connection: sqlite3.Connection) -> dict[str, Any]:
    named = dict(zip(table.key, key, strict=True))
    if table.name == "partitions":
        topic = connection.execute("SELECT name FROM topics WHERE topic_id = ?", key[:1]).fetchone()
        named = {"topic": topic[0] if topic else None, **named}
    return named
