"""Whether a process uses a directory of a node or broker, determined without touching the directory. A process that
uses a directory holds the flock of its `.lock`. Trying that lock could disturb a node that starts at this moment, so
the kernel's list of locks is read instead. If the list does not exist, or omits locks of other containers, the
directory counts as unused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kraftbase.errors import DirectoryError
from raft.storage.directory import LOCK_NAME

LOCKS: Final = Path("/proc/locks")
_FLOCK: Final = "FLOCK"


def refuse_if_in_use(directory: Path) -> None:
    """Raise DirectoryError, with what to do, if a process uses the directory."""
    holder = _holder(directory / LOCK_NAME)
    if holder is not None:
        raise DirectoryError(
            f"{directory} is in use by process {holder}: what it is writing would look damaged; stop that node or"
            " broker, then verify"
        )


def _holder(lock: Path) -> str | None:
    """The id of the process that holds the flock of a file; None if no visible process does."""
    try:
        status = lock.stat()
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        match line.split():
            case [_, kind, _, _, process_id, file, *_] if kind == _FLOCK and file == wanted:
                return process_id
    return None
