"""Reads the heads of the records in a batch from the pieces in which a codec inflates them.

A record's layout is in `kraftlog.kafka.records`. The scan checks that a record's parts fill its length exactly, as
Kafka's consumers do, and skips its key, value and headers.

The loop of `kraftlog.kafka.record_loop` reads whole records, and stops before one that is cut off at the end of a piece
or not valid. `read_one` reads this record one number at a time, and raises an error that says what is wrong with it.
Where the loop is not compiled, `read_equal` runs before it.
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
"""How many records are read one by one before `read_equal` tries the next ones: `FIRST_RUN`, then four times as many
after each try without equal records, up to `LAST_RUN`."""

RECORDS_A_TURN: Final = 10_000
PIECES_A_TURN: Final = 32
"""How much is read in one turn of a broker's loop, plus the rest of the last piece: about 20 ms of work."""

JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to this many bytes at the end of a piece are copied in front of the next piece: reading a record one number at a
time takes ten times as long as copying them. More bytes are not copied: a long record would be copied with each of its
pieces."""


class ScanBudget:
    """How much a scan may read before other work gets its turn. It reads at most one piece more."""

    __slots__ = ("_pieces", "_records")

    def __init__(self, records: int = RECORDS_A_TURN, pieces: int = PIECES_A_TURN) -> None:
        self._records = records
        self._pieces = pieces

    def spend(self, work: int) -> None:
        """Count a portion that was read, with its work."""
        self._records -= work
        self._pieces -= 1

    @property
    def is_spent(self) -> bool:
        """Whether it is time to stop."""
        return self._records <= 0 or self._pieces <= 0


def scan_records(pieces: Iterator[Buffer], count: int) -> Iterator[RecordHeads]:
    """Yield the heads of all `count` records of a batch, in portions: at least one for each piece; some may be empty.

    Raises MalformedBytes if a record contradicts itself, there are fewer records, or bytes follow the last one.
    """
    if not record_reader.loop.is_compiled:
        pieces = map(bytes, pieces)  # Python reads single bytes of them faster than of views
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
    """Read whole records; return the position after the last one. A record there is cut off or not valid."""
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
