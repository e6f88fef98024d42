"""Where a log starts, durably (docs/formats/log.md): what is below is in a snapshot, and its segments may be gone.

A log without the file has everything. The file is written before anything is removed for it, in two copies. A start
only moves on, so of two copies that differ the one that is further on was written last.
"""

from __future__ import annotations

from typing import Final

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.files.properties import decode_properties, encode_properties
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import Epoch, Offset, OffsetAndEpoch
from raft.storage.advice import NOBODY_TO_FETCH_FROM
from raft.storage.copies import mend_copies, read_copies, remove_copies, write_copies

LOG_START_NAME: Final = "log-start"
FORMAT_VERSION: Final = 1


class LogStartUnknown(CorruptLog):
    """It cannot be told where a log starts: no copy is whole, or they are of another log."""

    def __init__(self, finding: str) -> None:
        super().__init__(f"{finding}. {NOBODY_TO_FETCH_FROM}")
        self.finding = finding


def encode_log_start(start: OffsetAndEpoch) -> bytes:
    """The content of the file: lines of `key=value`, the last one the CRC-32C of the lines before."""
    return encode_properties(f"version={FORMAT_VERSION}\nstart.offset={start.offset}\nstart.epoch={start.epoch}\n")


def decode_log_start(data: bytes, path: str) -> OffsetAndEpoch:
    """What the file says. Raises LogStartUnknown naming `path` when it is damaged, StorageError for another version."""
    values = decode_properties(data)
    if values is None:
        raise LogStartUnknown(f"{path} is damaged: it cannot be told where this replica's log starts")
    if values.get("version") != str(FORMAT_VERSION):
        raise StorageError(
            f"{path} has format version {values.get('version')}; this program knows version {FORMAT_VERSION}. Use the"
            " program that wrote it"
        )
    return OffsetAndEpoch(epoch=Epoch(int(values["start.epoch"])), offset=Offset(int(values["start.offset"])))


def read_log_start(files: FileSystem, directory: str) -> OffsetAndEpoch:
    """Where the log in `directory` starts, and the epoch of the record before.

    Raises LogStartUnknown when no copy that is there is whole, StorageError for a version that is not known.
    """
    starts: list[OffsetAndEpoch] = []
    damage: LogStartUnknown | None = None
    for path, data in read_copies(files, directory, LOG_START_NAME).items():
        try:
            starts.append(decode_log_start(data, path))
        except LogStartUnknown as error:
            damage = error
    if damage is not None and not starts:
        raise damage
    return max(starts, key=lambda start: start.offset, default=LOG_BEGINNING)


def mend_log_start(files: FileSystem, directory: str) -> None:
    """Bring back a copy that is damaged, older or missing. Raises as `read_log_start` does, and FlushFailed."""
    start = read_log_start(files, directory)
    if start != LOG_BEGINNING:
        mend_copies(files, directory, LOG_START_NAME, encode_log_start(start))


def write_log_start(files: FileSystem, directory: str, start: OffsetAndEpoch) -> None:
    """Let the log in `directory` start there, durably. Raises OutOfSpace, then nothing changed; FlushFailed."""
    write_copies(files, directory, LOG_START_NAME, encode_log_start(start))


def remove_log_start(files: FileSystem, directory: str) -> None:
    """Let the log start at 0 again, durably."""
    remove_copies(files, directory, LOG_START_NAME)
