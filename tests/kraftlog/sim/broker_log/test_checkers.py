"""Each rule is broken by what breaks it, and by nothing else: judges are shown what a broker might have done."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from kraftbase.files.files import write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.durable import is_durable
from kraftlog.sim.broker_log.checkers.log_files import Aborted, aborted_transactions, read_log
from kraftlog.sim.broker_log.checkers.promises import FOR_EVER, PartitionPromises, TopicRules
from kraftlog.sim.broker_log.checkers.rules import ACKNOWLEDGED, INDEXES, KEPT, OFFSETS, ONCE, READ, START
from kraftlog.sim.engine.violation import Violation

NOW_US = 5_000_000
SAFE = TopicRules(flush_before_ack=True, flush_ms=FOR_EVER, retention_ms=-1, retention_bytes=-1)
LOG, INDEX, TIMES, ABORTS = (f"t-0/{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex"))


def data(base_offset: int = 0, value: bytes = b"v", *, sequence: int = -1, count: int = 1, time_ms: int = 100) -> bytes:
    records = [Record(base_offset + index, time_ms + index, None, value) for index in range(count)]
    return encode_batch(
        records, base_offset=base_offset, partition_leader_epoch=0, producer_id=7 if sequence >= 0 else -1,
        producer_epoch=0 if sequence >= 0 else -1, base_sequence=sequence,
    )  # fmt: skip


def one(base_offset: int = 0, value: bytes = b"v", **named: int) -> Batch:
    return whole_batches(data(base_offset, value, **named))[0]


def promised(*batches: Batch, rules: TopicRules = SAFE) -> PartitionPromises:
    promises = PartitionPromises("t-0", rules)
    for batch in batches:
        promises.will_send(batch.data)
        promises.acknowledged(batch, batch.base_offset, 0, NOW_US)
    return promises


def found(promises: PartitionPromises, *batches: Batch, true_ms: int = 0) -> None:
    promises.found(batches, true_ms, has_lost_power=False)


def test_what_is_there_breaks_no_rule() -> None:
    promises = promised(one(0), one(1, b"w", sequence=0))
    found(promises, one(0), one(1, b"w", sequence=0), one(2, b"not acknowledged"))
    promises.read(1, [one(1, b"w", sequence=0)], 3, 0, NOW_US)
    assert promises.end == 2


@pytest.mark.parametrize("batches", [[], [one(1)], [one(0, b"another")]])
def test_an_acknowledged_batch_that_is_gone_or_changed_is_seen(batches: Sequence[Batch]) -> None:
    with pytest.raises(Violation) as raised:
        found(promised(one(0)), *batches)
    assert str(raised.value).startswith((ACKNOWLEDGED, OFFSETS))


def test_an_offset_that_is_given_twice_is_seen_also_when_its_batch_was_deleted() -> None:
    promises = promised(one(0))
    promises.deleted_below = 1
    promises.started(1)
    found(promises)
    with pytest.raises(Violation, match=r"\(82\)") as raised:
        promises.acknowledged(one(0, b"another"), 0, 1, NOW_US)
    assert str(raised.value).startswith(OFFSETS)


def test_a_batch_that_is_stored_or_acknowledged_twice_is_seen() -> None:
    promises = promised(one(0, sequence=0))
    with pytest.raises(Violation, match="84") as raised:
        found(promises, one(0, sequence=0), one(1, sequence=0))
    assert str(raised.value).startswith(ONCE)
    with pytest.raises(Violation, match="84"):
        found(promises, one(0, sequence=0), one(1, b"another", sequence=0))
    with pytest.raises(Violation, match="84"):
        found(promises, one(0, sequence=0), one(1, sequence=12))
    with pytest.raises(Violation, match="84"):
        promises.acknowledged(one(1, sequence=0), 1, 0, NOW_US)


def test_a_start_that_goes_back_is_seen() -> None:
    promises = promised()
    promises.started(5)
    with pytest.raises(Violation, match="it was 5, but is now 4") as raised:
        promises.started(4)
    assert str(raised.value).startswith(START)


def test_what_a_reader_should_not_get_is_seen() -> None:
    promises = promised(one(0), one(1))
    with pytest.raises(Violation, match="high watermark is 1") as raised:
        promises.read(1, [one(1)], 1, 0, NOW_US)
    assert str(raised.value).startswith(READ)
    with pytest.raises(Violation, match="no producer has sent"):
        promises.read(2, [one(2, b"of nobody")], 3, 0, NOW_US)
    with pytest.raises(Violation, match="a reader of it got 1"):
        promises.read(0, [one(1)], 2, 0, NOW_US)


def test_what_was_deleted_must_be_old_or_too_much_or_asked_for() -> None:
    def deleted(rules: TopicRules, *kept: Batch, true_ms: int = 0, below: int = 0) -> None:
        promises = promised(one(0, time_ms=100), rules=rules)
        promises.started(1)
        promises.deleted_below = below
        found(promises, *kept, true_ms=true_ms)

    by_time = TopicRules(flush_before_ack=True, flush_ms=FOR_EVER, retention_ms=100_000, retention_bytes=-1)
    by_size = TopicRules(flush_before_ack=True, flush_ms=FOR_EVER, retention_ms=-1, retention_bytes=50)
    deleted(by_time, true_ms=100_200)
    deleted(by_size, one(1))
    deleted(SAFE, below=1)
    for rules in (by_time, by_size, SAFE):
        with pytest.raises(Violation, match="87") as raised:
            deleted(rules, true_ms=10_000)
        assert str(raised.value).startswith(KEPT)


def test_power_takes_what_was_not_flushed_but_not_what_flush_ms_has_flushed() -> None:
    rules = TopicRules(flush_before_ack=False, flush_ms=1_000, retention_ms=-1, retention_bytes=-1)
    promises = promised(one(0), rules=rules)
    with pytest.raises(Violation, match="81"):
        found(promises)
    assert promises.power_lost(NOW_US + 999_999) == 1
    found(promises)
    promises = promised(one(0), rules=rules)
    assert promises.power_lost(NOW_US + 1_000_000) == 0
    promises.flushes_were_hindered(NOW_US, NOW_US + 2_000_000)
    assert promises.power_lost(NOW_US + 2_500_000) == 1
    promises = promised(one(0), rules=rules)
    promises.all_is_durable(NOW_US)
    assert promises.power_lost(NOW_US) == 0


def files_of(*batches: bytes) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_directories("t-0")
    write_new_file(files, LOG, b"".join(batches))
    return files


def test_files_are_read_and_indexes_that_are_right_are_right() -> None:
    first, second = data(0, count=2, time_ms=100), data(2, time_ms=50)
    files = files_of(first, second)
    write_new_file(files, INDEX, struct.pack(">iiii", 1, 0, 2, len(first)))
    write_new_file(files, TIMES, struct.pack(">qi", 101, 2))
    assert [batch.data for batch in read_log(files, "t-0")] == [first, second]


@pytest.mark.parametrize("entry", [(0, 0), (2, 1), (3, 0)])
def test_an_offset_entry_that_is_of_no_batch_is_seen(entry: tuple[int, int]) -> None:
    files = files_of(data(0, count=2), data(2))
    write_new_file(files, INDEX, struct.pack(">ii", *entry))
    with pytest.raises(Violation) as raised:
        read_log(files, "t-0")
    assert str(raised.value).startswith(INDEXES)


@pytest.mark.parametrize("entry", [(100, 1), (101, 0), (50, 2)])
def test_a_time_entry_that_is_not_the_largest_is_seen(entry: tuple[int, int]) -> None:
    files = files_of(data(0, count=2, time_ms=100), data(2, time_ms=50))
    write_new_file(files, TIMES, struct.pack(">qi", *entry))
    with pytest.raises(Violation) as raised:
        read_log(files, "t-0")
    assert str(raised.value).startswith(INDEXES)


def of_transaction(base_offset: int, kind: ControlType | None = None, producer_id: int = 7) -> bytes:
    """Records, or the marker that ends it."""
    key, value = (None, b"v") if kind is None else encode_control_record(kind, EndTxnMarker(coordinator_epoch=0), 0)
    return encode_batch(
        [Record(base_offset, 100, key, value)], base_offset=base_offset, partition_leader_epoch=0,
        attributes=0x10 if kind is None else 0x30, producer_id=producer_id, producer_epoch=0,
        base_sequence=base_offset if kind is None else -1,
    )  # fmt: skip


def test_aborted_transactions_are_found_by_a_scan_and_their_index_is_compared_with_it() -> None:
    batches = [
        of_transaction(0), of_transaction(1, ControlType.COMMIT), of_transaction(2), of_transaction(3, producer_id=8),
        of_transaction(4, ControlType.ABORT), of_transaction(5, ControlType.ABORT, producer_id=8),
    ]  # fmt: skip
    scanned = aborted_transactions(whole_batches(b"".join(batches)))
    assert scanned == [Aborted(7, 2, 4, False), Aborted(8, 3, 5, True)]
    entries = [struct.pack(">hqqqq", 0, 7, 2, 4, 3), struct.pack(">hqqqq", 0, 8, 3, 5, 6)]
    files = files_of(*batches)
    write_new_file(files, ABORTS, b"".join(entries))
    assert len(read_log(files, "t-0")) == 6
    for wrong in (struct.pack(">hqqqq", 0, 7, 0, 1, 2), struct.pack(">hqqqq", 0, 8, 4, 5, 6)):
        write_new_file(files, ABORTS, wrong)
        with pytest.raises(Violation, match="has aborted") as raised:
            read_log(files, "t-0")
        assert str(raised.value).startswith(INDEXES)


def test_batches_that_overlap_are_seen() -> None:
    with pytest.raises(Violation) as raised:
        read_log(files_of(data(0, count=2), data(1)), "t-0")
    assert str(raised.value).startswith(OFFSETS)
    files = files_of(data(0, count=2))
    write_new_file(files, f"t-0/{1:020}.log", data(1))
    with pytest.raises(Violation, match="begins before offset 2"):
        read_log(files, "t-0")


def test_what_is_not_synced_or_has_no_durable_name_is_not_durable() -> None:
    files = files_of(data(0))
    assert is_durable(files, "t-0", 0, one(0).content)
    file = files.open(LOG)
    file.write_at(len(data(0)), data(1, b"next"))
    assert not is_durable(files, "t-0", 1, one(1, b"next").content)
    file.fdatasync()
    assert is_durable(files, "t-0", 1, one(1, b"next").content)
    new = files.open(f"t-0/{2:020}.log", create=True)
    new.write_at(0, data(2, b"last"))
    new.fsync()
    assert not is_durable(files, "t-0", 2, one(2, b"last").content)
    files.fsync_directory("t-0")
    assert is_durable(files, "t-0", 2, one(2, b"last").content)
