"""The incarnation as which a broker registers after a restored cluster has adopted it: a file in its directory (CT-39).

    DIR/adopted-as      lines of key=value, as in docs/formats/directory.md

By the incarnation the controller recognizes a broker whose partitions the restored cluster has taken over. The file is
deleted when the broker has registered and its log directories have noted the registration.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftbase.errors import ConfigurationError
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.uuids import uuid_from_text, uuid_to_text

FILE_NAME: Final = "adopted-as"
VERSION: Final = 1

_INCARNATION_KEY: Final = "incarnation.id"


def adopted_incarnation(files: FileSystem, directory: str) -> UUID | None:
    """Return the incarnation; None if the broker was not adopted, or has registered since. Raises StorageError.

    A damaged file counts as none: the controller then refuses the broker, which can be adopted again.
    """
    path = join(directory, FILE_NAME)
    if not files.exists(path):
        return None
    found = decode_properties(read_whole(files, path)) or {}
    try:
        return uuid_from_text(found.get(_INCARNATION_KEY, "")) if found.get("version") == str(VERSION) else None
    except ConfigurationError:
        return None


def leave_adopted_incarnation(files: FileSystem, directory: str, incarnation_id: UUID) -> None:
    """Write the incarnation for the broker's next start, durably. Raises StorageError, FlushFailed."""
    lines = f"version={VERSION}\n{_INCARNATION_KEY}={uuid_to_text(incarnation_id)}\n"
    write_new_file(files, join(directory, FILE_NAME), encode_properties(lines))


def forget_adopted_incarnation(files: FileSystem, directory: str) -> None:
    """Delete the file, durably: the broker has registered. Raises StorageError, FlushFailed."""
    path = join(directory, FILE_NAME)
    if files.exists(path):
        files.remove(path)
        files.fsync_directory(directory)
