"""What is uncommitted of one table, by key, and in the order in which SQLite has the keys."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from raft.core.types import Offset
from statemachine.table import Key, key_to_sql

STALE_KEYS_MIN: Final = 1_000
"""So many keys that are not uncommitted any more are passed over, rather than the others put in order again."""


class Entry(NamedTuple):
    """An uncommitted record, and the end offset of the append that sets it. None: the committed one is removed."""

    end_offset: Offset
    record: Any


class Layer:
    """The uncommitted records of one table, and what is removed of it. Used by the overlay only."""

    __slots__ = ("_appends", "_in_order", "_new", "_ordered", "entries", "removed")

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        """The last uncommitted record of each key."""
        self.removed: dict[Key, Offset] = {}
        """Beginnings of keys whose committed rows are all removed, and the end offset of the append that does it."""
        self._appends: deque[tuple[Offset, Key]] = deque()
        self._ordered: list[tuple[Key, Key]] = []
        """The keys as SQLite has them, with the keys themselves; some have been drained since."""
        self._in_order: set[Key] = set()
        self._new: list[Key] = []
        """Keys that are to come into `_ordered` when somebody asks for an order."""

    def put(self, key: Key, record: Any, end_offset: Offset) -> None:
        """Set `key` by the append that ends at `end_offset`, which is none before the last one's."""
        if key not in self.entries:
            self._new.append(key)
        self.entries[key] = Entry(end_offset, record)
        self._appends.append((end_offset, key))

    def remove_all(self, prefix: Key, end_offset: Offset) -> None:
        """Remove what begins with `prefix`."""
        for key in [key for key in self.entries if key[: len(prefix)] == prefix]:
            del self.entries[key]
        self.removed[prefix] = end_offset

    def is_removed(self, key: Key) -> bool:
        """Whether the committed row with that key is removed with others."""
        return bool(self.removed) and any(key[:size] in self.removed for size in range(1, len(key) + 1))

    def behind(self, prefix: Key, after: Key | None, end: Key | None = None) -> Iterator[tuple[Key, Any]]:
        """The keys that begin with `prefix`, above `after` and up to `end`, in order, with their records.

        Costs what it yields, and a search. The layer must not be changed meanwhile.
        """
        ordered = self._in_sql_order()
        size, prefix_sql = len(prefix), key_to_sql(prefix)
        after_sql = None if after is None else key_to_sql(after)
        end_sql = None if end is None else key_to_sql(end)
        for index in range(bisect_left(ordered, (after_sql or prefix_sql,)), len(ordered)):
            key_sql, key = ordered[index]
            if key_sql[:size] != prefix_sql or (end_sql is not None and key_sql > end_sql):
                return
            entry = self.entries.get(key)
            if entry is not None and key_sql != after_sql:
                yield key, entry.record

    def _in_sql_order(self) -> list[tuple[Key, Key]]:
        if len(self._ordered) > 2 * len(self.entries) + STALE_KEYS_MIN:
            self._ordered = [pair for pair in self._ordered if pair[1] in self.entries]
            self._in_order = {key for _, key in self._ordered}
        added = [key for key in dict.fromkeys(self._new) if key in self.entries and key not in self._in_order]
        self._new.clear()
        if added:
            self._in_order.update(added)
            self._ordered += [(key_to_sql(key), key) for key in added]
            self._ordered.sort()
        return self._ordered

    def drain(self, applied_end_offset: Offset) -> None:
        """Forget what the store has now; a key that was set again later stays."""
        while self._appends and self._appends[0][0] <= applied_end_offset:
            end_offset, key = self._appends.popleft()
            entry = self.entries.get(key)
            if entry is not None and entry.end_offset == end_offset:
                del self.entries[key]
        for prefix in [prefix for prefix, end_offset in self.removed.items() if end_offset <= applied_end_offset]:
            del self.removed[prefix]
        if len(self._new) > 2 * len(self.entries) + STALE_KEYS_MIN:
            self._new = [key for key in self.entries if key not in self._in_order]
