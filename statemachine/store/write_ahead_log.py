"""SQLite's write-ahead log of a metadata database, and how it is made to start over.

SQLite returns to its beginning only when all of it is in the database and no connection writes or reads from it. Under
a steady load such a moment does not occur by itself. So most of the log is copied while the writer continues; then the
writer is stopped for some milliseconds, the rest is copied, and the file is truncated. An old read transaction keeps
everything written since it began; only its end frees the room (docs/formats/directory.md has the bounds).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from kraftbase.errors import FlushFailed
from statemachine.store.lock_holders import processes_reading
from statemachine.store.metadata_tables import StoreUnavailable

MEBIBYTE: Final = 1024 * 1024

START_OVER_BYTES: Final = 16 * MEBIBYTE
"""The size from which it is made to start over; earlier when the file system has little room."""

START_OVER_BYTES_MIN: Final = MEBIBYTE
FREE_SHARE: Final = 8
"""The log may take one part in this many of the free room: when the room runs out, log and database have it."""

WAIT_SHARE: Final = 1.5
"""From this many times that size on, 24 MiB, the next transaction waits until the log has started over, or a reader is
known to hold it.
"""

WARN_BYTES: Final = 64 * MEBIBYTE
"""The log stays smaller while no read transaction is older than a second."""

STOP_BYTES: Final = 512 * MEBIBYTE
"""From this size on nothing is applied until the log has started over."""

TRANSACTION_BYTES_SOFT_MAX: Final = 128 * 1024
"""At most this many bytes of batches are applied in one transaction, but at least one batch. A partition's record can
touch three pages: that is 10 MiB of 1 KiB pages, and 40 MiB of the 4 KiB pages of older databases."""

ROUNDS_MAX: Final = 5
REMAINDER_BYTES: Final = 256 * 1024
"""The writer is stopped when this little is left to copy."""


class WriteAheadLogHeld(StoreUnavailable):
    """An old read transaction keeps the write-ahead log, which has reached its limit."""


class WriteAheadLog:
    """The write-ahead log of one open database. Only the properties are for an event loop."""

    def __init__(self, database: Path) -> None:
        """The database must exist. Close this after the last connection to it in this process."""
        self._database = database
        self._path = database.with_name(database.name + "-wal")
        # To sync the database with. It stays open: when a process closes any descriptor of a file, the system drops all
        # locks that SQLite has on that file for the process.
        self._descriptor = os.open(database, os.O_RDONLY)

    def close(self) -> None:
        """Close the file of the database; closing twice changes nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def size_bytes(self) -> int:
        """How large the file is."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def is_due(self) -> bool:
        """Whether it should start over."""
        size_bytes = self.size_bytes
        return size_bytes >= START_OVER_BYTES_MIN and size_bytes >= self._due_bytes()

    @property
    def is_large(self) -> bool:
        """Whether the next transaction should wait until it has."""
        size_bytes = self.size_bytes
        return size_bytes >= START_OVER_BYTES_MIN and size_bytes >= self._due_bytes() * WAIT_SHARE

    @property
    def is_full(self) -> bool:
        """Whether it has reached its limit."""
        return self.size_bytes >= STOP_BYTES

    def _due_bytes(self) -> int:
        room = os.fstatvfs(self._descriptor)
        return min(START_OVER_BYTES, max(START_OVER_BYTES_MIN, room.f_bavail * room.f_frsize // FREE_SHARE))

    def copy(self) -> None:
        """Copy it into the database, durably, as far as readers allow it, while the writer continues.

        Raises sqlite3.Error, for example for lack of room, after which it can be tried again; FlushFailed.
        """
        left_before: int | None = None
        for _ in range(ROUNDS_MAX):
            with closing(self._connect(0)) as connection:
                page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
                _, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # SQLite syncs the database only when it has copied all, which would be while the writer is stopped.
            self._sync()
            left = (frames - copied) * page_bytes
            if left <= REMAINDER_BYTES or (left_before is not None and left >= left_before):
                return
            left_before = left

    def start_over(self, wait_seconds: float = 0.0) -> bool:
        """Copy the rest and truncate the file; return False if a connection reads from it, or writes.

        It waits this long for readers, and for a writer; a writer that begins during the wait is refused, as if another
        process had locked the database. Raises as `copy` does.
        """
        if self.size_bytes == 0:
            return True
        with closing(self._connect(wait_seconds)) as connection:
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not is_busy

    def holders(self) -> str:
        """The processes that read the database for longer than a moment: ids and commands."""
        return _joined(processes_reading(self._database.with_name(self._database.name + "-shm")))

    def check_bound(self) -> None:
        """Raise WriteAheadLogHeld if it has reached its limit; the message names the processes that keep it."""
        if self.is_full:
            raise WriteAheadLogHeld(
                f"the write-ahead log {self._path} has {self.size_bytes >> 20} MiB, the limit is {STOP_BYTES >> 20},"
                f" because {self.holders()} reads the database in one long transaction; end that process or"
                " its transaction"
            )

    def _connect(self, timeout_seconds: float) -> sqlite3.Connection:
        return sqlite3.connect(self._database, timeout=timeout_seconds, isolation_level=None)

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise FlushFailed(f"cannot fsync {self._database}: {error.strerror}") from None


def _joined(found: list[str]) -> str:
    return " and ".join(found) or "a process that this one cannot see, perhaps in another container,"
