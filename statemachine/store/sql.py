"""One SQL statement of a client on the metadata: it can only read, cannot run for long, and sees no other files.

SQLite itself enforces this: the connection can only read, an authorizer checks every action of a statement when it is
prepared, limits bound single values, and a handler that is called during execution ends a statement in time.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from kraftbase.checks import check
from kraftbase.errors import ApiError, ErrorCode, invalid_request
from statemachine.tables.opaque_tables import OPAQUE_NAMES

RESULT_BYTES_MAX: Final = 32 * 1024 * 1024
"""How large the texts and blobs of a result may be together, each value counted as 8 bytes more."""

VALUE_BYTES_MAX: Final = 1024 * 1024
"""The largest text or blob, also as an intermediate value; it has to fit a message."""

COLUMNS_MAX: Final = 100
"""How many columns a result may have: a row is in memory before it is counted."""

STATEMENT_LENGTH_MAX: Final = 100_000
"""Characters of a statement."""

LIKE_PATTERN_BYTES_MAX: Final = 1_000
"""A long pattern could run for minutes, and could not be stopped."""

_FIRST_WORDS: Final = ("SELECT", "WITH", "VALUES", "EXPLAIN", "PRAGMA")
_FIRST_WORD: Final = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*([A-Za-z_]*)", re.DOTALL)

_DESCRIBING_PRAGMAS: Final = frozenset(
    {"table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
)
"""PRAGMAs whose argument names an object; an argument to any other would be a new setting."""
_ASKING_PRAGMAS: Final = frozenset(
    {
        "application_id",
        "collation_list",
        "compile_options",
        "data_version",
        "encoding",
        "function_list",
        "page_count",
        "page_size",
        "pragma_list",
        "schema_version",
        "table_list",
        "user_version",
    }
)

_OUTSIDE_FUNCTIONS: Final = frozenset({"edit", "fts3_tokenizer", "load_extension", "readfile", "writefile"})
"""Functions of SQLite or of its shell that reach beyond the database."""

_CLOSED: Final = OPAQUE_NAMES | {"sqlite_dbpage"}
"""Tables that are never shown, and the table of pages that contains them, if SQLite was built with it."""

_LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX),
    (sqlite3.SQLITE_LIMIT_COLUMN, COLUMNS_MAX),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LIKE_PATTERN_BYTES_MAX),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
)

_STEPS_BETWEEN_CLOCK_READS: Final = 10_000
"""Instructions of SQLite's machine: about a tenth of a millisecond."""

_FAULTS_OF_THE_STATEMENT: Final = (
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_TOOBIG,
)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a statement."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Values are int, float, str, bytes or None."""


def run_query(
    connection: sqlite3.Connection,
    sql: str,
    *,
    rows_max: int,
    timeout_seconds: float,
    bytes_max: int = RESULT_BYTES_MAX,
) -> QueryResult:
    """Run one statement: SELECT, WITH, VALUES, EXPLAIN, or a PRAGMA that only describes. Blocks for that long.

    `connection` is one of `open_reader`, which has no other user during the call; it may be in a transaction, and stays
    in it. Raises ApiError: INVALID_REQUEST with SQLite's words and a hint if the statement is none, is more than one,
    or may not be run; if it takes longer than `timeout_seconds`, has more than `rows_max` rows, or more than about
    `bytes_max` bytes; KAFKA_STORAGE_ERROR if the database cannot be read. Its memory, and the time of single steps of
    SQLite, are bounded only in a process of its own (statemachine.store.query_process): MemoryError then.
    """
    _check_statement(sql)
    check(
        connection.execute("PRAGMA query_only").fetchone()[0] == 1,
        "statements of clients run on a connection that can only read",
    )
    guard = _Guard(time.monotonic() + timeout_seconds)
    try:
        with _guarded(connection, guard):
            cursor = connection.execute(sql)
            columns = tuple(column[0] for column in cursor.description or ())
            rows = _fetched(cursor, rows_max, bytes_max, guard)
            cursor.close()
            return QueryResult(columns, rows)
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        raise _translated(connection, error, guard, timeout_seconds) from None


class _Guard:
    """SQLite's callbacks while a statement is prepared and runs."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.denied: str | None = None
        """The action of the statement that is not allowed."""
        self.is_closed = False
        """Whether that action reads data that is never shown."""

    def is_over(self) -> bool:
        """Whether the statement's time has expired; called by SQLite during execution."""
        return time.monotonic() >= self._deadline

    def authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, source: str | None
    ) -> int:
        """Whether the statement may perform that action; the meaning of `first` and `second` depends on it."""
        match action:
            case sqlite3.SQLITE_READ if first in _CLOSED and second:  # without a column: rows are only counted
                self.is_closed = True
                self.denied = f"read {first}, which is never shown"
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_READ | sqlite3.SQLITE_RECURSIVE:
                return sqlite3.SQLITE_OK
            # SQLite asks this when a connection first uses json_each and the like. No statement can write that table.
            case sqlite3.SQLITE_UPDATE if first == "sqlite_master":
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_FUNCTION:
                if (second or "").lower() not in _OUTSIDE_FUNCTIONS:
                    return sqlite3.SQLITE_OK
                self.denied = f"call {second}()"
            case sqlite3.SQLITE_PRAGMA:
                name = (first or "").lower()
                if name in _DESCRIBING_PRAGMAS or (name in _ASKING_PRAGMAS and second is None):
                    return sqlite3.SQLITE_OK
                self.denied = f"use PRAGMA {name}" if second is None else f"set PRAGMA {name}"
            case _:
                self.denied = _ACTIONS.get(action, "change something")
        return sqlite3.SQLITE_DENY


