"""Reads what a broker must know of the records in a batch, in the pieces in which a codec inflates them.

A record's layout is in `kraftlog.kafka.records`. Of each the offset, the timestamp and whether it has a key are told;
that its parts fill its length exactly is checked, as Kafka's consumers do, and its key, value and headers are skipped.
One piece and the rest of the one before are held, or the whole of a longer record.

Three ways to read them, from the quickest to the most general, each of which stops before what it does not know:

- `_read_equal`: many records of the same size and shape at once, by comparing columns of bytes;
- `_read_run`: records whose numbers have one byte or two, in a loop without a call;
- `_read_one`: any record, by the letter of the format. It finds what is wrong with one that is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.primitives import read_signed_varlong, read_varint

FIRST_RUN: Final = 2
LAST_RUN: Final = 256
"""How many records are read one by one before it is tried whether those behind them are equal; twice as many each
time that they are not."""
EQUAL_MIN: Final = 8
"""Fewer equal records than this are read one by one."""

RECORDS_A_TURN: Final = 10_000
PIECES_A_TURN: Final = 32
"""What is read in one turn of a broker's loop, apart from the rest of the last piece: about 20 ms of work."""

GATHERED_MIN: Final = 64 * 1024
"""A record that lacks more bytes is collected from several pieces, and then joined once."""

SLOW_A_PORTION: Final = 500
SLOW_WORK: Final = 10
HEADERS_A_SLOW_RECORD: Final = 10
HEADER_BYTES_A_RECORD: Final = 8
"""What is read by the letter counts as so many records, and its headers, so many at a time, as much again; of other
records so many bytes of headers count as one."""

RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A record is held whole. One that is longer than this, and than its batch before it is inflated, is refused."""
HEADERS_MAX: Final = 10_000
"""A record with more headers is refused: nothing else stops within a record to let others have their turn."""

INT_MAX: Final = 2**31 - 1
_INT_BYTES_MAX: Final = 5
_TWO_BYTES: Final = 2**14 - 1
"""The largest number of two bytes, before it has its sign."""


@dataclass(slots=True)
class RecordHeads:
    """What is known of some records that follow each other."""

    first_index: int
    """How many records of the batch are before them."""
    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    without_key: list[int] = field(default_factory=list)
    """The indexes, in the batch, of those that have no key."""
    slow_count: int = 0
    """How many were read by the letter."""
    header_bytes: int = 0

    @property
    def work(self) -> int:
        """How much work it was to read them; one for a record."""
        return len(self.offset_deltas) + SLOW_WORK * self.slow_count + self.header_bytes // HEADER_BYTES_A_RECORD


class ScanBudget:
    """How much may be read before others get their turn. At most one piece more is."""

    __slots__ = ("_pieces", "_records")

    def __init__(self, records: int = RECORDS_A_TURN, pieces: int = PIECES_A_TURN) -> None:
        self._records = records
        self._pieces = pieces

    def spend(self, work: int) -> None:
        """A portion was read, with so much work."""
        self._records -= work
        self._pieces -= 1

    @property
    def is_spent(self) -> bool:
        """Whether it is time to stop."""
        return self._records <= 0 or self._pieces <= 0


def scan_records(
    pieces: Iterator[bytes], count: int, record_bytes_max: int = RECORD_BYTES_MAX
) -> Iterator[RecordHeads]:
    """The heads of all `count` records of a batch, in portions: at least one for each piece, which may be empty.

    Raises MalformedBytes where a record contradicts itself or is too long, if there are fewer, and if bytes follow the
    last one.
    """
    data, at, run, heads = b"", 0, FIRST_RUN, RecordHeads(0)
    for piece in pieces:
        data, at = (data[at:] + piece if at < len(data) else piece), 0
        while True:
            at, run = _read_some(data, at, count, run, heads)
            if _next_index(heads) == count:
                if at < len(data):
                    raise MalformedBytes("records", f"bytes follow the last of the {count} records")
                break
            if heads.slow_count < SLOW_A_PORTION:
                missing = _missing_bytes(data, at, _next_index(heads), record_bytes_max)
                if missing < GATHERED_MIN:
                    break
                parts = [data[at:]]
                while missing > 0:
                    yield heads
                    heads = RecordHeads(_next_index(heads))
                    part = next(pieces, None)
                    if part is None:
                        raise _malformed(heads.first_index, "the bytes end within it")
                    parts.append(part)
                    missing -= len(part)
                data, at = b"".join(parts), 0
            yield heads
            heads = RecordHeads(_next_index(heads))
        yield heads
        heads = RecordHeads(_next_index(heads))
    if heads.first_index < count:
        raise _malformed(heads.first_index, f"the bytes end within it, and the batch has {count} records")


def _read_some(data: bytes, at: int, count: int, run: int, heads: RecordHeads) -> tuple[int, int]:
    """Read whole records until a portion is full; returns where the next one begins, and how many are to be tried."""
    while at < len(data) and heads.slow_count < SLOW_A_PORTION:
        left = count - _next_index(heads)
        start = len(heads.offset_deltas)
        at = _read_equal(data, at, left, heads)
        equal = len(heads.offset_deltas) - start
        run = FIRST_RUN if equal else min(4 * run, LAST_RUN)
        limit = min(run, left - equal)
        at = _read_run(data, at, limit, heads)
        if _next_index(heads) == count:
            break
        if at < len(data) and len(heads.offset_deltas) < start + equal + limit:
            following = _read_one(data, at, heads)
            if following is None:
                break
            at = following
    return at, run


def _next_index(heads: RecordHeads) -> int:
    return heads.first_index + len(heads.offset_deltas)


def _missing_bytes(data: bytes, at: int, index: int, record_bytes_max: int) -> int:
    """How many bytes of the record at a position are not there yet; 0 if its length is not either."""
    try:
        length, at = _read_int(data, at)
    except (IndexError, ValueError):
        return 0
    if length > record_bytes_max:
        raise _malformed(index, f"its length is {length}, more than {record_bytes_max}")
    return at + length - len(data)


def _read_run(data: bytes, at: int, limit: int, heads: RecordHeads) -> int:
    """Read whole records whose lengths have one byte or two; returns where the first other one begins.

    There is hardly a call in it, as it runs for each record that differs.
    """
    offsets, timestamps, size = heads.offset_deltas, heads.timestamp_deltas, len(data)
    read, start = len(offsets), at
    try:
        for _ in range(limit):
            start = at
            length = data[at]
            at += 1
            if length > 127:
                length += (data[at] << 7) - 128
                at += 1
            end = at + (length >> 1)
            if length & 1 or length > _TWO_BYTES or end > size:
                break
            timestamp = data[at + 1]  # behind the attributes
            at += 2
            if timestamp > 127:
                timestamp += (data[at] << 7) - 128
                at += 1
                if timestamp > _TWO_BYTES:
                    timestamp, at = _unsigned(data, at - 2)
            offset = data[at]
            at += 1
            if offset > 127:
                offset += (data[at] << 7) - 128
                at += 1
                if offset > _TWO_BYTES:
                    offset, at = read_varint(data, at - 2)
            key = data[at]
            if key != 1:
                if key > 127:
                    at += 1
                    key += (data[at] << 7) - 128
                if key & 1 or key > _TWO_BYTES:
                    break
                at += key >> 1
            at += 1
            value = data[at]
            if value != 1:
                if value > 127:
                    at += 1
                    value += (data[at] << 7) - 128
                if value & 1 or value > _TWO_BYTES:
                    break
                at += value >> 1
            at += 1
            headers = data[at]
            at += 1
            if headers:
                heads.header_bytes += end - at
                at = _headers_end(data, at, headers)
            if at != end:
                break
            if key == 1:
                heads.without_key.append(heads.first_index + len(offsets))
            offsets.append(offset)
            timestamps.append(timestamp)
        else:
            start = at
    except (IndexError, ValueError):  # it is not whole, or not valid
        pass
    offsets[read:] = [(number >> 1) ^ -(number & 1) for number in offsets[read:]]
    timestamps[read:] = [(number >> 1) ^ -(number & 1) for number in timestamps[read:]]
    return start


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A number of any size before it has its sign, and the position after it. Raises IndexError and ValueError."""
    value, at = read_signed_varlong(data, at)
    return (value << 1) ^ (value >> 63), at


def _headers_end(data: bytes, at: int, count: int) -> int:
    """Where headers end whose lengths have one byte each; -1 if they are others. Of each, `count` has two."""
    if count & 1 or count > 127:
        return -1
    for part in range(count):  # a name, then a value, which may be null
        length = data[at]
        if length == 1 and part & 1:
            at += 1
        elif length > 127 or length & 1:
            return -1
        else:
            at += (length >> 1) + 1
    return at


