"""The net change that a run of committed records makes to the tables, without the steps in between.

Only the last value of each row is kept, so a flush touches each row once, and how the log was cut into runs makes no
difference. The effect of each record on each row is kept for the digest by which nodes are compared; the digest, too,
is the same however the log is cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Set
from itertools import islice
from struct import pack
from typing import Any, Final, TypeVar, cast

from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.replay.replay import replay
from statemachine.replay.view import merged
from statemachine.tables.catalogue import TABLES
from statemachine.tables.cluster_tables import ACLS_BY_CONTENT
from statemachine.tables.remote_log_tables import REMOTE_SEGMENTS
from statemachine.tables.row_sums import RowSums
from statemachine.tables.sorted_rows import SortedRows
from statemachine.tables.table import Condition, Key, Page, Row, Table, key_to_sql
from statemachine.tables.topic_tables import (
    PARTITIONS,
    PARTITIONS_BY_LEADER,
    PARTITIONS_WITH_ELR,
    TOPICS,
    TOPICS_BY_COLLISION,
)

R = TypeVar("R")

_NEVER_LOOKED_UP: Final = (ACLS_BY_CONTENT, TOPICS_BY_COLLISION, PARTITIONS_BY_LEADER, PARTITIONS_WITH_ELR)
"""Indexes that only the controller reads."""

_NOTHING: Final = SortedRows[Any]()


class TooManyRows(Exception):
    """The records need more rows than are allowed here; the `Changes` that raised this must not be used again."""


class Changes:
    """The net change of the records replayed so far, over the database behind `connection`. A `View`."""

    __slots__ = ("_connection", "_effects", "_new_topics", "_removed", "_rows", "_rows_left", "_stored", "_topics")

    def __init__(self, connection: sqlite3.Connection, rows_max: int | None = None) -> None:
        """With `rows_max` the replay ends in TooManyRows when that many rows were searched or touched.

        A remote segment counts once more for each of its leader epochs: it holds them all.
        """
        self._connection = connection
        self._rows_left = rows_max
        self._rows: dict[Table[Any], SortedRows[Any]] = {}
        """By table and key; None: the row is removed."""
        self._removed: dict[Table[Any], dict[Key, None]] = {}
        """Key prefixes whose stored rows are all removed, before anything is added."""
        self._stored: dict[tuple[Table[Any], Key], Row | None] = {}
        """Rows that were looked up, as they are stored: rows written in their place subtract them from the sums."""
        self._topics: dict[Key, Any] = {}
        """Stored topics that were looked up: a topic's partitions mostly follow one another."""
        self._new_topics: set[Key] = set()
        """Topics that these records created: none of their rows is stored."""
        self._effects: list[bytes] = []

    def replay(self, records: Iterable[MetadataRecord], base_offset: int) -> None:
        """Replay `records`, the first of which is at `base_offset`. After a ReplayError, this object is spent."""
        replay(self, records, base_offset)

    def take_effects(self) -> bytes:
        """The effects of the records replayed since the last call, encoded: the number of fields, their lengths, the
        fields.

        For each row that they touched, one after the other, the fields are the kind of change, the table, and the
        record or the key (docs/formats/metadata.md).
        """
        effects, self._effects = self._effects, []
        return b"".join((pack(f">{len(effects) + 1}I", len(effects), *map(len, effects)), *effects))

    def removals(self) -> int:
        """The number of topics that are removed, with all their partitions, and of partitions whose remote data is."""
        return sum(len(self._removed.get(table, ())) for table in (PARTITIONS, REMOTE_SEGMENTS))

    @property
    def tables(self) -> Set[Table[Any]]:
        """The tables of which rows were touched."""
        return self._rows.keys() | self._removed.keys()

    # --- the view -----------------------------------------------------------------------------------------------------

    def get(self, table: Table[R], key: Key) -> R | None:
        """The record with that key."""
        rows = self._rows.get(table)
        if rows is not None and key in rows.by_key:
            found: R | None = rows.by_key[key]
            return found
        if self._is_removed(table, key) or (table is PARTITIONS and key[:1] in self._new_topics):
            return None
        if table is not TOPICS:
            return self._get_stored(table, key)
        if key not in self._topics:
            self._topics[key] = self._get_stored(table, key)
        return cast(R | None, self._topics[key])

    def _get_stored(self, table: Table[R], key: Key) -> R | None:
        row = table.get_row(self._connection, key)
        if not table.is_index:
            self._stored[table, key] = row
        return None if row is None else table.from_row(row)

    def find(
        self, table: Table[R], prefix: Key = (), after: Key | None = None, limit: int = -1, end: Key | None = None
    ) -> Iterator[tuple[Key, R]]:
        """The records whose key begins with `prefix` and is above `after`, up to `end`: see `View`.

        They are read as the caller iterates: change nothing until then.
        """
        rows = self._rows.get(table) or _NOTHING
        stored = table.find(self._connection, prefix, after, end=end)
        kept = (entry for entry in stored if not self._is_removed(table, entry[0]))
        found = merged(kept, rows.behind(prefix, after, end), rows.by_key)
        if self._rows_left is not None:
            found = self._counted(found)
        return found if limit < 0 else islice(found, limit)

    def _counted(self, entries: Iterable[tuple[Key, R]]) -> Iterator[tuple[Key, R]]:
        for entry in entries:
            self._count(1)
            yield entry

    def _count(self, rows: int) -> None:
        """Count more rows. Raises TooManyRows."""
        if self._rows_left is not None:
            self._rows_left -= rows
            if self._rows_left < 0:
                raise TooManyRows

    def scan(self, table: Table[R], condition: Condition[R], after: Key | None, limit: int) -> Page[R]:
        """Return the records that meet `condition` among those above `after`, by key; a page has at most `limit`."""
        met = (entry for entry in self.find(table, (), after) if condition.holds(entry[1]))
        found = list(islice(met, limit))
        return Page(found, found[-1][0] if len(found) == limit else None)

    def put(self, table: Table[R], record: R) -> None:
        """Set the record."""
        if table in _NEVER_LOOKED_UP:
            return
        if self._rows_left is not None:
            epochs = len(record.segment_leader_epochs) if table is REMOTE_SEGMENTS else 0  # type: ignore[attr-defined]
            self._count(1 + epochs)
        key = table.key_of(record)
        self._rows_of(table).put(key, record)
        if table is TOPICS:
            self._new_topics.add(key)
        if table.kind is not None:
            self._effects += (b"set", table.name.encode(), table.digested(record))

    def remove(self, table: Table[R], key: Key) -> None:
        """Remove the record with that key."""
        if table in _NEVER_LOOKED_UP:
            return
        self._count(1)
        self._rows_of(table).put(key, None)
        self._note_removal(table, key)

    def remove_all(self, table: Table[R], prefix: Key) -> None:
        """Remove every record whose key begins with `prefix`."""
        rows = self._rows.get(table)
        if rows is not None:
            rows.remove_all(prefix)
        self._removed.setdefault(table, {})[prefix] = None
        self._note_removal(table, prefix)

    def _rows_of(self, table: Table[Any]) -> SortedRows[Any]:
        rows = self._rows.get(table)
        if rows is None:
            rows = self._rows[table] = SortedRows()
        return rows

    def _note_removal(self, table: Table[R], key: Key) -> None:
        if table.kind is not None:
            self._effects += (b"remove", table.name.encode(), *map(_key_bytes, key))

    def _is_removed(self, table: Table[R], key: Key) -> bool:
        prefixes = self._removed.get(table)
        return prefixes is not None and any(key[:size] in prefixes for size in range(1, len(key) + 1))

    def differences(self, table: Table[R]) -> Iterator[tuple[R | None, R | None]]:
        """The value of each touched row of `table` now, and after `flush`; None: no row.

        Each row comes once: a row that is removed with its partition and its topic is removed with the topic.
        """
        rows, removed = (self._rows.get(table) or _NOTHING).by_key, self._removed.get(table, {})
        for prefix in removed:
            if any(prefix[:size] in removed for size in range(1, len(prefix))):
                continue
            yield from ((before, None) for key, before in table.find(self._connection, prefix) if key not in rows)
        yield from ((table.get(self._connection, key), after) for key, after in rows.items())

    # --- the tables ---------------------------------------------------------------------------------------------------

    def flush(self, sums: RowSums) -> None:
        """Write the net change, in the open transaction, and count it in `sums`: removals first."""
        for table, prefixes in self._removed.items():
            for prefix in prefixes:
                sums.subtract(table, table.rows(self._connection, prefix))
                self._connection.execute(table.delete_sql(len(prefix)), key_to_sql(prefix))
        for table in TABLES:
            rows = self._rows.get(table)
            if rows is not None and rows.by_key:
                self._write(table, rows.by_key, sums)

    def _write(self, table: Table[Any], rows: dict[Key, Any], sums: RowSums) -> None:
        if replaced := self._replaced(table, rows):
            sums.subtract(table, replaced)
        gone = [key_to_sql(key) for key, record in rows.items() if record is None]
        if gone:
            self._connection.executemany(table.delete_sql(len(table.key)), gone)
        if len(gone) < len(rows):
            to_row = table.to_row
            written = [to_row(record) for record in rows.values() if record is not None]
            sums.add(table, written)
            self._connection.executemany(table.insert_sql, written)

    def _replaced(self, table: Table[Any], keys: Iterable[Key]) -> list[Row]:
        """The stored rows with these keys, after all removals by prefix."""
        stored, rows, unknown = self._stored, [], []
        new_topics = self._new_topics if table is PARTITIONS else ()  # their stored rows are removed by prefix
        has_removals = table in self._removed
        for key in keys:
            if key[:1] in new_topics:
                continue
            if (table, key) not in stored:
                unknown.append(key)
                continue
            row = stored[table, key]
            if row is not None and not (has_removals and self._is_removed(table, key)):
                rows.append(row)
        rows += table.get_rows(self._connection, unknown)
        return rows


def _key_bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
