"""Small files in two copies under two names, each with its own checksum: the damage or loss of one copy loses nothing.

Both hold the same, except after a crash between their renames: then the reader uses the more recent one. A directory of
an older version, with one copy, is read as one whose second copy was lost, and gets a second copy.
"""

from __future__ import annotations

import contextlib
from typing import Final

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join, read_whole, write_new_file, write_temporary

COPY_SUFFIX: Final = "-copy"
"""The end of the second copy's name."""


def copy_paths(directory: str, name: str) -> tuple[str, str]:
    """The paths of both copies."""
    return join(directory, name), join(directory, name + COPY_SUFFIX)


def read_copies(files: FileSystem, directory: str, name: str) -> dict[str, bytes]:
    """The contents of the existing copies, by path; empty for one that cannot be read."""
    found = {}
    for path in copy_paths(directory, name):
        if files.exists(path):
            try:
                found[path] = read_whole(files, path)
            except StorageError:
                found[path] = b""
    return found


def write_copies(files: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Make both copies hold `data`, durably. Raises OutOfSpace, then nothing changed; FlushFailed."""
    paths = copy_paths(directory, name)
    for path in paths:
        write_temporary(files, path, data)
    for path in paths:
        files.rename(path + TEMPORARY_SUFFIX, path)
    files.fsync_directory(directory)


def mend_copies(files: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Rewrite the copies that do not hold `data`, which the other one does; not now if there is no room."""
    found = read_copies(files, directory, name)
    for path in copy_paths(directory, name):
        if found.get(path) != data:
            with contextlib.suppress(OutOfSpace):
                write_new_file(files, path, data)


def remove_copies(files: FileSystem, directory: str, name: str) -> None:
    """Remove both copies, durably."""
    there = [path for path in copy_paths(directory, name) if files.exists(path)]
    for path in there:
        files.remove(path)
    if there:
        files.fsync_directory(directory)
