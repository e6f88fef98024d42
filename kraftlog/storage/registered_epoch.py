"""The broker epoch of the last registration, in each log directory, to recognize an older copy of it (CT-38).

    DIR/broker-epoch      lines of key=value, as in docs/formats/partition-log.md

The epoch is durable in every directory in use before the broker requests to be unfenced. So a directory with a lower
epoch than the last registration in which the broker was unfenced may lack records that were acknowledged since.
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
    """Read the epoch in the log directory at `path`; UNKNOWN_EPOCH if it has none, or an unreadable one."""
    name = join(path, FILE_NAME)
    try:
        if not files.exists(name):
            return UNKNOWN_EPOCH
        found = decode_properties(read_whole(files, name)) or {}
    except StorageError as error:
        logger.warning("the epoch in a log directory is unreadable", path=path, reason=str(error))
        return UNKNOWN_EPOCH
    epoch = found.get(_EPOCH_KEY, "")
    if found.get("version") != str(VERSION) or not epoch.isdecimal():
        logger.warning("the epoch in a log directory is damaged, and ignored", path=name)
        return UNKNOWN_EPOCH
    return int(epoch)


def note_registration(files: FileSystem, path: str, broker_epoch: int) -> None:
    """Make the epoch durable in the log directory at `path`.

    On a full disk the file is removed instead, which needs no room: without an epoch the directory is not taken for an
    older copy. Raises StorageError, FlushFailed.
    """
    name = join(path, FILE_NAME)
    try:
        write_new_file(files, name, encode_properties(f"version={VERSION}\n{_EPOCH_KEY}={broker_epoch}\n"))
    except OutOfSpace as error:
        logger.warning("no room for the epoch in a log directory: older copies pass", path=path, reason=str(error))
        if files.exists(name):
            files.remove(name)
            files.fsync_directory(path)


# Consider directories A and B, and a run of the broker without A that ended in a clean shutdown. A has no registration
# after its own clean shutdown, so it has every record that the broker acknowledged for its partitions.
def last_clean_epoch(epochs: Sequence[tuple[int | None, int]]) -> int | None:
    """Return the broker's epoch at its last shutdown; None if a directory was not shut down cleanly at its last use.

    `epochs` has, for each directory, the epoch of its clean shutdown and that of the last registration with it.
    """
    last = max((clean for clean, _ in epochs if clean is not None), default=None)
    return last if all(clean is not None and clean in (last, registered) for clean, registered in epochs) else None
