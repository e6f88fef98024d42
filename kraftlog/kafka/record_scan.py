"""Reads what a broker must know of the records in a batch, in the pieces in which a codec inflates them.

A record's layout is in `kraftlog.kafka.records`. That its parts fill its length exactly is checked, as Kafka's
consumers do; its key, value and headers are skipped.

Three ways to read records, from the quickest to the most general, each of which stops before what it does not know:

- `read_equal`: many records of the same size and shape at once, by comparing columns of bytes;
- `read_run`: records whose numbers have one byte or two, in a loop without a call;
- `read_one`: any record, one number at a time. It finds what is wrong with one that is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.kafka.record_runs import read_equal, read_run
from kraftlog.kafka.record_stream import SLOW_A_PORTION, RecordStream, malformed, read_one

FIRST_RUN: Final = 2
LAST_RUN: Final = 256
"""How many records are read one by one before it is tried whether those behind them are equal; four times as many each
time that they are not."""

RECORDS_A_TURN: Final = 10_000
PIECES_A_TURN: Final = 32
"""What is read in one turn of a broker's loop, apart from the rest of the last piece: about 20 ms of work."""


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


def scan_records(pieces: Iterator[bytes], count: int) -> Iterator[RecordHeads]:
    """The heads of all `count` records of a batch, in portions: at least one for each piece, which may be empty.

    Raises MalformedBytes where a record contradicts itself, if there are fewer, and if bytes follow the last one.
    """
    stream, run, heads = RecordStream(pieces), FIRST_RUN, RecordHeads(0)
    stream.advance()
    while True:
        stream.at, run = _read_runs(stream.data, stream.at, count, run, heads)
        if heads.end_index == count:
            break
        if stream.at == len(stream.data):
            yield heads
            heads = RecordHeads(heads.end_index)
            if not stream.advance():
                raise malformed(heads.first_index, f"the bytes end within it, and the batch has {count} records")
            continue
        taken = stream.taken
        heads = yield from read_one(stream, heads)
        if stream.taken > taken or heads.slow_count >= SLOW_A_PORTION:
            yield heads
            heads = RecordHeads(heads.end_index)
    yield heads
    if stream.at < len(stream.data) or stream.advance():
        raise MalformedBytes("records", f"bytes follow the last of the {count} records")


def scan_common(data: bytes, count: int) -> RecordHeads | None:
    """The heads of all `count` records of a batch, if `data` has these and no more, and all are of the common kinds.

    It takes half the time of `scan_records`, where what is done once for a batch counts more than the records.
    """
    heads = RecordHeads(0)
    at, _ = _read_runs(data, 0, count, FIRST_RUN, heads)
    return heads if at == len(data) and len(heads.offset_deltas) == count else None


def _read_runs(data: bytes, at: int, count: int, run: int, heads: RecordHeads) -> tuple[int, int]:
    """Read records up to one that must be read by itself; returns where that is, and how many to try behind it."""
    offsets = heads.offset_deltas
    count -= heads.first_index
    while at < len(data):
        start = len(offsets)
        at = read_equal(data, at, count - start, heads)
        end = len(offsets)
        if end == count:
            break
        run = FIRST_RUN if end > start else min(4 * run, LAST_RUN)
        end += min(run, count - end)
        at = read_run(data, at, end - len(offsets), heads)
        if len(offsets) < end or end == count:
            break
    return at, run
