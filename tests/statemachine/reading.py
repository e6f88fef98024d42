"""Counts the rows read from the database, for tests of the cost of a decision."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from statemachine.tables.table import Table


@contextmanager
def rows_read() -> Iterator[Counter[str]]:
    """How many rows of each table are read at the same time."""
    counted: Counter[str] = Counter()
    find, get = Table.find, Table.get

    def counting_find(self: Table[Any], connection: sqlite3.Connection, *given: Any, **named: Any) -> Iterator[Any]:
        for entry in find(self, connection, *given, **named):
            counted[self.name] += 1
            yield entry

    def counting_get(self: Table[Any], connection: sqlite3.Connection, key: Any) -> Any:
        record = get(self, connection, key)
        counted[self.name] += record is not None
        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "find", counting_find)
        patch.setattr(Table, "get", counting_get)
        yield counted
