"""The metadata as replay needs it: keyed rows that can be looked up, set and removed.

There are two views. `Changes` is over a database and collects the changes of a transaction; the controller's `Overlay`
is over the committed state and collects uncommitted changes. Both replay records with the same code
(`statemachine.replay.replay`), so the controller decides on the same state that every node will have.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import merge
from typing import Protocol, TypeVar

from statemachine.tables.table import Condition, Key, Page, Table, key_to_sql

R = TypeVar("R")


class InvalidRecord(Exception):
    """Why a record cannot be true; the replay adds its offset."""


class View(Protocol):
    """Metadata that can be read and changed. Records that it returns must not be changed: put a copy."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """The record with that key."""
        ...

    def find(
        self, table: Table[R], prefix: Key = (), after: Key | None = None, limit: int = -1, end: Key | None = None
    ) -> Iterator[tuple[Key, R]]:
        """The records whose key begins with `prefix` and is above `after`, by key; at most `limit`, -1: all.

        With `end`, the beginning of a key, they go up to those that begin with it, and nothing after is read.
        """
        ...

    def scan(self, table: Table[R], condition: Condition[R], after: Key | None, limit: int) -> Page[R]:
        """Return the records that meet `condition` among those above `after`, by key; a page has at most `limit`."""
        ...

    def put(self, table: Table[R], record: R) -> None:
        """Set the record, in place of the one with its key."""
        ...

    def remove(self, table: Table[R], key: Key) -> None:
        """Remove the record with that key, which must exist."""
        ...

    def remove_all(self, table: Table[R], prefix: Key) -> None:
        """Remove every record whose key begins with `prefix`."""
        ...


def merged(
    stored: Iterable[tuple[Key, R]], own: Iterable[tuple[Key, R | None]], is_own: Container[Key]
) -> Iterator[tuple[Key, R]]:
    """The lower records merged with those above, both by key in SQLite's order; above, None stands for "removed".

    Lower records for which `is_own` is true are skipped.
    """
    below = ((key_to_sql(key), key, record) for key, record in stored if key not in is_own)
    above = ((key_to_sql(key), key, record) for key, record in own if record is not None)
    return ((key, record) for _, key, record in merge(below, above, key=lambda entry: entry[0]))
