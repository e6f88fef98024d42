"""Reads the heads of consecutive records, up to the first record that is cut off or not valid.

An installation compiles this module with Cython where it finds a C compiler: `record_loop.pxd` has the types of the
variables, and `kraftlog.kafka.record_reader` chooses one of the two. These rules make both return the same for any
bytes: a byte is read only by its position, which C checks against the length of the bytes; a position never decreases;
every number fits in 64 bits, and C checks sums and shifts for an overflow.

The numbers that most records have are read without a call, since a call costs Python more: numbers of one byte, and
numbers of two bytes in fields where a batch of more than 63 records, or a record of more than 63 bytes, has them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog.kafka.notation import Buffer

TWO_BYTES_MAX = 2**14 - 1
"""The largest number of two bytes, before its zigzag encoding is undone."""
INT_MAX = 2**31 - 1
INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10
LONG_LAST_SHIFT = 62
"""The place of the only bit that the tenth byte of a number may have."""


def read_heads(
    data: Buffer, at: int, row: int, limit: int, timestamps: array[int], offsets: array[int], without_key: bytearray
) -> tuple[int, int, int]:
    """Read at most `limit` records from a position on. Each fills one row of the columns, which have room for them.

    A row gets the timestamp delta, the offset delta, and 1 if the record has no key; otherwise the third column is
    left as it is. Return the position and the row after the last record, and how many bytes keys and values have,
    which are skipped.
    """
    size, stop, end_row = len(data), at, row + limit
    skipped = skipped_now = 0
    try:
        while row < end_row:
            length, at = data[at], at + 1
            if length > 127:
                length, at = length + (data[at] << 7) - 128, at + 1
            if length > TWO_BYTES_MAX:
                length, at = read_number(data, at - 2, INT_BYTES_MAX)
            else:
                length = (length >> 1) ^ -(length & 1)
            end = at + length
            if length < 0 or end > size:
                break
            timestamp, at = data[at + 1], at + 2  # after the attributes
            if timestamp > 127:
                timestamp, at = read_number(data, at - 1, LONG_BYTES_MAX)
            else:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            offset, at = data[at], at + 1
            if offset > 127:
                offset, at = offset + (data[at] << 7) - 128, at + 1
            if offset > TWO_BYTES_MAX:
                offset, at = read_number(data, at - 2, INT_BYTES_MAX)
            else:
                offset = (offset >> 1) ^ -(offset & 1)
            key, at = data[at], at + 1
            if key > 127:
                key, at = read_number(data, at - 1, INT_BYTES_MAX)
            else:
                key = (key >> 1) ^ -(key & 1)
            if key > 0:
                at += key
                skipped += key
            value, at = data[at], at + 1
            if value > 127:
                value, at = value + (data[at] << 7) - 128, at + 1
            if value > TWO_BYTES_MAX:
                value, at = read_number(data, at - 2, INT_BYTES_MAX)
            else:
                value = (value >> 1) ^ -(value & 1)
            if value > 0:
                at += value
                skipped += value
            headers, at = data[at], at + 1
            if headers:
                at = headers_end(data, at - 1)
            if at != end:
                break
            timestamps[row] = timestamp
            offsets[row] = offset
            if key < 0:
                without_key[row] = 1
            row, stop, skipped_now = row + 1, at, skipped
    except (IndexError, ValueError, OverflowError):  # it is not whole, or not valid
        pass
    return stop, row, skipped_now


def headers_end(data: Buffer, at: int) -> int:
    """Return the end of the headers whose count is at a position. Raises IndexError, and ValueError for a length."""
    count, at = read_number(data, at, INT_BYTES_MAX)
    if not 0 <= count <= len(data) - at:
        raise ValueError(count)
    for _ in range(count):
        length, at = read_number(data, at, INT_BYTES_MAX)
        if length < 0:
            raise ValueError(length)
        length, at = read_number(data, at + length, INT_BYTES_MAX)
        if length > 0:
            at += length
    return at


def read_number(data: Buffer, at: int, bytes_max: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it. Raises IndexError, and ValueError if it has too many bits."""
    byte = data[at]
    half, is_negative, shift, last = (byte & 127) >> 1, byte & 1, 6, at + bytes_max - 1
    while byte > 127:
        at += 1
        byte = data[at]
        if (at == last and byte > 127) or (shift == LONG_LAST_SHIFT and byte > 1):
            raise ValueError(byte)
        half |= (byte & 127) << shift
        shift += 7
    if bytes_max == INT_BYTES_MAX and half > INT_MAX:
        raise ValueError(half)
    return -half - 1 if is_negative else half, at + 1


def summarize(timestamps: array[int], offsets: array[int], row: int, end_row: int, index: int) -> tuple[int, int, int]:
    """Return the smallest and the largest timestamp delta of at least one row, and the first row whose offset delta is
    not the record's index in the batch, or -1. `index` is the index of the record in `row`.
    """
    oldest = newest = timestamps[row]
    misplaced = -1
    for current in range(row, end_row):
        timestamp = timestamps[current]
        if timestamp > newest:
            newest = timestamp
        elif timestamp < oldest:
            oldest = timestamp
        if offsets[current] != index + (current - row) and misplaced < 0:
            misplaced = current
    return oldest, newest, misplaced
