"""Metadata loaded for SQL is kept in the user's cache directory, so that the next statement need not wait. Only large
directories are cached: a small one is loaded faster than a copy is written. A copy is used as long as its source files
are unchanged. It has neither passwords nor credentials, and only its owner can read it. The directory itself is never
written.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from kraftlog.offline.kafka.directory import KafkaDirectory
from statemachine.tables.database import KNOWN_MIGRATIONS

CACHED_BYTES_MIN: Final = 16 * 1024 * 1024
"""The bytes of files to read that take seconds."""
FORMAT: Final = 1
"""Raised when the same files give other tables: older copies are not used then."""
COPIES_MAX: Final = 4
"""How many copies are kept: the most recently used."""

_WARNINGS_TABLE: Final = "CREATE TABLE _warnings (line TEXT NOT NULL) STRICT"


class Cached(NamedTuple):
    """Read-only tables for statements, and warnings about them. The caller closes the tables."""

    connection: sqlite3.Connection
    warnings: list[str]


def cache_directory() -> Path:
    """Where copies are, by the rules of XDG."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kraftlog" / "kafka"


class StatementCache:
    """The copy of one directory's metadata, loaded in one way."""

    def __init__(self, directory: KafkaDirectory, *, snapshot_only: bool, place: Path | None = None) -> None:
        newest = directory.newest_checkpoint
        read = [] if newest is None else [newest.path]
        read += [] if snapshot_only else [segment.path for segment in directory.segments]
        stats = [(path.name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for path in read for stat in (path.stat(),)]
        named = [
            FORMAT,
            *KNOWN_MIGRATIONS,
            str(directory.path.resolve()),
            directory.identity,
            stats,
            snapshot_only,
        ]
        digest = blake2b(json.dumps(named).encode(), digest_size=16).hexdigest()
        self.is_worth_it = sum(size for _, size, _, _ in stats) >= CACHED_BYTES_MIN
        self._path = (place or cache_directory()) / f"{digest}.db"

    def find(self) -> Cached | None:
        """The copy, if it exists."""
        if not self.is_worth_it or not self._path.is_file():
            return None
        uri = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            try:
                warnings = [line for (line,) in connection.execute("SELECT line FROM _warnings")]
                connection.execute("PRAGMA query_only = 1")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error:  # the copy is damaged: it is made again
            return None
        with suppress(OSError):
            os.utime(self._path)
        return Cached(connection, warnings)

    def keep(self, connection: sqlite3.Connection, warnings: Sequence[str]) -> None:
        """Write a copy of tables that are ready for statements; on an error, write none."""
        if not self.is_worth_it:
            return
        part = self._path.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError, sqlite3.Error):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                part.touch(mode=0o600)
                _vacuum_into(connection, part)
                with closing(sqlite3.connect(part, isolation_level=None)) as copy:
                    copy.execute(_WARNINGS_TABLE)
                    copy.executemany("INSERT INTO _warnings (line) VALUES (?)", ((line,) for line in warnings))
                part.replace(self._path)
            finally:
                part.unlink(missing_ok=True)
            self._forget_old()

    def _forget_old(self) -> None:
        copies = sorted(self._path.parent.glob("*.db"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in copies[COPIES_MAX:]:
            path.unlink(missing_ok=True)


def _vacuum_into(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the rows: a page copied unchanged may still have removed values in it."""
    connection.execute("PRAGMA query_only = 0")
    try:
        connection.execute("VACUUM INTO ?", (str(path),))
    finally:
        connection.execute("PRAGMA query_only = 1")
