"""Which processes read an SQLite database, by their locks on its shared memory file.

Linux lists all locks in /proc/locks. The file itself is not opened: closing it would drop the locks that SQLite has on
it for this process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

READ_LOCK_BYTES: Final = range(123, 128)
"""Where a reader of a write-ahead log has a shared lock: SQLite's WAL_READ_LOCK(0) to (4), as bytes of the file."""

COMMAND_LENGTH_MAX: Final = 80
NAMED_MAX: Final = 3
MOMENT_SECONDS: Final = 0.1
"""A process that reads for this long is not a short reader."""

_LOCKS: Final = Path("/proc/locks")


class SharedLock(NamedTuple):
    """A shared POSIX lock."""

    process_id: int
    inode: int
    first: int
    last: int


def processes_reading(shared_memory: Path) -> list[str]:
    """The processes that read the database now and after a moment, for which it waits: "process 17 (sqlite3
    metadata.db)".

    At most three, this process only if there is no other. Empty if the system does not list locks.
    """
    before = _readers(shared_memory)
    time.sleep(MOMENT_SECONDS)
    staying = before & _readers(shared_memory)
    others = staying - {os.getpid()} or staying
    return [f"process {process_id} ({_command(process_id)})" for process_id in sorted(others)[:NAMED_MAX]]


def shared_locks(listing: str) -> list[SharedLock]:
    """The shared POSIX locks of /proc/locks; those of processes that this one cannot see are left out."""
    found = []
    for line in listing.splitlines():
        words = line.split()
        if "->" in words or len(words) != 8 or (words[1], words[3]) != ("POSIX", "READ") or int(words[4]) <= 0:
            continue
        inode = int(words[5].rpartition(":")[2])
        last = 2**63 - 1 if words[7] == "EOF" else int(words[7])
        found.append(SharedLock(int(words[4]), inode, int(words[6]), last))
    return found


def _readers(shared_memory: Path) -> set[int]:
    try:
        inode = shared_memory.stat().st_ino  # the device's number is another one in /proc on some file systems
        listing = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return set()
    return {
        lock.process_id
        for lock in shared_locks(listing)
        if lock.inode == inode and lock.first < READ_LOCK_BYTES.stop and lock.last >= READ_LOCK_BYTES.start
    }


def _command(process_id: int) -> str:
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "its command is not known"
    command = b" ".join(words).decode(errors="replace").strip()
    return command if len(command) <= COMMAND_LENGTH_MAX else command[: COMMAND_LENGTH_MAX - 3] + "..."
