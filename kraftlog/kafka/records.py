"""The records in a record batch of version 2, not compressed:

    length (varint), attributes (a byte, not used), timestamp delta (varint), offset delta (varint),
    key length (varint; -1 is null), key, value length (varint; -1 is null), value,
    count of headers (varint), then of each: key length, key, value length (-1 is null), value

All varints are zigzag; those of deltas are relative to the batch's header.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.primitives import read_signed_varlong, signed_varlong

RECORD_BYTES_MIN: Final = 7
"""A record has a byte at least for each: length, attributes, two deltas, two lengths and the count of headers."""

HEADER_BYTES_MIN: Final = 2


class Record(NamedTuple):
    """A record with its own offset and timestamp."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


def read_records(
    data: bytes, at: int, count: int, base_offset: int, last_offset_delta: int, base_timestamp_ms: int,
    log_append_time_ms: int | None,
) -> tuple[Record, ...]:  # fmt: skip
    """Return all `count` records from a position to the end of the bytes. Raises MalformedBytes."""
    if count > (len(data) - at) // RECORD_BYTES_MIN:
        raise MalformedBytes(
            f"batch at offset {base_offset}", f"{count} records do not fit in the {len(data) - at} bytes left"
        )
    records: list[Record] = []
    try:
        for _ in range(count):
            record, at = _read_record(data, at, base_offset, last_offset_delta, base_timestamp_ms)
            records.append(record if log_append_time_ms is None else record._replace(timestamp_ms=log_append_time_ms))
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes follow the last record")
    except IndexError:
        raise MalformedBytes(_name(base_offset, len(records)), "the bytes end within it") from None
    except ValueError as error:
        raise MalformedBytes(_name(base_offset, len(records)), str(error)) from None
    return tuple(records)


def _read_record(
    data: bytes, at: int, base_offset: int, last_offset_delta: int, base_timestamp_ms: int
) -> tuple[Record, int]:
    length, at = _length(data, at)
    end = at + length
    attributes = data[at]
    timestamp_delta, at = read_signed_varlong(data, at + 1)
    offset_delta, at = read_signed_varlong(data, at)
    if not 0 <= offset_delta <= last_offset_delta:
        raise ValueError(f"its offset delta is {offset_delta}, and the batch's last one {last_offset_delta}")
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if data[at]:
        headers, at = _headers(data, at)
    else:
        at += 1
    if at != end:
        raise ValueError(f"its length is wrong by {at - end} bytes")
    return Record(base_offset + offset_delta, base_timestamp_ms + timestamp_delta, key, value, headers, attributes), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    length, at = read_signed_varlong(data, at)
    if length < 0 or length > len(data) - at:
        raise ValueError(f"{length} bytes do not fit in the {len(data) - at} that are left")
    return length, at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    if data[at] == 1:
        return None, at + 1
    length, at = _length(data, at)
    return data[at : at + length], at + length


def _headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_signed_varlong(data, at)
    if not 0 <= count <= (len(data) - at) // HEADER_BYTES_MIN:
        raise ValueError(f"{count} headers do not fit in the {len(data) - at} bytes that are left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = _length(data, at)
        key = str(data[at : at + length], "utf-8")
        value, at = _bytes(data, at + length)
        headers.append((key, value))
    return tuple(headers), at


def encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytes:
    """Return the bytes of a record. Raises ValueError for a number that is out of range."""
    parts = [
        bytes((record.attributes,)),
        signed_varlong(record.timestamp_ms - base_timestamp_ms),
        signed_varlong(record.offset - base_offset),
        *_encoded(record.key),
        *_encoded(record.value),
        signed_varlong(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += _encoded(key.encode())
        parts += _encoded(value)
    body = b"".join(parts)
    return signed_varlong(len(body)) + body


def _encoded(value: bytes | None) -> tuple[bytes, ...]:
    return (b"\1",) if value is None else (signed_varlong(len(value)), value)


def _name(base_offset: int, index: int) -> str:
    return f"batch at offset {base_offset}: records[{index}]"
