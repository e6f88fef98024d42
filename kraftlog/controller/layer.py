"""The uncommitted records of one table, by key, and in SQLite's order of the keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from kraftbase.types import Offset
from statemachine.tables.sorted_rows import SortedRows
from statemachine.tables.table import Key


class Entry(NamedTuple):
    """An uncommitted record, and the end offset of the append that sets it. None: the committed one is removed."""

    end_offset: Offset
    record: Any


class Layer:
    """The uncommitted records of one table, and the rows removed from it. Used by the overlay only."""

    __slots__ = ("_appends", "_removals", "_rows", "entries", "removed")

    def __init__(self) -> None:
        self._rows = SortedRows[Entry]()
        self.entries = self._rows.by_key
        """The last uncommitted record of each key."""
        self.removed: dict[Key, Offset] = {}
        """Key prefixes whose committed rows are all removed, and the end offset of the append that removes them."""
        self._appends: deque[tuple[Offset, Key]] = deque()
        self._removals: deque[tuple[Offset, Key]] = deque()

    def put(self, key: Key, record: Any, end_offset: Offset) -> None:
        """Set `key` by the append that ends at `end_offset`, which is not before the last one's."""
        self._rows.put(key, Entry(end_offset, record))
        self._appends.append((end_offset, key))

    def remove_all(self, prefix: Key, end_offset: Offset) -> None:
        """Remove what begins with `prefix`, by such an append. Costs a search, and the uncommitted rows below it."""
        self._rows.remove_all(prefix)
        self.removed[prefix] = end_offset
        self._removals.append((end_offset, prefix))

    def is_removed(self, key: Key) -> bool:
        """Whether the committed row with that key is removed by a prefix."""
        return bool(self.removed) and any(key[:size] in self.removed for size in range(1, len(key) + 1))

    def behind(self, prefix: Key, after: Key | None, end: Key | None = None) -> Iterator[tuple[Key, Any]]:
        """The keys that begin with `prefix`, above `after` and up to those that begin with `end`, with their records.

        They come in order. Costs a search and the yielded keys. The layer must not be changed during the iteration.
        """
        return ((key, entry.record) for key, entry in self._rows.behind(prefix, after, end))

    def drain(self, applied_end_offset: Offset) -> None:
        """Drop records that the store has now; a key that was set again later stays."""
        while self._appends and self._appends[0][0] <= applied_end_offset:
            end_offset, key = self._appends.popleft()
            entry = self.entries.get(key)
            if entry is not None and entry.end_offset == end_offset:
                self._rows.remove(key)
        while self._removals and self._removals[0][0] <= applied_end_offset:
            end_offset, prefix = self._removals.popleft()
            if self.removed.get(prefix) == end_offset:
                del self.removed[prefix]
        self._rows.tidy()
