"""The records of a batch as a stream of pieces. It can read any record, one number at a time.

Keys, values and headers are skipped, so no more than one piece is held, however long a record is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.primitives import read_signed_varlong
from kraftlog.kafka.record_heads import HEADERS_A_SLOW_RECORD, RecordHeads

SLOW_A_PORTION: Final = 500
"""A portion ends after this many records, or ten times as many headers, were read one number at a time."""

INT_MAX: Final = 2**31 - 1
_INT_BYTES_MAX: Final = 5


class BytesEnd(Exception):
    """There is no further piece."""


class RecordStream:
    """A position in the concatenated bytes of several pieces."""

    __slots__ = ("_passed", "_pieces", "at", "data", "taken")

    def __init__(self, pieces: Iterator[Buffer]) -> None:
        self.data: Buffer = b""
        """The unread end of the previous piece, followed by the current piece."""
        self.at = 0
        """The position in `data`."""
        self.taken = 0
        """How many pieces were taken."""
        self._pieces = pieces
        self._passed = 0

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._passed + self.at

    def advance(self) -> bool:
        """Take the next piece; return whether there was one."""
        piece = next(self._pieces, None)
        if piece is None:
            return False
        self._passed += self.at
        self.data = bytes(self.data[self.at :]) + piece if self.at < len(self.data) else piece
        self.at = 0
        self.taken += 1
        return True

    def read_long(self) -> int:
        """Read a number of at most 64 bits. Raises ValueError if it has more, and BytesEnd."""
        while True:
            try:
                value, self.at = read_signed_varlong(self.data, self.at)
            except IndexError:
                if not self.advance():
                    raise BytesEnd from None
            else:
                return value

    def read_int(self) -> int:
        """Read a number of at most 32 bits. Raises as `read_long`."""
        start = self.position
        value = self.read_long()
        if self.position - start > _INT_BYTES_MAX or not -INT_MAX - 1 <= value <= INT_MAX:
            raise ValueError("a number has more than 32 bits")
        return value

    def skip(self, size_bytes: int) -> Iterator[None]:
        """Skip bytes, and yield after each piece that is taken. Raises BytesEnd."""
        while size_bytes > len(self.data) - self.at:
            size_bytes -= len(self.data) - self.at
            self.at = len(self.data)
            if not self.advance():
                raise BytesEnd
            yield
        self.at += size_bytes


Portions = Generator[RecordHeads, None, RecordHeads]
"""Yields complete portions, and returns the one to continue with."""


def read_one(stream: RecordStream, heads: RecordHeads) -> Portions:
    """Read the record at the stream's position. Raises MalformedBytes, which has the record's index."""
    index = heads.end_index
    try:
        length = stream.read_int()
        if length < 0:
            raise ValueError(f"its length is {length}")
        return (yield from _read_body(stream, heads, length))
    except BytesEnd:
        raise malformed(index, "the bytes end within it") from None
    except ValueError as error:
        raise malformed(index, str(error)) from None


def _read_body(stream: RecordStream, heads: RecordHeads, length: int) -> Portions:
    end = stream.position + length
    heads = yield from _skip(stream, heads, 1, end, length)  # the attributes
    timestamp = stream.read_long()
    offset = stream.read_int()
    key = stream.read_int()
    heads = yield from _skip(stream, heads, key, end, length)
    heads = yield from _skip(stream, heads, stream.read_int(), end, length)  # the value
    count = stream.read_int()
    left = end - stream.position
    if not 0 <= count <= max(0, left):
        raise ValueError(f"its {count} headers do not fit in the {left} bytes that are left of it")
    for number in range(1, count + 1):
        size = stream.read_int()
        if size < 0:
            raise ValueError(f"the name of a header has length {size}")
        heads = yield from _skip(stream, heads, size, end, length)
        heads = yield from _skip(stream, heads, stream.read_int(), end, length)
        if number % HEADERS_A_SLOW_RECORD == 0:
            heads.slow_count += 1
            if heads.slow_count >= SLOW_A_PORTION:
                yield heads
                heads = RecordHeads(heads.end_index)
    rest = end - stream.position
    heads = yield from _skip(stream, heads, rest, end, length)
    if rest:
        raise ValueError(f"its last part ends {rest} bytes before the end of its length of {length}")
    heads.slow_count += 1
    heads.add(offset, timestamp, has_key=key >= 0)
    return heads


def _skip(stream: RecordStream, heads: RecordHeads, size_bytes: int, end: int, length: int) -> Portions:
    """Skip a part of a record, which is null if its size is negative. Each piece that is taken ends a portion."""
    if stream.position + max(0, size_bytes) > end:
        raise ValueError(f"its parts are longer than its length of {length}")
    if 0 < size_bytes <= len(stream.data) - stream.at:
        stream.at += size_bytes
        return heads
    for _ in stream.skip(max(0, size_bytes)):
        yield heads
        heads = RecordHeads(heads.end_index)
    return heads


def malformed(index: int, reason: str) -> MalformedBytes:
    """Return the error for the record with this index in the batch."""
    return MalformedBytes(f"records[{index}]", reason)
