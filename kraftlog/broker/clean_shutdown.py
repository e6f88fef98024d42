"""The file that shows a starting broker that its last shutdown was clean; it has the broker epoch (KIP-966).

    DIR/clean-shutdown      lines of key=value, as in docs/formats/directory.md

The file is deleted as soon as it is read, before the broker registers, so that it can only be from the run just before.
A crash leaves no file. Then the broker names no epoch when it registers, and the controller assumes that it may have
lost records. A damaged file counts as none: no epoch is better than a wrong one.
"""

from __future__ import annotations

from typing import Final

from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties

FILE_NAME: Final = "clean-shutdown"
VERSION: Final = 1

_EPOCH_KEY: Final = "broker.epoch"


def take_clean_epoch(files: FileSystem, directory: str) -> int | None:
    """Return the broker's epoch at its last clean shutdown; None if the last shutdown was not clean, or it never ran.

    Makes the directory if it does not exist, and deletes the file, durably. Raises StorageError, also if `directory` is
    not a directory.
    """
    files.make_directories(directory)
    if FILE_NAME not in files.list_directory(directory):
        return None
    path = join(directory, FILE_NAME)
    content = read_whole(files, path)
    files.remove(path)
    files.fsync_directory(directory)
    found = decode_properties(content) or {}
    epoch = found.get(_EPOCH_KEY, "")
    return int(epoch) if found.get("version") == str(VERSION) and epoch.isdecimal() else None


def leave_clean_epoch(files: FileSystem, directory: str, broker_epoch: int) -> None:
    """Write the epoch for the next start, atomically. Raises StorageError."""
    lines = f"version={VERSION}\n{_EPOCH_KEY}={broker_epoch}\n"
    write_new_file(files, join(directory, FILE_NAME), encode_properties(lines))
