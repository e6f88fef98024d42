"""Changes the bytes of records by chance, and has three readers read them: all must find the same, or the same error.

The compiled loop, the same loop in Python, and `read_one` alone, which shares only varints with the loops.

    python -m tests.kraftlog.kafka.record_fuzz 1000000 0      # batches, seed
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from kraftlog.kafka import record_reader
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.primitives import signed_varlong
from kraftlog.kafka.record_reader import INTERPRETED, Loop, compiled_loop
from kraftlog.kafka.record_scan import scan_records
from kraftlog.kafka.records import Record, encode_record

BASE_MS = 1_000
READ_ONE_ALONE = Loop(True, lambda _data, at, row, *_rest: (at, row, 0), INTERPRETED.summarize)
"""A loop that reads nothing, so that each record is read by itself."""

LENGTHS = (0, 0, 1, 2, 5, 62, 63, 64, 65, 100, 8_191, 8_192)
DELTAS = (0, 0, 0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, 2**31, -(2**40), 2**63 - 1, -(2**63))
NUMBERS = (
    *(signed_varlong(number) for number in (*DELTAS, -2, 2**31 - 1, -(2**31))),
    b"\x80\x00", b"\x80" * 12, b"\xff" * 5 + b"\x01", b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x10",
    b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02",
)  # fmt: skip
"""Some are longer than need be, some too long, some too large for 32 bits, or for 64."""


class Outcome(NamedTuple):
    """What a reader finds."""

    timestamps: list[int]
    offsets: list[int]
    without_key: bytes
    misplaced: list[int]
    error: str


def outcome(loop: Loop, data: bytes, count: int, cuts: list[int]) -> Outcome:
    before, record_reader.loop = record_reader.loop, loop
    timestamps: list[int] = []
    offsets: list[int] = []
    without_key, misplaced, error = bytearray(), set(), ""
    try:
        for heads in scan_records(pieces(data, cuts), count):
            if heads.offset_deltas:
                oldest, newest, row = heads.summary()
                if (oldest, newest) != (min(heads.timestamp_deltas), max(heads.timestamp_deltas)):
                    raise AssertionError("the summary is wrong")
                misplaced.update(() if row < 0 else (heads.first_index + row,))
            timestamps.extend(heads.timestamp_deltas)
            offsets.extend(heads.offset_deltas)
            without_key += heads.without_key
    except MalformedBytes as malformed:
        error = str(malformed)
    finally:
        record_reader.loop = before
    return Outcome(timestamps, offsets, bytes(without_key), sorted(misplaced)[:1], error)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    start = 0
    for end in (*cuts, len(data)):
        if end > start:
            yield data[start:end]
            start = end


def some_body(chance: random.Random) -> tuple[bytearray, int]:
    """The bytes of some records, often of one shape, and how many they are."""
    count = chance.choice((1, 2, 3, 9, 30))
    made = bytearray()
    key, value = chance.choice(LENGTHS), chance.choice(LENGTHS[:10])
    delta = chance.choice(DELTAS)
    for index in range(count):
        if chance.random() < 0.2:
            key, value, delta = chance.choice(LENGTHS[:10]), chance.choice(LENGTHS), chance.choice(DELTAS)
        headers = [("n" * chance.choice(LENGTHS[:10]), chance.choice((None, b"", b"v", b"v" * 70)))
                   for _ in range(chance.choice((0, 0, 0, 0, 1, 3)))]  # fmt: skip
        made += encode_record(
            Record(index, BASE_MS + delta, bytes(key) if key else None, bytes(value), tuple(headers)), 0, BASE_MS
        )
    return made, count


def change(body: bytearray, chance: random.Random) -> None:
    """Change bytes, or leave them."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        at = chance.randrange(min(len(body), chance.choice((12, 200, 10**6))) or 1)
        match chance.randrange(7):
            case 0 | 1 if body:
                body[at % len(body)] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
            case 2:
                body[at:at] = chance.choice(NUMBERS)
            case 3:
                number = chance.choice(NUMBERS)
                body[at : at + chance.choice((1, 1, 2, len(number)))] = number
            case 4:
                del body[at : at + chance.choice((1, 2, 30))]
            case 5:
                del body[at:]
            case _:
                body[at:at] = body[: chance.choice((1, 7, 100))]


def check_batch(chance: random.Random, loops: list[Loop]) -> str:
    """Change a batch and read it; returns the error, or nothing. Raises AssertionError where readers differ."""
    body, count = some_body(chance)
    change(body, chance)
    count += chance.choice((0, 0, 0, 0, 0, 0, 1, -1)) if count > 1 else 0
    data = bytes(body)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3, 8))))
    first, *others = [outcome(loop, data, count, cuts) for loop in loops]
    for loop, other in zip(loops[1:], others, strict=True):
        # A portion that ends with an error is not given, and portions end elsewhere without a loop.
        same = other == first if not first.error else other.error == first.error
        if not same:
            raise AssertionError(f"{loop.name}: {other}\nnot {first}\ndata {data.hex()} count {count} cuts {cuts}")
    return first.error


def all_loops() -> list[Loop]:
    compiled = compiled_loop()
    return [INTERPRETED, READ_ONE_ALONE, *([] if compiled is None else [compiled])]


def main(batches: int, seed: int) -> None:
    loops = all_loops()
    if len(loops) < 3:
        sys.exit("there is no compiled loop: see docs/HACKING.md")
    refused = 0
    for number in range(batches):
        chance = random.Random(seed * 10**9 + number)
        try:
            refused += bool(check_batch(chance, loops))
        except AssertionError as error:
            sys.exit(f"batch {number} of seed {seed}: {error}")
    sys.stdout.write(f"{batches} batches, of which {refused} cannot be read: all readers find the same\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
