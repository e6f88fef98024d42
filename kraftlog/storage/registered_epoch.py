"""The epoch of the broker's last registration, in each log directory, by which an older copy is recognized (CT-38).

    DIR/broker-epoch      lines of key=value, as in docs/formats/partition-log.md

It is durable in every directory in use before the broker asks to be unfenced. So a directory with a lower epoch than
that of the last registration in which the broker was unfenced does not have what the broker acknowledged since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.sentinels import UNKNOWN_EPOCH

FILE_NAME: Final = "broker-epoch"
VERSION: Final = 1

_EPOCH_KEY: Final = "broker.epoch"

logger = structlog.get_logger(__name__)


def registered_epoch(files: FileSystem, path: str) -> int:
    """The epoch in the log directory at `path`; UNKNOWN_EPOCH if it has none, or cannot be read."""
    name = join(path, FILE_NAME)
    try:
        if not files.exists(name):
            return UNKNOWN_EPOCH
        found = decode_properties(read_whole(files, name)) or {}
    except StorageError as error:
        logger.warning("the epoch in a log directory is not known", path=path, reason=str(error))
        return UNKNOWN_EPOCH
    epoch = found.get(_EPOCH_KEY, "")
    if found.get("version") != str(VERSION) or not epoch.isdecimal():
        logger.warning("the epoch in a log directory is damaged, and proves nothing", path=name)
        return UNKNOWN_EPOCH
    return int(epoch)


def note_registration(files: FileSystem, path: str, broker_epoch: int) -> None:
    """Make the epoch durable in the log directory at `path`.

    On a full disk the directory has none from then on: removing a file needs no room, and no epoch proves nothing.
    Raises StorageError, FlushFailed.
    """
    name = join(path, FILE_NAME)
    try:
        write_new_file(files, name, encode_properties(f"version={VERSION}\n{_EPOCH_KEY}={broker_epoch}\n"))
    except OutOfSpace as error:
        logger.warning("an older copy of a log directory would not be recognized", path=path, reason=str(error))
        if files.exists(name):
            files.remove(name)
            files.fsync_directory(path)


# Consider directories A and B, of which A was not there for a start and its clean shutdown. A knows of no registration
# behind its own clean shutdown: it has all that the broker acknowledged for what is in it.
def last_clean_epoch(epochs: Sequence[tuple[int | None, int]]) -> int | None:
    """The broker's epoch at its last shutdown; None if a directory was not shut down cleanly when it was used last.

    `epochs`: of each directory, that of its clean shutdown, and that of the last registration with it.
    """
    last = max((clean for clean, _ in epochs if clean is not None), default=None)
    return last if all(clean is not None and clean in (last, registered) for clean, registered in epochs) else None
