"""The durable start of a log (docs/formats/log.md): a snapshot covers the records below; segments there may be deleted.

A log without the file has everything. The file is written before anything below the start is removed, in two copies. A
start only advances, so of two copies that differ, the one with the higher start was written last.
"""

from __future__ import annotations

from typing import Final

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.types import Epoch, Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import OffsetAndEpoch
from raft.storage.advice import NOBODY_TO_FETCH_FROM
from raft.storage.copies import mend_copies, read_copies, remove_copies, write_copies

LOG_START_NAME: Final = "log-start"
FORMAT_VERSION: Final = 1


class LogStartUnknown(CorruptLog):
    """The start of a log is unknown: no copy is whole, or the copies are of another log."""

    def __init__(self, finding: str) -> None:
        super().__init__(f"{finding}. {NOBODY_TO_FETCH_FROM}")
        self.finding = finding


def encode_log_start(start: OffsetAndEpoch) -> bytes:
    """The content of the file: lines of `key=value`, the last one the CRC-32C of the lines before."""
    return encode_properties(f"version={FORMAT_VERSION}\nstart.offset={start.offset}\nstart.epoch={start.epoch}\n")


def decode_log_start(data: bytes, path: str) -> OffsetAndEpoch:
    """The start in the file. Raises LogStartUnknown naming `path` if damaged, StorageError for another version."""
    values = decode_properties(data)
    if values is None:
        raise LogStartUnknown(f"{path} is damaged: it is unknown where this replica's log starts")
    if values.get("version") != str(FORMAT_VERSION):
        raise StorageError(
            f"{path} has format version {values.get('version')}; this program knows version {FORMAT_VERSION}. Use the"
            " program that wrote it"
        )
    return OffsetAndEpoch(epoch=Epoch(int(values["start.epoch"])), offset=Offset(int(values["start.offset"])))


def read_log_start(files: FileSystem, directory: str) -> OffsetAndEpoch:
    """Return where the log in `directory` starts, and the epoch of the record before.

    Raises LogStartUnknown when there are copies and none is whole, StorageError for an unknown version.
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
    """Rewrite a copy that is damaged, older or missing. Raises as `read_log_start` does, and FlushFailed."""
    start = read_log_start(files, directory)
    if start != LOG_BEGINNING:
        mend_copies(files, directory, LOG_START_NAME, encode_log_start(start))


def write_log_start(files: FileSystem, directory: str, start: OffsetAndEpoch) -> None:
    """Set the start of the log in `directory`, durably. Raises OutOfSpace, then nothing changed; FlushFailed."""
    write_copies(files, directory, LOG_START_NAME, encode_log_start(start))


def remove_log_start(files: FileSystem, directory: str) -> None:
    """Reset the log's start to 0, durably."""
    remove_copies(files, directory, LOG_START_NAME)
