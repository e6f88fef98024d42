"""Batches as bytes: a fixed header and a protobuf body (docs/formats/batch.md describes every byte).

The leader encodes a batch once; the same bytes are then replicated, stored, read and exported. Rules:

- The CRC is the first field and covers every byte after it, the whole header included. (The CRC of Kafka's batches
  leaves out base offset, length and epoch.)
- The body is opaque here: replication and storage never read it. A data body is one serialised `BatchBody`.
- Bodies join: one serialised `BatchBody` followed by another is a serialised `BatchBody` with the records of both, in
  order. Protobuf defines that for every message with only repeated fields, and the leader relies on it to make
  one batch of many appends without parsing any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NoReturn

from google.protobuf.message import DecodeError

from kraftbase.checks import check
from kraftbase.checksum import crc32c, extend_crc32c
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, Offset
from kraftpb.v1.batch_pb2 import BatchBody
from raft.core.types import Batch

HEADER = Struct(">IIHHqiiqqi")
"""CRC, length, magic, attributes, base offset, epoch, last offset delta, base and max timestamp, record count."""
HEADER_BYTES = HEADER.size
CRC_BYTES = 4
_COVERED_HEADER = Struct(">IHHqiiqqi")

MAGIC = 0x4B01
"""The letter K and the version of this format, 1."""
CONTROL_ATTRIBUTE = 0x20
"""Set in `attributes` iff the batch holds control records. The same bit as in Kafka's batches."""

MAX_OFFSET = 2**63 - 1
MAX_RECORD_COUNT = 2**31 - 1
MAX_BATCH_BYTES = 2**31 - 1


def encode_body(records: Iterable[bytes]) -> bytes:
    """Encode the body of a data batch with these records."""
    return BatchBody(records=records).SerializeToString()


def encode_batch(
    base_offset: Offset, epoch: Epoch, body: bytes, record_count: int, timestamp_ms: int, is_control: bool = False
) -> Batch:
    """The batch that holds `body`, appended by the leader of `epoch` at `timestamp_ms` (milliseconds since 1970).

    Costs one copy of the body and one CRC over it. Values that no decoder would accept are an InvariantViolation.
    """
    length = HEADER_BYTES + len(body)
    check(
        base_offset >= 0
        and epoch >= 1
        and timestamp_ms >= 0
        and length <= MAX_BATCH_BYTES
        and 1 <= record_count <= min(MAX_RECORD_COUNT, MAX_OFFSET - base_offset),
        "a batch must be encoded with an offset, epoch, time and record count that can be decoded",
        base_offset=base_offset,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
        length=length,
        record_count=record_count,
    )
    delta = record_count - 1
    covered = _COVERED_HEADER.pack(
        length,
        MAGIC,
        CONTROL_ATTRIBUTE if is_control else 0,
        base_offset,
        epoch,
        delta,
        timestamp_ms,
        timestamp_ms,
        record_count,
    )
    crc = extend_crc32c(crc32c(covered), body)
    data = b"".join((crc.to_bytes(CRC_BYTES, "big"), covered, body))
    return Batch(base_offset, Offset(base_offset + delta), epoch, is_control, data)


def decode_batches(data: bytes) -> tuple[Batch, ...]:
    """Decode the batches in `data`, a concatenation of any number: whole, contiguous, epochs not decreasing.

    For bytes from a peer or a file: everything but the bodies is validated. Raises ApiError(CORRUPT_MESSAGE) with the
    first error. Costs a few microseconds a batch, and one copy and one CRC of its bytes.
    """
    batches: list[Batch] = []
    position = 0
    while position < len(data):
        batch = decode_batch(data, position)
        if batches:
            last = batches[-1]
            if batch.base_offset != last.end_offset:
                _refuse(batch.base_offset, f"the batch before it ends at offset {last.end_offset}")
            if batch.epoch < last.epoch:
                _refuse(batch.base_offset, f"its epoch {batch.epoch} is below epoch {last.epoch} of the one before")
        batches.append(batch)
        position += len(batch.data)
    return tuple(batches)


def decode_batch(data: bytes, position: int = 0) -> Batch:
    """Decode the batch that starts at `position`. Raises ApiError(CORRUPT_MESSAGE) unless it is whole and valid."""
    available = len(data) - position
    if available < HEADER_BYTES:
        _refuse_bytes(position, f"{available} bytes are left, less than the {HEADER_BYTES} bytes of a header")
    crc, length, magic, attributes, base_offset, epoch, delta, base_time, max_time, count = HEADER.unpack_from(
        data, position
    )
    if not HEADER_BYTES <= length <= available:
        _refuse_bytes(position, f"its length is {length}; between {HEADER_BYTES} and {available} is possible")
    encoded = data[position : position + length]
    if crc32c(encoded[CRC_BYTES:]) != crc:
        _refuse_bytes(position, "its CRC does not match its bytes")
    if magic != MAGIC:
        _refuse_bytes(position, f"its magic is {magic:#06x}; only {MAGIC:#06x} is known")
    if attributes & ~CONTROL_ATTRIBUTE:
        _refuse(base_offset, f"its attributes are {attributes:#06x}; only bit {CONTROL_ATTRIBUTE:#04x} is known")
    if base_offset < 0 or epoch < 1:
        _refuse(base_offset, f"the offset must be at least 0 and its epoch, {epoch}, at least 1")
    if count < 1 or delta != count - 1 or base_offset > MAX_OFFSET - count:
        _refuse(base_offset, f"its record count {count} and its last offset delta {delta} do not match")
    if not 0 <= base_time <= max_time:
        _refuse(base_offset, f"its timestamps, {base_time} and {max_time}, are negative or decrease")
    return Batch(
        Offset(base_offset), Offset(base_offset + delta), Epoch(epoch), attributes == CONTROL_ATTRIBUTE, encoded
    )


def batch_timestamp(batch: Batch) -> int:
    """When the leader appended the batch, in milliseconds since 1970."""
    timestamp: int = HEADER.unpack_from(batch.data)[7]
    return timestamp


def batch_body(batch: Batch) -> bytes:
    """A copy of the batch's body."""
    return batch.data[HEADER_BYTES:]


def records(batch: Batch) -> list[bytes]:
    """The records of a data batch, in order.

    Raises ApiError(CORRUPT_MESSAGE) when the body is no `BatchBody` with as many records as the header says.
    """
    check(not batch.is_control, "records are asked of a data batch", base_offset=batch.base_offset)
    try:
        found = list(BatchBody.FromString(batch_body(batch)).records)
    except DecodeError as error:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"the body of the batch at offset {batch.base_offset} is no BatchBody: {error}"
        ) from None
    if len(found) != batch.record_count:
        _refuse(batch.base_offset, f"its body holds {len(found)} records, its header says {batch.record_count}")
    return found


def _refuse(base_offset: int, reason: str) -> NoReturn:
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} is refused: {reason}")


def _refuse_bytes(position: int, reason: str) -> NoReturn:
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {position} is refused: {reason}")
