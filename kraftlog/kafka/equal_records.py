"""Reads many records of the same size and shape at once, by comparing columns of bytes.

It is used when the loop of `kraftlog.kafka.record_loop` is not compiled, and is several times faster than that loop.
"""

from __future__ import annotations

from typing import Final

from kraftlog.kafka.record_heads import RecordHeads

EQUAL_MIN: Final = 8
"""Fewer equal records than this are read one by one."""

_TWO_BYTES: Final = 2**14 - 1
"""The largest number of two bytes, before its zigzag encoding is undone."""


def read_equal(data: bytes, at: int, limit: int, heads: RecordHeads) -> int:
    """Read the records that have the size and shape of the one at a position; return where the first other one begins.

    Records have one shape if each number takes as many bytes in all of them (one or two), their keys and values have
    the same lengths, and they have no headers. Offsets must ascend by one. The bytes at one place of all records are a
    column, which Python takes out of `data` and compares in one step.
    """
    shape = _shape(data, at)
    if shape is None:
        return at
    size, timestamp_at, offset_at, equal, offset, is_without_key = shape
    count = min(limit, (len(data) - at) // size, (_ONE_BYTE_MAX if offset < _ONE_BYTE_MAX else _TWO_BYTES_MAX) - offset)
    for column_at in equal:
        column = data[column_at : at + count * size : size]
        count -= len(column.lstrip(column[:1]))
        if count < EQUAL_MIN:
            return at
    stop, end_offset = at + count * size, offset + count
    low = data[offset_at:stop:size]
    if offset < _ONE_BYTE_MAX:
        is_ascending = low == _OFFSETS[offset:end_offset]
    else:
        high = data[offset_at + 1 : stop : size]
        is_ascending = low == _LOW_OFFSETS[offset:end_offset] and high == _HIGH_OFFSETS[offset:end_offset]
    low = data[timestamp_at:stop:size]
    timestamps = _timestamps(low, b"" if offset_at - timestamp_at == 1 else data[timestamp_at + 1 : stop : size])
    if not is_ascending or timestamps is None:
        return at
    heads.timestamp_deltas.extend(timestamps)
    heads.offset_deltas.extend(range(offset, end_offset))
    heads.without_key.extend((b"\1" if is_without_key else b"\0") * count)
    return stop


def _shape(data: bytes, at: int) -> tuple[int, int, int, tuple[int, ...], int, bool] | None:
    """Return what describes the record at a position: its size, the positions of its timestamp and its offset, the
    positions of the bytes that all equal records share, its offset delta, and whether it has no key. Return None if
    it is not whole, or its numbers have more than two bytes.
    """
    try:
        length = data[at]
        timestamp_at = at + 2
        if length > 127:
            length += (data[at + 1] << 7) - 128
            timestamp_at += 1
        end = timestamp_at - 1 + (length >> 1)
        offset_at = timestamp_at + (1 if data[timestamp_at] < 128 else 2)
        offset = data[offset_at]
        key_at = offset_at + 1
        if offset > 127:
            offset += (data[key_at] << 7) - 128
            key_at += 1
        key = data[key_at]
        value_at = key_at + 1
        if key > 127:
            key += (data[value_at] << 7) - 128
            value_at += 1
        key_end = value_at
        value_at += 0 if key == 1 else key >> 1
        value = data[value_at]
        value_end = value_at + 1
        if value > 127:
            value += (data[value_end] << 7) - 128
            value_end += 1
        last = value_end + (0 if value == 1 else value >> 1)
        if last + 1 != end or data[last] or max(length, offset, key, value) > _TWO_BYTES:
            return None
    except IndexError:
        return None
    if (length | offset) & 1 or (key & 1 and key != 1) or (value & 1 and value != 1):
        return None
    equal = (*range(at, timestamp_at - 1), *range(key_at, key_end), *range(value_at, value_end), last)
    return end - at, timestamp_at, offset_at, equal, offset >> 1, key == 1


def _timestamps(low: bytes, high: bytes) -> list[int] | None:
    """Return the numbers with these first and, if they have two bytes, second bytes; None if their sizes differ."""
    if not high:
        return memoryview(low.translate(_SIGNED)).cast("b").tolist() if low.isascii() else None
    if low.translate(None, _CONTINUED) or not high.isascii():
        return None
    if low == low[:1] * len(low) and high == high[:1] * len(high):
        value = low[0] + (high[0] << 7) - 128
        return [(value >> 1) ^ -(value & 1)] * len(low)
    numbers = [first + (second << 7) - 128 for first, second in zip(low, high, strict=True)]
    return [(number >> 1) ^ -(number & 1) for number in numbers]


_ONE_BYTE_MAX: Final = 64
_TWO_BYTES_MAX: Final = 8192
"""From this value on, a number that is not negative takes more than two bytes, and from `_ONE_BYTE_MAX` more than
one."""
_OFFSETS: Final = bytes(range(0, 2 * _ONE_BYTE_MAX, 2))
_LOW_OFFSETS: Final = bytes(2 * offset & 127 | 128 for offset in range(_TWO_BYTES_MAX))
_HIGH_OFFSETS: Final = bytes(2 * offset >> 7 for offset in range(_TWO_BYTES_MAX))
_SIGNED: Final = bytes(((byte >> 1) ^ -(byte & 1)) & 255 for byte in range(128)) + bytes(128)
_CONTINUED: Final = bytes(range(128, 256))
