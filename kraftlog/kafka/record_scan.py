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
        run = _read_runs(stream, count, run, heads)
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


def _read_runs(stream: RecordStream, count: int, run: int, heads: RecordHeads) -> int:
    """Read records of the present piece up to one that must be read by itself; returns how many to try behind it."""
    data, at = stream.data, stream.at
    while at < len(data):
        index = heads.end_index
        at = read_equal(data, at, count - index, heads)
        run = FIRST_RUN if heads.end_index > index else min(4 * run, LAST_RUN)
        limit = min(run, count - heads.end_index)
        end = heads.end_index + limit
        at = read_run(data, at, limit, heads)
        if heads.end_index < end or heads.end_index == count:
            break
    stream.at = at
    return run
