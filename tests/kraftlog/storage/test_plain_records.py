"""Small batches that are not compressed are read in one go: that finds the same as `ProducedRecords`."""

from __future__ import annotations

import random
import sys
import time
from types import FrameType

import pytest

from kraftbase.errors import ApiError
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_reader import Loop
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.storage.batch_records import InflationMemory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, read_header
from kraftlog.storage.plain_records import PLAIN_BYTES_MAX, PlainRecords
from kraftlog.storage.produced_records import ProducedRecords
from tests.kraftlog.broker.malformed_batches import COMPACTED, compressed, malformed_batches, rec, with_body
from tests.kraftlog.storage.builders import NOW_MS, batch

CONFIG = PartitionLogConfig(timestamp_after_max_ms=1_000)
COMPACT = PartitionLogConfig(is_compacted=True)
CALLS_MAX = 10
"""Python's calls for a batch. `ProducedRecords` makes 40; each of them counts where a processor's cache is cold."""


def newest_ms(data: bytes, config: PartitionLogConfig = CONFIG, budget: ScanBudget | None = None) -> int | None:
    return PlainRecords().newest_ms(data, read_header(data), config, NOW_MS, budget)


def slowly(data: bytes, config: PartitionLogConfig = CONFIG, now_ms: int = NOW_MS) -> int | None:
    """What `ProducedRecords` says; None if it refuses the batch."""
    records = ProducedRecords(data, read_header(data), config, now_ms, InflationMemory())
    try:
        assert records.read()
    except ApiError:
        return None
    return records.max_timestamp_ms


def test_the_largest_timestamp_is_that_of_the_records(record_loop: Loop) -> None:
    data = compressed([rec(0), rec(1, timestamp=5), rec(2, timestamp=-3)], Compression.NONE, base_ms=NOW_MS)
    assert newest_ms(data) == (NOW_MS + 5 if record_loop.is_compiled else None)
    assert slowly(data) == NOW_MS + 5


@pytest.mark.usefixtures("compiled_record_loop")
def test_whatever_is_wrong_is_left_to_the_one_that_says_what() -> None:
    plain, now_ms = PlainRecords(), int(time.time() * 1_000)
    found = set()
    for name, malformed in malformed_batches().items():
        data = malformed.data
        if len(data) < BATCH_BYTES_MIN or (header := read_header(data)).compression or header.size_bytes != len(data):
            continue
        config = COMPACT if malformed.topic == COMPACTED else CONFIG
        newest = plain.newest_ms(data, header, config, now_ms, None)
        assert newest == slowly(data, config, now_ms) or (newest is None and len(data) > PLAIN_BYTES_MAX), name
        found.add(newest is None)
    assert found == {True, False}


@pytest.mark.usefixtures("compiled_record_loop")
def test_bytes_that_are_changed_at_random_are_refused_or_read_as_the_other_one_reads_them() -> None:
    randomness, plain, found = random.Random(1), PlainRecords(), set()
    for _ in range(2_000):
        records = [
            rec(index, timestamp=randomness.randrange(-5, 5), key=randomness.choice([None, b"k"]))
            for index in range(randomness.randrange(1, 6))
        ]
        body = bytearray(b"".join(records))
        if randomness.random() < 0.7:
            body[randomness.randrange(len(body))] = randomness.randrange(256)
        data = with_body(bytes(body), len(records), base_ms=NOW_MS)
        config = randomness.choice([CONFIG, COMPACT])
        newest = plain.newest_ms(data, read_header(data), config, NOW_MS, None)
        assert newest == slowly(data, config), data.hex()
        found.add(newest is None)
    assert found == {True, False}


@pytest.mark.usefixtures("compiled_record_loop")
def test_the_columns_of_the_batch_before_count_for_nothing() -> None:
    plain = PlainRecords()
    without = compressed([rec(0), rec(1)], Compression.NONE, base_ms=NOW_MS)
    with_keys = compressed([rec(0, key=b"a"), rec(1, key=b"b")], Compression.NONE, base_ms=NOW_MS)
    for config in (CONFIG, COMPACT):
        plain.newest_ms(without, read_header(without), config, NOW_MS, None)
        assert plain.newest_ms(with_keys, read_header(with_keys), config, NOW_MS, None) == NOW_MS


@pytest.mark.usefixtures("compiled_record_loop")
def test_only_as_much_is_read_as_the_budget_has() -> None:
    budget = ScanBudget(records=4)
    assert newest_ms(batch(3, timestamp_ms=NOW_MS), budget=budget) == NOW_MS + 2
    assert newest_ms(batch(3), budget=budget) is not None
    assert newest_ms(batch(3), budget=budget) is None
    assert newest_ms(batch(1, value=bytes(PLAIN_BYTES_MAX))) is None


@pytest.mark.usefixtures("compiled_record_loop")
def test_a_batch_of_64_records_takes_few_calls() -> None:
    data, plain, budget = batch(64, value=bytes(1_000)), PlainRecords(), ScanBudget()
    header, calls = read_header(data), []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        found = plain.newest_ms(data, header, CONFIG, NOW_MS, budget)
    finally:
        sys.setprofile(None)
    assert found == NOW_MS + 63
    assert len(calls) <= CALLS_MAX, calls
