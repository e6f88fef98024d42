"""SQLite's write-ahead log beside a metadata database, and how it is made to start over.

SQLite goes back to its beginning only when all of it is in the database and nobody writes or reads from it. Under a
steady load such a moment does not come by itself: so most of it is copied while the writer goes on, and then, while the
writer is still for some milliseconds, what came meanwhile, and the file is cut to nothing. An old read transaction
keeps all that was written since; nothing but its end gives the room back (docs/formats/directory.md has the bounds).
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
"""From this size on it is made to start over; earlier when the file system has little room."""

START_OVER_BYTES_MIN: Final = MEBIBYTE
FREE_SHARE: Final = 8
"""It may take up a part of one in so many of the free room: when that runs out, log and database have it."""

WAIT_SHARE: Final = 1.5
"""From so many times that size on, 24 MiB, the next transaction waits until it has started over, or it is known that
somebody reads."""

WARN_BYTES: Final = 64 * MEBIBYTE
"""It does not come so far while no read transaction is older than a second."""

STOP_BYTES: Final = 512 * MEBIBYTE
"""From this size on nothing more is applied until it has started over."""

TRANSACTION_BYTES_SOFT_MAX: Final = 128 * 1024
"""So many bytes of batches are applied in one transaction, at least one batch. A partition's record can touch three
pages: this comes to 10 MiB of 1 KiB pages, and to 40 MiB of the 4 KiB pages of older databases."""

ROUNDS_MAX: Final = 5
REMAINDER_BYTES: Final = 256 * 1024
"""As little may be left to be copied while the writer is still."""


class WriteAheadLogHeld(StoreUnavailable):
    """Somebody's old read transaction keeps the write-ahead log, which has grown as large as it may."""


class WriteAheadLog:
    """The write-ahead log of one open database. Only the properties are for an event loop."""

    def __init__(self, database: Path) -> None:
        """The database must be there. Close this after the last connection to it in this process."""
        self._database = database
        self._path = database.with_name(database.name + "-wal")
        # To sync the database by. It stays open: when a process closes any descriptor of a file, the system drops all
        # locks that SQLite has on that file for it.
        self._descriptor = os.open(database, os.O_RDONLY)

    def close(self) -> None:
        """Let go of the database; twice changes nothing."""
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
        """Whether it is as large as it may become."""
        return self.size_bytes >= STOP_BYTES

    def _due_bytes(self) -> int:
        room = os.fstatvfs(self._descriptor)
        return min(START_OVER_BYTES, max(START_OVER_BYTES_MIN, room.f_bavail * room.f_frsize // FREE_SHARE))

    def copy(self) -> None:
        """Copy it into the database, durably, as far as readers let it, while the writer goes on.

        Raises sqlite3.Error, for want of room say, and then it can be tried again; FlushFailed.
        """
        left_before: int | None = None
        for _ in range(ROUNDS_MAX):
            with closing(self._connect(0)) as connection:
                page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
                _, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # SQLite syncs the database only when it has copied all, which would come while the writer is still.
            self._sync()
            left = (frames - copied) * page_bytes
            if left <= REMAINDER_BYTES or (left_before is not None and left >= left_before):
                return
            left_before = left

    def start_over(self, wait_seconds: float = 0.0) -> bool:
        """Copy what is left and cut the file to nothing; False if somebody reads from it, or writes.

        It waits so long for those who read, and for one who writes; who begins to write meanwhile is refused, as if
        somebody else had locked the database. Raises as `copy` does.
        """
        if self.size_bytes == 0:
            return True
        with closing(self._connect(wait_seconds)) as connection:
            is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not is_busy

    def holders(self) -> str:
        """Who reads the database for longer than a moment: process ids and commands."""
        return _joined(processes_reading(self._database.with_name(self._database.name + "-shm")))

    def check_bound(self) -> None:
        """Raise WriteAheadLogHeld if it is as large as it may become; the message says who keeps it."""
        if self.is_full:
            raise WriteAheadLogHeld(
                f"the write-ahead log {self._path} has {self.size_bytes >> 20} MiB, at most {STOP_BYTES >> 20} are"
                f" written, because {self.holders()} reads the database in one long transaction; end that process or"
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
