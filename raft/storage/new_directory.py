"""The mark of a directory that is new: its voter has never been level with a leader (raft.core.newcomers).

Written when the directory is formatted, before it has an identity; removed when the voter takes part. A directory
formatted by an older version has no mark, and its voter takes part at once.
"""

from __future__ import annotations

from kraftbase.errors import StorageError
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.types import Epoch
from raft.core.types import UNKNOWN_UNTIL_OFFSET, RecoveringLog

NEW_DIRECTORY_NAME = "new-directory"
FORMAT_VERSION = 1

_REASONS = {
    "first": "this directory is new, and has never been level with a leader",
    "replacement": "this directory replaces a lost one",
}


def write_new_directory(files: FileSystem, directory: str, *, is_replacement: bool) -> None:
    """Mark the log in `directory`, which is made if it is missing. Raises StorageError, FlushFailed."""
    files.make_directories(directory)
    kind = "replacement" if is_replacement else "first"
    write_new_file(files, join(directory, NEW_DIRECTORY_NAME), encode_new_directory(kind))


def encode_new_directory(kind: str) -> bytes:
    """The content of the file."""
    return encode_properties(f"version={FORMAT_VERSION}\nkind={kind}\n")


def read_new_directory(files: FileSystem, directory: str) -> RecoveringLog | None:
    """The recovery of the log in `directory` while it is new; None if it is not. Raises StorageError.

    A damaged or empty mark counts as that of a replacement, which allows less: the mark shows at least that the
    directory is new.
    """
    path = join(directory, NEW_DIRECTORY_NAME)
    if not files.exists(path):
        return None
    values = decode_properties(read_whole(files, path)) or {"version": str(FORMAT_VERSION), "kind": "replacement"}
    if values.get("version") != str(FORMAT_VERSION) or values.get("kind") not in _REASONS:
        raise StorageError(f"{path} is of a version that this program does not know. Use the program that wrote it")
    kind = values["kind"]
    return RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(0), _REASONS[kind], has_forgotten=True, may_found=kind == "first")


def end_founding(files: FileSystem, directory: str) -> None:
    """Make the mark a replacement's, durably, by emptying it: a full disk has room for that. Raises FlushFailed."""
    file = files.open(join(directory, NEW_DIRECTORY_NAME))
    try:
        file.truncate(0)
        file.fsync()
    finally:
        file.close()


def remove_new_directory(files: FileSystem, directory: str) -> None:
    """Remove the mark, durably: the voter takes part from now on. Raises FlushFailed."""
    files.remove(join(directory, NEW_DIRECTORY_NAME))
    files.fsync_directory(directory)
