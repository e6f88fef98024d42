"""Scanning the records of a batch: the same as reading them, whatever their shape and however the pieces are cut."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from kraftlog.kafka.codecs import PIECE_BYTES
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.primitives import signed_varlong
from kraftlog.kafka.record_scan import ScanBudget, scan_records
from kraftlog.kafka.records import Record, encode_record, read_records
from tests.effort import examples

pytestmark = pytest.mark.usefixtures("record_loop")

BASE_MS = 1_000


class Scanned(NamedTuple):
    offsets: list[int]
    timestamps: list[int]
    without_key: list[int]


def body_of(records: Sequence[Record]) -> bytes:
    return b"".join(encode_record(record, 0, BASE_MS) for record in records)


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


def scan(data: bytes, count: int, sizes: Iterator[int] | None = None) -> Scanned:
    pieces = iter((data,)) if sizes is None else cut(data, sizes)
    found = Scanned([], [], [])
    for heads in scan_records(pieces, count):
        assert heads.first_index == len(found.offsets)
        assert len(heads.offset_deltas) == len(heads.timestamp_deltas)
        assert len(heads.without_key) == len(heads.timestamp_deltas)
        found.without_key.extend(index for index, is_one in enumerate(heads.without_key, heads.first_index) if is_one)
        found.offsets.extend(heads.offset_deltas)
        found.timestamps.extend(heads.timestamp_deltas)
    return found


def expected(records: Sequence[Record]) -> Scanned:
    return Scanned(
        [record.offset for record in records],
        [record.timestamp_ms - BASE_MS for record in records],
        [index for index, record in enumerate(records) if record.key is None],
    )


def constant(size: int) -> Iterator[int]:
    while True:
        yield size


def chance_sizes(chance: random.Random) -> Iterator[int]:
    while True:
        yield chance.choice((1, 7, 1_000, 9_000, 70_000))


KEYS = (None, b"", b"k", b"k" * 63, b"k" * 64, b"k" * 9_000)
VALUES = (None, b"", b"v" * 10, b"v" * 63, b"v" * 64, b"v" * 8_191, b"v" * 8_192)
HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (), (("a", b"b"),), (("", None),), (("name", b"v" * 100),), (("x" * 64, b""), ("y", b"z")), (("a", b""),) * 70,
)  # fmt: skip
DELTAS = (0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, -8_192, 2**31, -(2**40))


def some_records(chance: random.Random) -> list[Record]:
    """Runs of records that are equal but for offsets, and sometimes for timestamps, and records that are not."""
    records: list[Record] = []
    for _ in range(chance.randrange(1, 5)):
        key, value, headers = chance.choice(KEYS), chance.choice(VALUES), chance.choice(HEADERS)
        delta, spread = chance.choice(DELTAS), chance.choice((0, 0, 3, 70, 9_000))
        differ = chance.random() < 0.3
        for _ in range(chance.choice((1, 2, 9, 40, 200))):
            if differ:
                key, value = chance.choice(KEYS), chance.choice(VALUES)
            time_ms = BASE_MS + delta + chance.randrange(spread + 1)
            records.append(Record(len(records), time_ms, key, value, headers))
    return records


def test_records_of_every_shape_are_scanned_whole_and_in_pieces() -> None:
    for seed in range(examples(150)):
        chance = random.Random(seed)
        records = some_records(chance)
        data = body_of(records)
        assert scan(data, len(records)) == expected(records), seed
        assert scan(data, len(records), chance_sizes(chance)) == expected(records), seed


def test_many_small_equal_records_are_scanned_over_all_sizes_of_offsets() -> None:
    records = [Record(index, BASE_MS + index // 100, None, b"v") for index in range(20_000)]
    assert scan(body_of(records), len(records), constant(64 * 1024)) == expected(records)


def test_offsets_that_do_not_ascend_by_one_are_told_as_they_are() -> None:
    """A stock broker's compaction leaves such batches; in a produced one they are refused."""
    offsets = (0, 1, 1, 7, 3, *range(70, 90), 90, 90, *range(1, 20), 2**31 - 1)
    records = [Record(offset, BASE_MS, b"k", b"v") for offset in offsets]
    assert scan(body_of(records), len(records)) == expected(records)


