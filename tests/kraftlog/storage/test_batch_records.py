"""Batches whose records are read in several turns: how much memory they hold together, and who gets it when."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from functools import partial

import pytest

from kraftlog.kafka.codecs import held_bytes
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.storage.batch_records import INFLATION_BYTES_MAX, LARGE_BYTES, BatchRecords, InflationMemory
from tests.kraftlog.kafka.test_codecs import lz4_frame, raw_snappy, zstd_with_window
from tests.kraftlog.kafka.test_record_scan import record

pytestmark = pytest.mark.usefixtures("record_loop")

ENOUGH = 1024**3
MANY = 3_000
COMPRESSED = [codec for codec in Compression if codec]
ENCODERS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: partial(gzip.compress, compresslevel=1),
    Compression.SNAPPY: raw_snappy,
    Compression.LZ4: lz4_frame,
    Compression.ZSTD: partial(zstd_with_window, window_log=21),
}


def body(count: int = MANY, value: bytes = bytes(1_000)) -> bytes:
    return b"".join(record(b"\0", index % 7, index, -1, len(value), value, 0) for index in range(count))


class Reader:
    """Reads a batch, one portion in each turn."""

    def __init__(self, memory: InflationMemory, codec: Compression, data: bytes, count: int = MANY) -> None:
        self.records = BatchRecords(codec, data, count, ENOUGH, memory)
        self.heads: list[RecordHeads] = []

    def turn(self) -> bool:
        """Returns whether a portion was read."""
        for heads in self.records.portions():
            self.heads.append(heads)
            self.records.end_turn()
            return True
        return False

    def offsets(self) -> list[int]:
        return [offset for heads in self.heads for offset in heads.offset_deltas]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_batches_than_there_is_memory_for_are_all_read_and_never_hold_more(codec: Compression) -> None:
    memory = InflationMemory()
    data = ENCODERS[codec](body())
    each = held_bytes(codec, data)
    at_once = INFLATION_BYTES_MAX // each
    readers = [Reader(memory, codec, data) for _ in range(at_once + 20)]
    most_started = 0
    for _ in range(10_000):
        for reader in readers:
            reader.turn()
            assert memory.held_bytes <= INFLATION_BYTES_MAX
        most_started = max(most_started, memory.held_bytes // each)
        if all(reader.records.is_read for reader in readers):
            break
    assert most_started == at_once
    for reader in readers:
        assert reader.offsets() == list(range(MANY))
    assert memory.held_bytes == 0


def test_a_batch_that_is_read_in_its_first_turn_asks_for_no_memory_even_if_there_is_none() -> None:
    memory = InflationMemory()
    memory.bound_of(1).hold(2 * INFLATION_BYTES_MAX)
    for codec in COMPRESSED:
        records = BatchRecords(codec, ENCODERS[codec](body(100)), 100, ENOUGH, memory)
        assert sum(len(heads.offset_deltas) for heads in records.portions()) == 100
        assert records.is_read
    assert memory.held_bytes == 2 * INFLATION_BYTES_MAX


def test_what_is_not_compressed_holds_nothing_and_waits_for_nothing() -> None:
    memory = InflationMemory()
    memory.bound_of(1).hold(2 * INFLATION_BYTES_MAX)
    reader = Reader(memory, Compression.NONE, body())
    while not reader.records.is_read:
        assert reader.turn() or reader.records.is_read
    assert reader.offsets() == list(range(MANY))
    assert memory.held_bytes == 2 * INFLATION_BYTES_MAX


def test_of_batches_with_large_windows_one_is_read_at_a_time_beside_small_ones() -> None:
    memory = InflationMemory()
    large = zstd_with_window(body(), 27)
    assert held_bytes(Compression.ZSTD, large) > LARGE_BYTES
    first, second = Reader(memory, Compression.ZSTD, large), Reader(memory, Compression.ZSTD, large)
    small = Reader(memory, Compression.GZIP, ENCODERS[Compression.GZIP](body()))
    assert first.turn()
    assert second.turn()  # its first turn, after which it is not held
    assert not second.turn()
    while not first.records.is_read:
        first.turn()
        assert small.records.is_read or small.turn() or small.records.is_read
        assert not second.turn() or first.records.is_read
    while not (second.records.is_read and small.records.is_read):
        second.turn()
        small.turn()
    assert [reader.offsets() for reader in (first, second)] == [list(range(MANY))] * 2
    assert memory.held_bytes == 0


def test_a_snappy_block_that_inflates_to_much_is_not_inflated_before_there_is_memory() -> None:
    memory = InflationMemory()
    data = ENCODERS[Compression.SNAPPY](body(12_000))
    assert held_bytes(Compression.SNAPPY, data) > LARGE_BYTES
    first, second = (Reader(memory, Compression.SNAPPY, data, 12_000) for _ in range(2))
    assert first.turn()
    assert not second.turn()
    first.records.close()
    assert second.turn()


def test_one_that_is_closed_gives_its_memory_or_its_place_back() -> None:
    memory = InflationMemory()
    large = zstd_with_window(body(), 27)
    first, second, third = (Reader(memory, Compression.ZSTD, large) for _ in range(3))
    assert [reader.turn() for reader in (first, second, third)] == [True] * 3
    assert [reader.turn() for reader in (second, third)] == [False] * 2
    second.records.close()
    first.records.close()
    assert third.turn()
    third.records.close()
    third.records.close()
    assert memory.held_bytes == 0


def test_one_that_cannot_be_read_gives_its_memory_back() -> None:
    memory = InflationMemory()
    reader = Reader(memory, Compression.GZIP, ENCODERS[Compression.GZIP](body() + b"rest"))
    with pytest.raises(MalformedBytes, match="bytes follow the last"):
        while True:
            reader.turn()
            assert not reader.records.is_read
    assert memory.held_bytes == 0


def test_batches_of_all_kinds_that_come_and_go_by_chance_leave_nothing_held() -> None:
    chance = random.Random(29)
    memory = InflationMemory()
    kinds = [(codec, ENCODERS[codec](body())) for codec in Compression] + [
        (Compression.ZSTD, zstd_with_window(body(), window_log)) for window_log in (20, 25, 27)
    ]
    readers: list[Reader] = []
    for _ in range(2_000):
        if len(readers) < 20:
            readers.append(Reader(memory, *chance.choice(kinds)))
        reader = chance.choice(readers)
        reader.turn()
        if reader.records.is_read:
            assert reader.offsets() == list(range(MANY))
        elif chance.random() < 0.05:
            reader.records.close()
        else:
            continue
        readers.remove(reader)
    for reader in readers:
        reader.records.close()
    assert memory.held_bytes == 0
