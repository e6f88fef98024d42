"""The batches in a segment or a checkpoint of Kafka's, one after the other: each is checked, and none is kept.

Where batches stop before the file does, there is a `BrokenEnd`: the writer was in the middle of a batch, or the bytes
are damaged. A node that was killed, or a copy that was made while the node ran, has an unfinished batch at the end of
its last segment (FM-10).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from kraftbase.errors import CorruptLog, KraftlogError, StorageError
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import HEADER, HEADER_BYTES, LENGTH_END, MAGIC, RecordBatch, read_batch
from kraftlog.kafka.record_values import decode_control_record, decode_metadata_record
from kraftlog.kafka.records import Record
from kraftlog.offline.kafka.small_files import NEWER

BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than a controller writes: 8 MiB, and as much again for the one record that is larger."""


class BrokenEnd(NamedTuple):
    """Why the batches of a file end before its bytes do."""

    path: Path
    position: int
    """Of the first byte that is in no batch."""
    size_bytes: int
    """Of the file."""
    reason: str
    is_torn: bool
    """The bytes are of an unfinished write: nothing that was written before is lost."""

    def __str__(self) -> str:
        left = self.size_bytes - self.position
        return f"{self.path}: the last {left} bytes, from {self.position} on, are not a batch ({self.reason})"


class FoundBatch(NamedTuple):
    """A batch, and where it ends in its file."""

    batch: RecordBatch
    end_position: int


def walk_file(path: Path) -> Iterator[FoundBatch | BrokenEnd]:
    """The batches of a file, in order, each with its CRC checked; at the end maybe a `BrokenEnd`.

    Raises StorageError for batches of another magic than 2, OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            found = _read(path, file, position, size)
            yield found
            if isinstance(found, BrokenEnd):
                return
            position = found.end_position


def _read(path: Path, file: BinaryIO, position: int, size: int) -> FoundBatch | BrokenEnd:
    header = file.read(HEADER_BYTES)
    if not any(header):
        return _broken(path, file, position, size, "they are zeros")
    if len(header) < HEADER_BYTES:
        return BrokenEnd(path, position, size, "the file ends within it", is_torn=True)
    fields = HEADER.unpack(header)
    if fields[3] != MAGIC:
        raise StorageError(
            f"{path}: the batch at byte {position} has magic {fields[3]}, and Kafka 4 writes {MAGIC}; the file is"
            " not a segment or checkpoint of a Kafka's metadata, or is damaged: copy it again"
        )
    length = LENGTH_END + fields[1]
    if not HEADER_BYTES <= length <= BATCH_BYTES_MAX:
        return _broken(path, file, position, size, f"its length would be {length}")
    data = header + file.read(length - HEADER_BYTES)
    try:
        batch = read_batch(data)
        if batch is None:
            return BrokenEnd(path, position, size, "the file ends within it", is_torn=True)
        batch.check_crc()
    except UnknownFormat as error:
        raise StorageError(f"{path}: {error}; {NEWER}") from None
    except MalformedBytes as error:
        return _broken(path, file, position, size, str(error), next_position=position + length)
    return FoundBatch(batch, position + length)


def _broken(
    path: Path, file: BinaryIO, position: int, size: int, reason: str, next_position: int | None = None
) -> BrokenEnd:
    """Torn if nothing that looks like a batch follows: then it was the last written batch."""
    file.seek(position + HEADER_BYTES if next_position is None else next_position)
    if next_position is None:
        is_torn = not any(any(piece) for piece in iter(lambda: file.read(1024 * 1024), b""))
    else:
        following = file.read(HEADER_BYTES)
        is_torn = len(following) < HEADER_BYTES or HEADER.unpack(following)[3] != MAGIC
    return BrokenEnd(path, position, size, reason, is_torn)


def metadata_of(path: Path, record: Record) -> tuple[Message, int]:
    """The metadata record in a record, and its version. Raises CorruptLog, or StorageError for a newer Kafka's."""
    try:
        return decode_metadata_record(record.value or b"")
    except MalformedBytes as error:
        raise unreadable(path, record.offset, error) from None


def control_of(path: Path, record: Record) -> Message:
    """The control record in a record. Raises as `metadata_of`."""
    try:
        return decode_control_record(record.key, record.value)[1]
    except MalformedBytes as error:
        raise unreadable(path, record.offset, error) from None


def records_of(path: Path, batch: RecordBatch) -> tuple[Record, ...]:
    """The records of a batch. Raises CorruptLog, also for compressed ones."""
    try:
        return batch.records()
    except KraftlogError as error:
        raise CorruptLog(f"{path}: {error}; copy it again, or read from another controller") from None


def unreadable(path: Path, offset: int, error: MalformedBytes) -> StorageError:
    """The error to raise for a record that cannot be read."""
    if isinstance(error, UnknownFormat):
        return StorageError(f"{path}: the record at offset {offset}: {error}; {NEWER}")
    return CorruptLog(f"{path}: the record at offset {offset}: {error}; copy it again, or read from another controller")
