"""A copy of a metadata database for long reads: a long read of the database itself would hold its write-ahead log.

The copy is SQLite's temporary database: in memory while it is small, else in a file without a name, which disappears
when the connection is closed, or the process ends.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from kraftbase.errors import OutOfSpace, StorageError
from statemachine.tables.database import open_reader

MEMORY_KIBIBYTES: Final = 64 * 1024
"""Up to this much of a copy is in memory, the rest in the file."""

DIRECTORY_VARIABLE: Final = "SQLITE_TMPDIR"
"""Where SQLite makes that file, an environment variable of a process; it is read when SQLite is first used."""


def open_copy(database: Path) -> sqlite3.Connection:
    """Return a connection to a copy of the committed database; it can only read.

    The database is read in one transaction, a second for some hundred megabytes. Raises StorageError if it cannot be
    read, OutOfSpace if there is no room for the copy.
    """
    connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA cache_size = -{MEMORY_KIBIBYTES}")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        with closing(open_reader(database)) as reader:
            reader.backup(connection)
        connection.execute("PRAGMA query_only = 1")
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise OutOfSpace(f"no room for a copy of {database} to read from: {error}; make room for it") from None
        raise StorageError(f"cannot copy the metadata database {database}: {error}; is it a node's?") from None
    except BaseException:
        connection.close()
        raise
    return connection