_ACTIONS: Final = {
    sqlite3.SQLITE_ATTACH: "open another file",
    sqlite3.SQLITE_DETACH: "close a file",
    sqlite3.SQLITE_TRANSACTION: "begin or end a transaction",
    sqlite3.SQLITE_SAVEPOINT: "begin or end a transaction",
    sqlite3.SQLITE_INSERT: "insert rows",
    sqlite3.SQLITE_UPDATE: "update rows",
    sqlite3.SQLITE_DELETE: "delete rows",
}


@contextmanager
def _guarded(connection: sqlite3.Connection, guard: _Guard) -> Iterator[None]:
    limits = [(category, connection.setlimit(category, limit)) for category, limit in _LIMITS]
    connection.set_authorizer(guard.authorize)
    connection.set_progress_handler(guard.is_over, _STEPS_BETWEEN_CLOCK_READS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        for category, limit in limits:
            connection.setlimit(category, limit)


def _fetched(cursor: sqlite3.Cursor, rows_max: int, bytes_max: int, guard: _Guard) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    size_bytes = 0
    for row in cursor:
        rows.append(row)
        size_bytes += sum(map(_size, row))
        if len(rows) > rows_max:
            raise invalid_request(f"the query has found more than {rows_max} rows; ask for fewer, with WHERE or LIMIT")
        if size_bytes > bytes_max:
            raise invalid_request(
                f"the query has found more than {bytes_max} bytes; ask for less, with WHERE, LIMIT or fewer columns"
            )
        if guard.is_over():
            raise sqlite3.OperationalError("interrupted")
    return rows


def _size(value: object) -> int:
    return 8 + (len(value) if isinstance(value, str | bytes) else 0)


# --- errors ----------------------------------------------------------------------------------------------------------


def _check_statement(sql: str) -> None:
    if len(sql) > STATEMENT_LENGTH_MAX:
        raise invalid_request(f"the query has {len(sql)} characters; at most {STATEMENT_LENGTH_MAX} are accepted")
    if "\0" in sql:
        raise invalid_request("the query contains a NUL character")
    found = _FIRST_WORD.match(sql)
    first = found[1].upper() if found else ""
    if first not in _FIRST_WORDS:
        begin = f"begins with {first[:32]}" if first else "is no statement"
        raise invalid_request(f"the query {begin}; it must be one {', '.join(_FIRST_WORDS[:-1])} or {_FIRST_WORDS[-1]}")


def took_too_long(timeout_seconds: float) -> ApiError:
    """The error for a statement that took too long."""
    return invalid_request(
        f"the query took longer than {timeout_seconds:g} s; ask for less, or query a copy of the database"
    )


def _translated(connection: sqlite3.Connection, error: Exception, guard: _Guard, timeout_seconds: float) -> ApiError:
    if guard.denied is not None:
        remedy = "count its rows, or leave it out" if guard.is_closed else "it may only read"
        return invalid_request(f"the query would {guard.denied}; {remedy}")
    words = str(error)
    if words == "interrupted":
        return took_too_long(timeout_seconds)
    # Errors of the module itself have no code: they are about the statement or its values.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code not in _FAULTS_OF_THE_STATEMENT:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata database cannot be read: {words}; try again")
    if code == sqlite3.SQLITE_TOOBIG:
        return invalid_request(f"{words}: a single value may have {VALUE_BYTES_MAX} bytes")
    return invalid_request(words + _hint(connection, words))


def _hint(connection: sqlite3.Connection, words: str) -> str:
    """What may have been meant by an unknown name, or where to find the names."""
    kind, _, name = words.partition(": ")
    if kind == "no such table":
        known = _names(connection, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    elif kind == "no such column":
        known = _names(
            connection,
            "SELECT column.name FROM sqlite_master AS entry, pragma_table_info(entry.name) AS column"
            " WHERE entry.type IN ('table', 'view')",
        )
    else:
        return ""
    close = get_close_matches(name.rpartition(".")[2].lower(), known, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(known)}" if kind == "no such table" else "; see PRAGMA table_info(a table's name)"


def _names(connection: sqlite3.Connection, sql: str) -> list[str]:
    names = {name for (name,) in connection.execute(sql)}
    return sorted(name for name in names if not name.startswith(("sqlite_", "_")))