def _read_equal(data: bytes, at: int, limit: int, heads: RecordHeads) -> int:
    """Read records that have the size and the shape of the one at a position; returns where the first other one begins.

    Shape is: as many bytes for each number, one or two, the same lengths, no headers. Offsets ascend by one. What has
    one byte in each record is a column, which Python takes out of `data` and compares in one step each.
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
    if is_without_key:
        index = heads.first_index + len(heads.offset_deltas)
        heads.without_key.extend(range(index, index + count))
    heads.offset_deltas.extend(range(offset, end_offset))
    heads.timestamp_deltas.extend(timestamps)
    return stop


def _shape(data: bytes, at: int) -> tuple[int, int, int, tuple[int, ...], int, bool] | None:
    """The size of the record at a position, where its timestamp and its offset are, where bytes are that all equal ones
    have, its offset delta, and whether it has no key; None if it is not whole, or its numbers have more than two bytes.
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
    """The numbers with these first bytes, and second ones if they have two; None if one of them has another count."""
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
"""From here on a number that is not negative has more than one byte, or two."""
_OFFSETS: Final = bytes(range(0, 2 * _ONE_BYTE_MAX, 2))
_LOW_OFFSETS: Final = bytes(2 * offset & 127 | 128 for offset in range(_TWO_BYTES_MAX))
_HIGH_OFFSETS: Final = bytes(2 * offset >> 7 for offset in range(_TWO_BYTES_MAX))
_SIGNED: Final = bytes(((byte >> 1) ^ -(byte & 1)) & 255 for byte in range(128)) + bytes(128)
_CONTINUED: Final = bytes(range(128, 256))


def _read_one(data: bytes, at: int, heads: RecordHeads) -> int | None:
    """Read the record at a position; returns where the next one begins, or None if the bytes end within it."""
    index = heads.first_index + len(heads.offset_deltas)
    try:
        length, at = _read_int(data, at)
    except IndexError:
        return None
    except ValueError as error:
        raise _malformed(index, str(error)) from None
    end = at + length
    if length < 0:
        raise _malformed(index, f"its length is {length}")
    if end > len(data):
        return None
    try:
        timestamp, at = read_signed_varlong(data, at + 1)  # behind the attributes
        offset, at = _read_int(data, at)
        key, at = _read_int(data, at)
        value, at = _read_int(data, at + max(0, key))
        count, at = _read_int(data, at + max(0, value))
        if not 0 <= count <= max(0, end - at):
            raise ValueError(f"it has {count} headers, which are not in the {end - at} bytes that are left of it")
        if count > HEADERS_MAX:
            raise ValueError(f"it has {count} headers, more than {HEADERS_MAX}")
        heads.header_bytes += end - at if count else 0
        heads.slow_count += 1 + count // HEADERS_A_SLOW_RECORD
        for _ in range(count):
            size, at = _read_int(data, at)
            if size < 0:
                raise ValueError(f"the name of a header has length {size}")
            size, at = _read_int(data, at + size)
            at += max(0, size)
    except IndexError:
        raise _wrong_length(index, length, 1) from None
    except ValueError as error:
        raise _malformed(index, str(error)) from None
    if at != end:
        raise _wrong_length(index, length, at - end)
    _add(heads, index, offset, timestamp, key)
    return end


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    value, end = read_signed_varlong(data, at)
    if end - at > _INT_BYTES_MAX or not -INT_MAX - 1 <= value <= INT_MAX:
        raise ValueError("a number has more than 32 bits")
    return value, end


def _add(heads: RecordHeads, index: int, offset: int, timestamp: int, key: int) -> None:
    heads.offset_deltas.append(offset)
    heads.timestamp_deltas.append(timestamp)
    if key < 0:
        heads.without_key.append(index)


def _malformed(index: int, reason: str) -> MalformedBytes:
    return MalformedBytes(f"records[{index}]", reason)


def _wrong_length(index: int, length: int, excess: int) -> MalformedBytes:
    if excess > 0:
        return _malformed(index, f"its parts are longer than its length of {length}")
    return _malformed(index, f"{-excess} of the {length} bytes of its length follow its last part")
