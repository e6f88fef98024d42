"""Rows in memory by key, and by the beginning of a key in SQLite's order of the keys.

Uncommitted records and the rows that a run of records has touched are kept this way. They are set one by one, often
many of them before any read in order, and sometimes with such a read after each of them: so keys are sorted in when an
order is requested, a few by bisection, many by one sort.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from statemachine.tables.table import Key, key_to_sql

V = TypeVar("V")

STALE_KEYS_MIN: Final = 1_000
"""At most this many keys of removed rows are skipped, instead of sorting the others again."""

INSERTION_WORTH: Final = 16
"""Inserting one key costs as much as skipping this many when all are sorted."""


class SortedRows(Generic[V]):
    """Rows found by their key at once, and by its beginning at the cost of a search and of the rows found."""

    __slots__ = ("_new", "_ordered", "_placed", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[Key, V] = {}
        """To be read only."""
        self._ordered: list[tuple[Key, Key]] = []
        """The keys as SQLite has them, with the keys themselves; some rows were removed."""
        self._placed: set[Key] = set()
        """The keys in `_ordered`."""
        self._new: list[Key] = []
        """Keys that are sorted into `_ordered` when an order is requested."""

    def put(self, key: Key, value: V) -> None:
        """Set the row with that key."""
        if key not in self.by_key:
            self._new.append(key)
        self.by_key[key] = value

    def remove(self, key: Key) -> None:
        """Remove the row with that key, which must exist."""
        del self.by_key[key]

    def remove_all(self, prefix: Key) -> None:
        """Remove every row whose key begins with `prefix`."""
        if not self.by_key:
            return
        ordered = self._in_order()
        prefix_sql = key_to_sql(prefix)
        start = end = bisect_left(ordered, (prefix_sql,))
        while end < len(ordered) and ordered[end][0][: len(prefix)] == prefix_sql:
            self.by_key.pop(ordered[end][1], None)
            end += 1
        self._placed.difference_update([key for _, key in ordered[start:end]])
        del ordered[start:end]

    def behind(self, prefix: Key, after: Key | None, end: Key | None = None) -> Iterator[tuple[Key, V]]:
        """The rows whose key begins with `prefix` and is above `after`, up to those that begin with `end`, in order.

        Costs a search, and the rows that it yields. Change nothing while iterating.
        """
        ordered = self._in_order()
        size, prefix_sql = len(prefix), key_to_sql(prefix)
        after_sql = None if after is None else key_to_sql(after)
        end_sql = None if end is None else key_to_sql(end)
        for index in range(bisect_left(ordered, (after_sql or prefix_sql,)), len(ordered)):
            key_sql, key = ordered[index]
            if key_sql[:size] != prefix_sql or (end_sql is not None and key_sql[: len(end_sql)] > end_sql):
                return
            if key in self.by_key and key_sql != after_sql:
                yield key, self.by_key[key]

    def tidy(self) -> None:
        """Drop keys of removed rows, if they are many and no order was requested."""
        if len(self._new) > 2 * len(self.by_key) + STALE_KEYS_MIN:
            self._new = [key for key in self.by_key if key not in self._placed]

    def _in_order(self) -> list[tuple[Key, Key]]:
        if len(self._ordered) > 2 * len(self.by_key) + STALE_KEYS_MIN:
            self._ordered = [pair for pair in self._ordered if pair[1] in self.by_key]
            self._placed = {key for _, key in self._ordered}
        if self._new:
            added = [key for key in dict.fromkeys(self._new) if key in self.by_key and key not in self._placed]
            self._new.clear()
            self._place(added)
        return self._ordered

    def _place(self, added: list[Key]) -> None:
        self._placed.update(added)
        pairs = [(key_to_sql(key), key) for key in added]
        if len(pairs) * INSERTION_WORTH < len(self._ordered):
            for pair in pairs:
                insort(self._ordered, pair)
        else:
            self._ordered += pairs
            self._ordered.sort()
