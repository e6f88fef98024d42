"""Frames: the local envelope of a batch in a segment file (docs/formats/log.md describes every byte).

A frame is local and never replicated: it records what this node knew to be flushed when it wrote it. With it a torn
tail can be distinguished from damage to durable data:

- The frame's CRC covers its head and the first four bytes of the batch, which are the batch's own CRC, which covers
  the rest of the batch. So every byte is under one of the two, and the batch is summed once.
- `previous_crc` is the CRC of the previous frame, over segment borders too: a frame that is missing, or from another
  history, breaks the chain.
- `position` is where in the file the frame starts: bytes of a frame that were copied elsewhere, say into a client's
  record, are not a frame there.
- `durable_before` is an offset up to which this node knew its log to be flushed.

A marker is a frame without a batch. It closes a burst: it carries `durable_before` for the last batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from kraftbase.checksum import crc32c
from kraftbase.errors import ApiError, StorageError
from kraftbase.types import Offset
from raft.core.types import Batch
from raft.storage.batch import CRC_BYTES, HEADER_BYTES, decode_batch

HEAD = Struct(">I4sBBHIIIq")
"""CRC, magic, version, kind, zero, length, position, previous CRC, durable before."""
HEAD_BYTES = HEAD.size
_COVERED_HEAD = Struct(">4sBBHIIIq")

MAGIC = b"KLfr"
VERSION = 1
BATCH_KIND = 1
MARKER_KIND = 2

NO_CRC = 0
"""The `previous_crc` of a log's first frame."""
MAX_POSITION = 2**32 - 1


class Frame(NamedTuple):
    """A frame as read, with its position. `batch` is None for a marker."""

    position: int
    end_position: int
    crc: int
    previous_crc: int
    durable_before: Offset
    batch: Batch | None


def encode_frames(
    batches: Sequence[Batch], position: int, previous_crc: int, durable_before: Offset
) -> tuple[bytes, int]:
    """The frames of `batches`, one after the other, the first at `position`; and the last one's CRC."""
    parts: list[bytes] = []
    for batch in batches:
        length = HEAD_BYTES + len(batch.data)
        covered = _COVERED_HEAD.pack(MAGIC, VERSION, BATCH_KIND, 0, length, position, previous_crc, durable_before)
        previous_crc = crc32c(covered + batch.data[:CRC_BYTES])
        parts += (previous_crc.to_bytes(CRC_BYTES, "big"), covered, batch.data)
        position += length
    return b"".join(parts), previous_crc


def encode_marker(position: int, previous_crc: int, durable_before: Offset) -> tuple[bytes, int]:
    """A marker frame at `position`, and its CRC."""
    covered = _COVERED_HEAD.pack(MAGIC, VERSION, MARKER_KIND, 0, HEAD_BYTES, position, previous_crc, durable_before)
    crc = crc32c(covered)
    return crc.to_bytes(CRC_BYTES, "big") + covered, crc


def frame_length(data: bytes, index: int) -> int | None:
    """The frame's length, from the head at `index` of `data`; None if the head is not whole."""
    if len(data) - index < HEAD_BYTES:
        return None
    length: int = HEAD.unpack_from(data, index)[5]
    return length


def decode_frame(data: bytes, position: int, data_position: int = 0, *, path: str = "segment") -> Frame | None:
    """The frame at `position` of the file, where `data` was read from `data_position`; None if none is valid there.

    Raises StorageError naming `path` when a frame there is undamaged, but of an unknown version or kind.
    """
    start = position - data_position
    if len(data) - start < HEAD_BYTES:
        return None
    crc, magic, version, kind, zero, length, own_position, previous_crc, durable_before = HEAD.unpack_from(data, start)
    if magic != MAGIC or own_position != position or length < HEAD_BYTES or len(data) - start < length:
        return None
    covered_bytes = HEAD_BYTES if length == HEAD_BYTES else HEAD_BYTES + CRC_BYTES
    if crc32c(data[start + CRC_BYTES : start + covered_bytes]) != crc:
        return None
    if version != VERSION or kind not in (BATCH_KIND, MARKER_KIND) or zero:
        raise StorageError(
            f"{path}: the frame at byte {position} has version {version}, kind {kind} and flags {zero:#x}; this program"
            f" knows version {VERSION}, kinds {BATCH_KIND} and {MARKER_KIND}, no flags. Use the program that wrote it"
        )
    end_position = position + length
    if kind == MARKER_KIND:
        if length != HEAD_BYTES:
            return None
        return Frame(position, end_position, crc, previous_crc, Offset(durable_before), None)
    try:
        batch = decode_batch(data, start + HEAD_BYTES)
    except ApiError:
        return None
    if HEAD_BYTES + len(batch.data) != length:
        return None
    return Frame(position, end_position, crc, previous_crc, Offset(durable_before), batch)


def find_frames(data: bytes, start: int, *, path: str = "segment") -> Iterator[Frame]:
    """Every valid frame in a segment file's bytes from `start` on: a scan past damage."""
    magic_position = data.find(MAGIC, start + CRC_BYTES)
    while magic_position >= 0:
        frame = decode_frame(data, magic_position - CRC_BYTES, path=path)
        if frame is not None:
            yield frame
        next_start = magic_position + 1 if frame is None else frame.end_position + CRC_BYTES
        magic_position = data.find(MAGIC, next_start)


def framed_bytes_max(byte_count: int) -> int:
    """The most bytes of frames that hold `byte_count` bytes of batches, whatever the number of batches."""
    return byte_count + (byte_count // HEADER_BYTES) * HEAD_BYTES
