"""Which errors of SQLite mean that the database has no room: advice about permissions would mislead."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

from kraftbase.errors import OutOfSpace, StorageError
from statemachine.tables.database import translated

PATH = Path("metadata.db")


def failed(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "error",
    [
        failed(sqlite3.SQLITE_FULL),
        failed(sqlite3.SQLITE_IOERR_SHMSIZE),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
)
def test_a_full_disk_is_called_that(error: sqlite3.Error | OSError) -> None:
    found = translated(PATH, error)
    assert isinstance(found, OutOfSpace)
    assert "make room" in str(found)


def test_any_other_error_of_the_disk_is_not() -> None:
    found = translated(PATH, failed(sqlite3.SQLITE_IOERR_WRITE))
    assert isinstance(found, StorageError)
    assert not isinstance(found, OutOfSpace)
