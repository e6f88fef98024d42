"""Answers to reads of the overlay, kept while they stay right, so that the same rows are not read again.

An answer is all rows of a table whose key begins with a prefix; the prefix of a lookup is the whole key, and its answer
has one row or none. Every answer is right, because

1. it is right when it is stored: the overlay has just read it;
2. every change of the view comes here too: `put` and `remove` change the one row in each answer that has the key in its
   range, or forget the answer where the row would need a place in the order; `remove_all` forgets the table's answers;
3. `clear` is called where the view changes in another way: see `Overlay`.

Rows that are removed with their partitions, not one by one (`Table.partition_of`), are not kept, nor are the epochs of
remote segments, which are not messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from statemachine.tables.table import Key, Table

R = TypeVar("R")

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 * 1024 * 1024
"""Of the records as they are encoded, and of the prefixes."""


class ReadCache:
    """Bounded by rows and bytes. Added rows are counted, and when the count reaches a bound, everything is forgotten.
    So a row that changes often counts again each time, and removals need no count. An answer counts as one row more
    than it has: an empty answer takes room, too.
    """

    __slots__ = ("_answers", "_bytes", "_bytes_max", "_rows", "_rows_max")

    def __init__(self, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._rows = 0
        self._bytes = 0
        self._answers: dict[Table[Any], dict[Key, dict[Key, Any]]] = {}
        """By table and prefix: the rows by key, in SQLite's order."""

    def find(self, table: Table[R], prefix: Key) -> dict[Key, R] | None:
        """The rows whose key begins with `prefix`, if they are kept. They must not be changed."""
        answers = self._answers.get(table)
        return None if answers is None else answers.get(prefix)

    def find_around(self, table: Table[R], key: Key) -> dict[Key, R] | None:
        """Rows that are kept and among which the one with that key is, if it exists."""
        answers = self._answers.get(table)
        if answers is not None:
            for size in range(len(key), -1, -1):
                rows = answers.get(key[:size])
                if rows is not None:
                    return rows
        return None

    def keep(self, table: Table[R], prefix: Key, rows: Sequence[tuple[Key, R]]) -> None:
        """Cache `rows`: all rows whose key begins with `prefix`, in order.

        They are not cached if they alone exceed the cache's limits.
        """
        is_message = table.kind is not None or table.is_index
        if table.partition_of is not None or not is_message or len(rows) >= self._rows_max:
            return
        size_bytes = sum(len(part) for part in prefix if isinstance(part, str | bytes))
        size_bytes += sum(record.ByteSize() for _, record in rows)  # type: ignore[attr-defined]
        if size_bytes <= self._bytes_max:
            self._count(len(rows) + 1, size_bytes)
            self._answers.setdefault(table, {})[prefix] = dict(rows)

    def _count(self, rows: int, size_bytes: int) -> None:
        if self._rows + rows > self._rows_max or self._bytes + size_bytes > self._bytes_max:
            self.clear()
        self._rows += rows
        self._bytes += size_bytes

    def put(self, table: Table[R], key: Key, record: R) -> None:
        """The view has `record` under that key from now on."""
        answers = self._answers.get(table)
        if answers is None:
            return
        for size in range(len(key) + 1):
            rows = answers.get(key[:size])
            if rows is None:
                continue
            if key in rows:
                rows[key] = record  # in its place
                self._count(1, record.ByteSize())  # type: ignore[attr-defined]
            else:
                del answers[key[:size]]

    def remove(self, table: Table[Any], key: Key) -> None:
        """The view has no row with that key from now on."""
        answers = self._answers.get(table)
        if answers is not None:
            for size in range(len(key) + 1):
                answers.get(key[:size], {}).pop(key, None)

    def remove_all(self, table: Table[Any]) -> None:
        """Rows of `table` were removed, all below a prefix."""
        self._answers.pop(table, None)

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()
        self._rows = self._bytes = 0