@pytest.mark.parametrize("size", [10_000, PIECE_BYTES - 100, PIECE_BYTES + 1, 3 * PIECE_BYTES])
@pytest.mark.parametrize("where", ["key", "value", "name of a header", "value of a header"])
def test_a_record_may_be_longer_than_several_pieces(size: int, where: str) -> None:
    long = b"x" * size
    headers = (("x" * size, None) if where == "name of a header" else ("n", long if "header" in where else b"v"),)
    records = [
        Record(0, BASE_MS, b"k", b"v"),
        Record(1, BASE_MS + 5, long if where == "key" else None, long if where == "value" else None, headers),
        *(Record(index, BASE_MS, None, b"v") for index in range(2, 40)),
    ]
    data = body_of(records)
    for piece_bytes in (1_000, PIECE_BYTES):
        assert scan(data, len(records), constant(piece_bytes)) == expected(records)
    with pytest.raises(MalformedBytes, match="the bytes end within it"):
        scan(data[: size // 2], len(records), constant(PIECE_BYTES))


def test_of_a_long_record_no_more_than_a_few_pieces_are_held_and_each_piece_is_a_portion() -> None:
    data = body_of([Record(0, BASE_MS, None, bytes(100 * PIECE_BYTES), (("n", bytes(100 * PIECE_BYTES)),))])
    tracemalloc.start()
    try:
        portions = sum(1 for _ in scan_records(cut(data, constant(PIECE_BYTES)), 1))
        assert tracemalloc.get_traced_memory()[1] < 5 * PIECE_BYTES
    finally:
        tracemalloc.stop()
    assert portions >= 201


def test_no_portion_is_much_work() -> None:
    """Whatever the records are: equal, of another shape each, to be read by the letter, or full of headers."""
    slow = record(b"\0", 0, 0, b"\x81\x00", 1, b"v", 0)
    many_headers = [Record(index, BASE_MS, None, None, (("", None),) * 60) for index in range(3_000)]
    bodies = {
        "offsets that do not ascend": (GOOD * 50_000, 50_000),
        "read by the letter": (slow * 20_000, 20_000),
        "headers": (body_of(many_headers), 3_000),
        "a record with many headers": (body_of([Record(0, BASE_MS, None, None, (("", None),) * 100_000)]), 1),
    }
    for name, (data, count) in bodies.items():
        portions = [heads.work for heads in scan_records(cut(data, constant(64 * 1024)), count)]
        assert max(portions) < 15_000, name


def record(*parts: bytes | int, length: int | None = None) -> bytes:
    """A record of parts: numbers become varints."""
    body = b"".join(part if isinstance(part, bytes) else signed_varlong(part) for part in parts)
    return signed_varlong(len(body) if length is None else length) + body


GOOD = record(b"\0", 0, 0, -1, 1, b"v", 0)
LONG_NUMBER = b"\x80\x80\x80\x80\x80\x00"

UNREADABLE = {
    "count of headers -1": (record(b"\0", 0, 0, -1, 1, b"v", -1), 1, "its -1 headers do not fit"),
    "more headers than bytes": (record(b"\0", 0, 0, -1, 1, b"v", 9), 1, "its 9 headers do not fit"),
    "a header without a name": (record(b"\0", 0, 0, -1, -1, 1, -1, -1), 1, "name of a header has length -1"),
    "longer than its length of 7": (record(b"\0", 0, 0, -1, 1, b"v", 0, length=100), 1, "the bytes end within it"),
    "shorter than its parts": (record(b"\0", 0, 0, -1, 1, b"v", 0, length=6) + GOOD, 2, "longer than its length of 6"),
    "longer than its parts": (record(b"\0", 0, 0, -1, 1, b"v", 0, b"x"), 1, "its last part ends 1 bytes before"),
    "a negative length": (b"\x01" + GOOD, 1, "its length is -1"),
    "a key longer than it": (record(b"\0", 0, 0, 50, b"k", 1, b"v", 0), 1, "longer than its length of 8"),
    "a value longer than it": (record(b"\0", 0, 0, -1, 50, b"v", 0), 1, "longer than its length of 7"),
    "a length of more bytes than an int": (LONG_NUMBER + GOOD, 1, "more than 32 bits"),
    "an offset of more bytes than an int": (record(b"\0", 0, LONG_NUMBER, -1, 1, b"v", 0), 1, "more than 32 bits"),
    "a key's length of more bytes than an int": (record(b"\0", 0, 0, LONG_NUMBER, 1, b"v", 0), 1, "32 bits"),
    "fewer than the count": (GOOD, 2, "the bytes end within it, and the batch has"),
    "more than the count": (GOOD + GOOD, 1, r"bytes follow the last of the \d+ records"),
    "no record": (b"", 1, "the bytes end within it"),
    "garbage": (b"\xff" * 50, 1, "more than"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_wherever_it_is(name: str) -> None:
    data, count, reason = UNREADABLE[name]
    before = body_of([Record(index, BASE_MS, None, b"v" * 5) for index in range(30)])
    for start, start_count in ((b"", 0), (before, 30)):
        for sizes in (None, constant(1), constant(7), constant(100)):
            with pytest.raises(MalformedBytes, match=reason):
                scan(start + data, start_count + count, sizes)


def test_lengths_below_0_are_null_as_in_kafka() -> None:
    assert scan(record(b"\0", 0, 0, -7, -3, 0), 1) == Scanned([0], [0], [0])


def test_attributes_are_one_byte_whatever_it_is() -> None:
    assert scan(record(b"\xff", 5, 0, -1, 1, b"v", 0), 1) == Scanned([0], [5], [0])


def test_changed_bytes_are_scanned_as_they_are_read_or_refused() -> None:
    """Two readers that share nothing but varints. Where one refuses and the other does not, the reason is known."""
    for seed in range(examples(3_000)):
        chance = random.Random(seed)
        records = [record for record in some_records(chance)[:60] if len(record.value or b"") < 1_000]
        records = [record._replace(offset=index) for index, record in enumerate(records)] or [
            Record(0, BASE_MS, None, b"")
        ]
        changed = bytearray(body_of(records))
        for _ in range(chance.choice((1, 1, 2, 5))):
            changed[chance.randrange(min(len(changed), 200))] = chance.randrange(256)
        data = bytes(changed)
        try:
            found: Scanned | None = scan(data, len(records), chance_sizes(chance))
        except MalformedBytes:
            found = None
        try:
            read = expected(read_records(data, 0, len(records), 0, 2**31 - 1, BASE_MS, None))
        except MalformedBytes as error:
            known = ("its offset delta is", "codec can't decode", "bytes do not fit in the")
            assert found is None or any(reason in str(error) for reason in known), (seed, str(error))
        else:
            assert found == read, seed


def test_a_budget_is_spent_by_records_and_by_pieces() -> None:
    budget = ScanBudget(records=10, pieces=3)
    budget.spend(9)
    assert not budget.is_spent
    budget.spend(1)
    assert budget.is_spent
    budget = ScanBudget(records=10, pieces=2)
    budget.spend(0)
    assert not budget.is_spent
    budget.spend(0)
    assert budget.is_spent


@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 17_000])
def test_a_record_that_is_cut_off_is_read_with_the_next_piece(piece_bytes: int) -> None:
    """It takes ten times as long to read one a number at a time."""
    data = body_of([Record(index, BASE_MS, None, bytes(1_000)) for index in range(300)])
    portions = list(scan_records(cut(data, iter(lambda: piece_bytes, 0)), 300))
    assert sum(len(heads.offset_deltas) for heads in portions) == 300
    assert sum(heads.slow_count for heads in portions) == 0


def test_the_end_of_a_piece_is_copied_to_the_next_one_up_to_a_bound() -> None:
    data = body_of([Record(0, BASE_MS, None, bytes(300_000))])
    portions = list(scan_records(cut(data, iter(lambda: PIECE_BYTES, 0)), 1))
    assert [heads.slow_count for heads in portions if heads.offset_deltas] == [1]
