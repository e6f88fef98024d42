"""A table as the state machine uses it: the key, the row and the record of each.

A record is the protobuf message that the log and snapshots hold; a row is what SQLite holds. Everything that applies,
overlays, snapshots or looks up metadata goes through a `Table`, so a new kind of metadata is one more `Table`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kraftbase.ids import id_to_text
from kraftpb.v1.metadata_pb2 import MetadataRecord

R = TypeVar("R")
Key = tuple[Any, ...]
"""The values of a table's key columns; ids as 16 bytes."""
Row = tuple[Any, ...]


_KEYS_AT_ONCE: Final = (64, 8, 1)
"""How many rows one statement looks up: few numbers, so that the statements stay prepared."""

SCANNED_ROWS: Final = 5_000
"""How many rows are read for a page: some milliseconds of work."""


class Condition(NamedTuple, Generic[R]):
    """The condition that a record has to meet, in SQL and in Python."""

    sql: str
    """Over the table's columns."""
    parameters: tuple[Any, ...]
    holds: Callable[[R], bool]


class Page(NamedTuple, Generic[R]):
    """Some of a table's records, by key."""

    found: list[tuple[Key, R]]
    end: Key | None
    """The last key that was read, inclusive; None: to the end of the table."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Generic[R]):
    """One table, or one index of another table under which its rows are looked up."""

    name: str
    key: tuple[str, ...]
    """The columns of the key, or expressions over columns."""
    columns: tuple[str, ...]
    kind: str | None = None
    """Which kind of `MetadataRecord` a snapshot holds for each row; None: the rows are derived from other tables'."""
    key_of: Callable[[R], Key]
    to_row: Callable[[R], Row]
    from_row: Callable[[Row], R]
    is_index: bool = False
    """Its rows are those of another table: they are looked up here and written there."""
    where: str | None = None
    """Of an index: the condition on its rows."""
    partition_of: Callable[[R], Key] | None = None
    """The key of the partition that a row is derived from, if it is."""
    undigested: tuple[str, ...] = ()
    """Fields of its records that no digest covers, because nodes of the previous version do not keep them."""

    def __repr__(self) -> str:
        return f"Table({self.name} by {', '.join(self.key)})"

    # --- SQL ----------------------------------------------------------------------------------------------------------

    @cached_property
    def insert_sql(self) -> str:
        """Replace the row with its key by this row, or add it."""
        columns = ", ".join(self.columns)
        return f"INSERT OR REPLACE INTO {self.name} ({columns}) VALUES ({_marks(len(self.columns))})"  # noqa: S608

    @cached_property
    def _get_sql(self) -> str:
        return self.select_sql(len(self.key))

    @lru_cache(maxsize=16)  # noqa: B019 (tables live as long as the process)
    def _get_many_sql(self, count: int) -> str:
        """Select the rows with `count` keys: the cross join seeks each of them by itself."""
        if count == 1:
            return self._get_sql
        marks = ", ".join([f"({_marks(len(self.key))})"] * count)
        columns = ", ".join(f"{self.name}.{column}" for column in self.columns)
        matches = " AND ".join(f"{self.name}.{column} = wanted.column{at}" for at, column in enumerate(self.key, 1))
        return f"SELECT {columns} FROM (VALUES {marks}) AS wanted CROSS JOIN {self.name} ON {matches}"  # noqa: S608

    @lru_cache(maxsize=8)  # noqa: B019 (tables live as long as the process)
    def delete_sql(self, key_length: int) -> str:
        """Remove the rows whose key begins with this many values."""
        return f"DELETE FROM {self.name} WHERE {self._prefix(key_length)}"  # noqa: S608 (names of our own)

    @lru_cache(maxsize=64)  # noqa: B019 (tables live as long as the process)
    def select_sql(self, key_length: int, is_after: bool = False, end_length: int = 0) -> str:
        """Select the rows whose key begins with this many values, in the order of the key.

        Optionally only those after a key, or up to those that begin with `end_length` values, the first of which are
        the same.
        """
        conditions = [self._prefix(key_length)] if key_length else []
        if self.where is not None:
            conditions.append(self.where)
        if is_after:  # only the part after the prefix, so that SQLite seeks there
            behind = self.key[key_length:]
            conditions.append(f"({', '.join(behind)}) > ({_marks(len(behind))})")
        if end_length > key_length:
            up_to = self.key[key_length:end_length]
            conditions.append(f"({', '.join(up_to)}) <= ({_marks(len(up_to))})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(self.columns)} FROM {self.name}{where} ORDER BY {', '.join(self.key)}"  # noqa: S608

    def _prefix(self, key_length: int) -> str:
        return " AND ".join(f"{column} = ?" for column in self.key[:key_length])

    # --- reads --------------------------------------------------------------------------------------------------------

    def get(self, connection: sqlite3.Connection, key: Key) -> R | None:
        """The record with that key. About 5 microseconds."""
        row = self.get_row(connection, key)
        return None if row is None else self.from_row(row)

    def get_row(self, connection: sqlite3.Connection, key: Key) -> Row | None:
        """The row with that key, as it is stored."""
        row: Row | None = connection.execute(self._get_sql, key_to_sql(key)).fetchone()
        return row

    def get_rows(self, connection: sqlite3.Connection, keys: Sequence[Key]) -> Iterator[Row]:
        """The existing rows with these keys, as they are stored. For many at once, a third of the cost of `get_row`."""
        start = 0
        for count in _KEYS_AT_ONCE:
            while len(keys) - start >= count:
                parameters = [part for key in keys[start : start + count] for part in key_to_sql(key)]
                yield from connection.execute(self._get_many_sql(count), parameters)
                start += count

    def row_count(self, connection: sqlite3.Connection) -> int:
        """The number of rows. It reads them all."""
        count: int = connection.execute(f"SELECT count(*) FROM ({self.select_sql(0)})").fetchone()[0]  # noqa: S608
        return count

    def rows(self, connection: sqlite3.Connection, prefix: Key) -> list[Row]:
        """The rows whose key begins with `prefix`, as they are stored."""
        return connection.execute(self.select_sql(len(prefix)), key_to_sql(prefix)).fetchall()

    def find(
        self,
        connection: sqlite3.Connection,
        prefix: Key = (),
        after: Key | None = None,
        limit: int = -1,
        end: Key | None = None,
    ) -> Iterator[tuple[Key, R]]:
        """The records whose key begins with `prefix` and is above `after`, by key, at most `limit` of them.

        `after` is a whole key; with `end`, the beginning of a key, the records go up to those that begin with it. Both
        begin with `prefix` too.
        """
        sql = self.select_sql(len(prefix), after is not None, len(end or ()))
        bounds = key_to_sql(prefix + (after or ())[len(prefix) :] + (end or ())[len(prefix) :])
        for row in connection.execute(sql + (f" LIMIT {limit}" if limit >= 0 else ""), bounds):
            record = self.from_row(row)
            yield self.key_of(record), record

    def scan(self, connection: sqlite3.Connection, condition: Condition[R], after: Key | None, limit: int) -> Page[R]:
        """Read the next `SCANNED_ROWS` records above `after`; the page has those that meet `condition`."""
        window = f" LIMIT 1 OFFSET {SCANNED_ROWS - 1}"
        after_sql = () if after is None else key_to_sql(after)
        row = connection.execute(self.select_sql(0, after is not None) + window, after_sql).fetchone()
        end = None if row is None else self.key_of(self.from_row(row))
        conditions, parameters = [condition.sql], [*condition.parameters]
        for bound, operator in ((after, ">"), (end, "<=")):
            if bound is not None:
                conditions.append(f"({', '.join(self.key)}) {operator} ({_marks(len(self.key))})")
                parameters += key_to_sql(bound)
        sql = (
            f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {' AND '.join(conditions)}"  # noqa: S608
            f" ORDER BY {', '.join(self.key)} LIMIT {limit}"
        )
        records = [self.from_row(row) for row in connection.execute(sql, parameters)]
        found = [(self.key_of(record), record) for record in records]
        return Page(found, found[-1][0] if len(found) == limit else end)

    def to_record(self, value: R) -> MetadataRecord:
        """The record that a snapshot has for `value`."""
        if self.kind is None:
            raise TypeError(f"{self} has no records of its own")
        fields: dict[str, Any] = {self.kind: value}
        return MetadataRecord(**fields)

    def digested(self, value: R) -> bytes:
        """The bytes of a record that digests cover."""
        message: Any = value
        if self.undigested:
            message = type(message)()
            message.CopyFrom(value)
            for name in self.undigested:
                message.ClearField(name)
        encoded: bytes = message.SerializeToString(deterministic=True)
        return encoded


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def key_to_sql(key: Key) -> Key:
    """A key as SQLite has it: ids are text there."""
    return tuple([id_to_text(part) if type(part) is bytes else part for part in key])
