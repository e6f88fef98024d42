"""Where a log starts, durably (docs/formats/log.md): what is below is in a snapshot, and its segments may be gone.

A log without the file has everything. The file is written before anything is removed for it.
"""

from __future__ import annotations

from typing import Final

from raft.core.epochs import LOG_BEGINNING
from raft.core.errors import StorageError
from raft.core.types import Epoch, Offset, OffsetAndEpoch
from raft.storage.files import FileSystem, join, read_whole, write_new_file
from raft.storage.properties import decode_properties, encode_properties

LOG_START_NAME: Final = "log-start"
FORMAT_VERSION: Final = 1


def encode_log_start(start: OffsetAndEpoch) -> bytes:
    """The content of the file: lines of `key=value`, the last one the CRC-32C of the lines before."""
    return encode_properties(f"version={FORMAT_VERSION}\nstart.offset={start.offset}\nstart.epoch={start.epoch}\n")


def decode_log_start(data: bytes, path: str) -> OffsetAndEpoch:
    """What the file says. Raises StorageError naming `path` when it is damaged or of an unknown version."""
    values = decode_properties(data)
    if values is None:
        raise StorageError(
            f"{path} is damaged: it cannot be told where this replica's log starts. Nothing was changed. Bring the file"
            " back from a backup of this directory, or remove this replica and add a new one with a directory of its"
            " own"
        )
    if values.get("version") != str(FORMAT_VERSION):
        raise StorageError(
            f"{path} has format version {values.get('version')}; this program knows version {FORMAT_VERSION}. Use the"
            " program that wrote it"
        )
    return OffsetAndEpoch(epoch=Epoch(int(values["start.epoch"])), offset=Offset(int(values["start.offset"])))


def read_log_start(files: FileSystem, directory: str) -> OffsetAndEpoch:
    """Where the log in `directory` starts, and the epoch of the record before. Raises StorageError."""
    path = join(directory, LOG_START_NAME)
    return decode_log_start(read_whole(files, path), path) if files.exists(path) else LOG_BEGINNING


def write_log_start(files: FileSystem, directory: str, start: OffsetAndEpoch) -> None:
    """Let the log in `directory` start there, durably. Raises OutOfSpace, then nothing changed; FlushFailed."""
    write_new_file(files, join(directory, LOG_START_NAME), encode_log_start(start))


def remove_log_start(files: FileSystem, directory: str) -> None:
    """Let the log start at 0 again, durably."""
    path = join(directory, LOG_START_NAME)
    if files.exists(path):
        files.remove(path)
        files.fsync_directory(directory)
