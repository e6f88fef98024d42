"""Reads all rows of a metadata database and compares them with the sums that each transaction keeps (`row_sums`).

One table's structure, or one slice of its rows, is read in one transaction, so none lasts long; each sees rows and sums
as of the same offset, so the writer continues at the same time.

`python -m statemachine.store.scrub DATABASE` runs in its own process. It reads the file and not the node's memory, and
shares no interpreter with the node. It prints the result as a line of JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kraftbase.errors import KraftlogError, StorageError
from statemachine.tables.catalogue import TABLES
from statemachine.tables.database import (
    CORRUPT,
    DamagedDatabase,
    UnusableDatabase,
    check_tables,
    open_reader,
    read_sums,
)
from statemachine.tables.row_sums import ALL_SLICES, Slice, missing_of, sum_of

CORRUPT_EXIT_CODE: Final = 3

_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


class CorruptDatabase(Exception):
    """The content changed by itself: nothing must be derived from it, and it must be rebuilt."""


@contextmanager
def corruption_as_error(what: str) -> Iterator[None]:
    """Raise CorruptDatabase for damaged pages that SQLite reports within the block, StorageError for other errors."""
    try:
        yield
    except (UnusableDatabase, DamagedDatabase) as error:
        raise CorruptDatabase(f"{CORRUPT}: {error}") from None
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _NO_DAMAGE:
            raise StorageError(f"the metadata database cannot be read, {what}: {error}; check its disk") from None
        raise CorruptDatabase(f"{CORRUPT}: {what}: {error}") from None
    except ValueError as error:  # a text that is not valid, or an id that is not one
        raise CorruptDatabase(f"{CORRUPT}: {what}: {error}") from None


def check_rows(connection: sqlite3.Connection) -> None:
    """Compare all rows that the current transaction sees, each table at once. Partial sums show nothing about rows.

    Raises CorruptDatabase if a row is not what was written, StorageError if the database cannot be read.
    """
    _check_frame(connection)
    with corruption_as_error("what is applied"):
        kept = read_sums(connection)
    for table in TABLES:
        _check_structure(connection, table.name)
    for table in TABLES if kept.is_complete else ():
        with corruption_as_error(f"table {table.name}"):
            rows = connection.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}")  # noqa: S608
            missing = missing_of(kept.total(table), sum_of(rows))
        if missing:
            raise _differs(table.name)


def scrub(connection: sqlite3.Connection) -> list[int]:
    """Read everything, each part in a transaction of its own. `connection` may be read-only.

    Returns what the sums lack, slice by slice: nothing, or, if they are partial, the argument for
    `MetadataTables.complete_row_sums`. Raises CorruptDatabase if anything is not what was written, StorageError if the
    database cannot be read.
    """
    missing: list[int] = []
    for read in _readings(connection):
        with corruption_as_error("its file"), _transaction(connection):
            missing += read()
    return missing


def _readings(connection: sqlite3.Connection) -> Iterator[Callable[[], list[int]]]:
    """Everything to read, in parts; a part of rows returns what their sum lacks."""
    yield lambda: _check_frame(connection)
    for table in TABLES:
        yield lambda name=table.name: _check_structure(connection, name)  # type: ignore[misc]
    for part in ALL_SLICES:
        yield lambda part=part: [_check_slice(connection, part)]  # type: ignore[misc]


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()


def _check_frame(connection: sqlite3.Connection) -> list[int]:
    """Check the row of `applied`, and that tables and views are the current ones."""
    with corruption_as_error("what is applied"):
        check_tables(connection)
        return []


def _check_structure(connection: sqlite3.Connection, table: str) -> list[int]:
    """Check pages, the order of keys, and each index against its table: SQL uses indexes too."""
    with corruption_as_error(f"table {table}"):
        found = connection.execute(f"PRAGMA integrity_check({table})").fetchone()[0]
    if found != "ok":
        raise CorruptDatabase(f"{CORRUPT}: table {table}: {found}")
    return []


def _check_slice(connection: sqlite3.Connection, part: Slice) -> int:
    with corruption_as_error(f"table {part.table.name}"):
        kept = read_sums(connection)
        missing = missing_of(kept[part], sum_of(connection.execute(part.select_sql, part.parameters)))
    if missing and kept.is_complete:
        raise _differs(part.table.name)
    return missing


def _differs(table: str) -> CorruptDatabase:
    return CorruptDatabase(f"{CORRUPT}: table {table}: its rows do not add up to what was written")


def main(arguments: Sequence[str]) -> int:
    """The process: exit code 0 and a line of JSON; 3 and the reason on standard error if corrupted, 1 if unread."""
    try:
        with corruption_as_error("its file"), closing(open_reader(Path(arguments[0]))) as connection:
            sys.stdout.write(json.dumps(scrub(connection)) + "\n")
    except CorruptDatabase as error:
        sys.stderr.write(f"{error}\n")
        return CORRUPT_EXIT_CODE
    except KraftlogError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
