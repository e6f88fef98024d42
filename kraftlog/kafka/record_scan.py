"""Reads what a broker must know of the records in a batch, in the pieces in which a codec inflates them.

A record's layout is in `kraftlog.kafka.records`. That its parts fill its length exactly is checked, as Kafka's
consumers do; its key, value and headers are skipped.

Whole records are read by the loop of `kraftlog.kafka.record_loop`, which stops before one that is cut off at the end of
a piece, or not valid. `read_one` reads that one, a number at a time, and says what is wrong with it. Where the loop is
not compiled, `read_equal` goes before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlog.kafka import record_reader
from kraftlog.kafka.equal_records import read_equal
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.kafka.record_stream import SLOW_A_PORTION, RecordStream, malformed, read_one

FIRST_RUN: Final = 2
LAST_RUN: Final = 256
"""How many records are read one by one before it is tried whether those behind them are equal; four times as many each
time that they are not."""

RECORDS_A_TURN: Final = 10_000
PIECES_A_TURN: Final = 32
"""What is read in one turn of a broker's loop, apart from the rest of the last piece: about 20 ms of work."""

JOINED_BYTES_MAX: Final = 16 * 1024
"""So much of a piece's end is put before the next piece: to read a record one number at a time takes ten times as long
as to copy that. What is longer is not, so that pieces with a part of a long record are not copied again and again."""


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


def scan_records(pieces: Iterator[Buffer], count: int) -> Iterator[RecordHeads]:
    """The heads of all `count` records of a batch, in portions: at least one for each piece, which may be empty.

    Raises MalformedBytes where a record contradicts itself, if there are fewer, and if bytes follow the last one.
    """
    if not record_reader.loop.is_compiled:
        pieces = map(bytes, pieces)  # of which Python takes single bytes faster than of views
    stream, heads = RecordStream(pieces), RecordHeads(0)
    stream.advance()
    while True:
        stream.at = _read_whole(stream.data, stream.at, count, heads)
        if heads.end_index == count:
            break
        left_bytes = len(stream.data) - stream.at
        if left_bytes <= JOINED_BYTES_MAX:  # most probably the next record is cut off: try again with the next piece
            yield heads
            heads = RecordHeads(heads.end_index)
            if stream.advance():
                continue
            if not left_bytes:
                raise malformed(heads.first_index, f"the bytes end within it, and the batch has {count} records")
        taken = stream.taken
        heads = yield from read_one(stream, heads)
        if stream.taken > taken or heads.slow_count >= SLOW_A_PORTION:
            yield heads
            heads = RecordHeads(heads.end_index)
    yield heads
    if stream.at < len(stream.data) or stream.advance():
        raise MalformedBytes("records", f"bytes follow the last of the {count} records")


def _read_whole(data: Buffer, at: int, count: int, heads: RecordHeads) -> int:
    """Read whole records; returns where the first one begins that is cut off, or not valid."""
    if record_reader.loop.is_compiled:
        return heads.read(data, at, count - heads.end_index)
    run = FIRST_RUN
    while at < len(data) and heads.end_index < count:
        start = heads.end_index
        at = read_equal(bytes(data), at, count - start, heads)
        run = FIRST_RUN if heads.end_index > start else min(4 * run, LAST_RUN)
        end = min(heads.end_index + run, count)
        at = heads.read(data, at, end - heads.end_index)
        if heads.end_index < end:
            break
    return at
