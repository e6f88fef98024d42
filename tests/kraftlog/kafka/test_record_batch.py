"""Record batches: read, written, damaged, and compared with kafka-python's."""

from __future__ import annotations

import struct
import warnings
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.checksum import crc32c
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.record_batch import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    CompressedBatch,
    Compression,
    RecordBatch,
    crc32c_of,
    encode_batch,
    read_batch,
    read_batches,
)
from kraftlog.kafka.records import Record

RECORDS = (
    Record(7, 1000, None, b"value"),
    Record(8, 990, b"key", None, (("h", b"1"), ("empty", b""), ("null", None))),
    Record(10, 2000, b"", b"x" * 300),
)
BATCH = encode_batch(RECORDS, base_offset=7, partition_leader_epoch=4)

records_of_chance = st.builds(
    lambda base, start, items: tuple(
        Record(base + delta, start + later, key, value, tuple(headers))
        for delta, (later, key, value, headers) in enumerate(items)
    ),
    st.integers(0, 2**62),
    st.integers(0, 2**42),
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40),
            st.none() | st.binary(max_size=80),
            st.none() | st.binary(max_size=80),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=5,
    ),
)


def _batch(data: bytes) -> RecordBatch:
    batch = read_batch(data)
    assert batch is not None
    return batch


def _with(**fields: int) -> bytes:
    """The batch above, with other values in its header, and a CRC that is right."""
    data = _batch(BATCH)._replace(**fields)
    changed = HEADER.pack(*data[:-1]) + BATCH[HEADER_BYTES:]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def test_a_batch_is_its_header_and_its_records() -> None:
    """FM-14."""
    batch = _batch(BATCH)
    assert batch.data.obj is BATCH
    assert batch.records() == RECORDS
    assert (batch.base_offset, batch.end_offset, batch.partition_leader_epoch) == (7, 11, 4)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.record_count) == (1000, 2000, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.compression is Compression.NONE
    assert not (batch.is_control or batch.is_transactional or batch.has_log_append_time)
    batch.check_crc()


@settings(deadline=None, derandomize=True, database=None)
@given(records_of_chance, st.integers(-1, 2**31 - 1), st.sampled_from([0, CONTROL, 0x10]))
def test_what_is_written_is_read(records: tuple[Record, ...], epoch: int, attributes: int) -> None:
    data = encode_batch(
        records, base_offset=records[0].offset, partition_leader_epoch=epoch, attributes=attributes, producer_id=9
    )
    batch = _batch(data)
    batch.check_crc()
    assert batch.records() == records
    assert batch.is_control == (attributes == CONTROL)
    assert batch.is_transactional == (attributes == 0x10)
    again = encode_batch(
        batch.records(),
        base_offset=batch.base_offset,
        partition_leader_epoch=epoch,
        attributes=attributes,
        producer_id=9,
    )
    assert again == data


@settings(deadline=None, derandomize=True, database=None)
@given(records_of_chance)
def test_kafka_python_reads_and_writes_the_same(records: tuple[Record, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    theirs = DefaultRecordBatch(encode_batch(records, base_offset=records[0].offset, partition_leader_epoch=0))
    assert theirs.validate_crc()
    read = [Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in theirs]
    assert tuple(read) == records
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=100_000,
    )  # fmt: skip
    for delta, record in enumerate(records):
        added = builder.append(delta, record.timestamp_ms, record.key, record.value, list(record.headers))
        assert added is not None
    offset = records[0].offset
    batch = _batch(bytes(builder.build()))
    batch.check_crc()
    assert tuple(record._replace(offset=record.offset + offset) for record in batch.records()) == records


def test_the_time_of_the_broker_is_that_of_every_record() -> None:
    batch = _batch(_with(attributes=0x08, max_timestamp_ms=5000))
    assert batch.has_log_append_time
    assert [record.timestamp_ms for record in batch.records()] == [5000, 5000, 5000]


def test_compaction_leaves_the_offsets() -> None:
    data = encode_batch(RECORDS[:1], base_offset=5, partition_leader_epoch=4, last_offset_delta=9)
    assert (_batch(data).end_offset, _batch(data).records()) == (15, RECORDS[:1])
    empty = _batch(encode_batch((), base_offset=5, partition_leader_epoch=4, last_offset_delta=9))
    assert (empty.end_offset, empty.records()) == (15, ())


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_compressed_records_are_not_opened(compression: Compression) -> None:
    data = _with(attributes=compression)
    batch = _batch(data)
    batch.check_crc()
    assert batch.compression is compression
    with pytest.raises(CompressedBatch, match=f"the batch at offset 7 are compressed with {compression.name.lower()}"):
        batch.records()
    with pytest.raises(UnwritableValue, match="records are not compressed here"):
        encode_batch(RECORDS, base_offset=7, partition_leader_epoch=4, attributes=compression)


def test_batches_follow_each_other_and_the_last_may_be_cut() -> None:
    second = encode_batch(RECORDS[2:], base_offset=10, partition_leader_epoch=5)
    for end in range(len(BATCH) + len(second)):
        found = list(read_batches((BATCH + second)[:end]))
        assert [batch.base_offset for batch in found] == ([7] if end >= len(BATCH) else [])
    assert [batch.data for batch in read_batches(BATCH + second)] == [BATCH, second]
    assert read_batch(BATCH + second, len(BATCH)) == next(read_batches(second))


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (_with(magic=1), UnknownFormat, "its magic is 1, and only batches of magic 2 are read"),
        (_with(magic=0), UnknownFormat, "its magic is 0"),
        (_with(batch_length=48), MalformedBytes, "its length is 48, less than a header's"),
        (_with(batch_length=-1), MalformedBytes, "its length is -1"),
        (_with(record_count=-1), MalformedBytes, "it has -1 records"),
        (_with(last_offset_delta=-1), MalformedBytes, "last offset delta -1"),
        (_with(record_count=4), MalformedBytes, r"records\[3\]: the bytes end within it"),
        (_with(record_count=2), MalformedBytes, r"records\[2\]: 310 bytes follow the last record"),
        (_with(record_count=2**31 - 1), MalformedBytes, "2147483647 records do not fit in the 349 bytes left"),
        (_with(last_offset_delta=2), MalformedBytes, r"records\[2\]: its offset delta is 3, and the batch's last"),
        (_with(attributes=5), UnknownFormat, "its compression is 5, which Kafka 4.3 does not have"),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_refused_by_its_offset(data: bytes, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^batch at offset 7.*{words}"):
        _batch(data).records()


@pytest.mark.parametrize("position", range(21, len(BATCH), 7))
def test_the_crc_finds_a_flipped_bit(position: int) -> None:
    data = bytearray(BATCH)
    data[position] ^= 4
    with pytest.raises(MalformedBytes, match=r"^batch at offset 7: its CRC is 0x[0-9a-f]{8}, that of its bytes 0x"):
        _batch(bytes(data)).check_crc()


def test_the_crc_of_many_pieces_is_that_of_the_whole() -> None:
    data = Random(7).randbytes(300_000)
    assert crc32c_of(memoryview(data)) == crc32c_of(data) == crc32c(data)


def test_damaged_records_are_read_or_refused() -> None:
    random = Random(7)
    for position in range(HEADER_BYTES, len(BATCH)):
        for byte in (0, 1, 2, 127, 128, 255, random.randrange(256)):
            _read_or_refused(BATCH[:position] + bytes((byte,)) + BATCH[position + 1 :])
        _read_or_refused(BATCH[:HEADER_BYTES] + random.randbytes(len(BATCH) - HEADER_BYTES))


def _read_or_refused(data: bytes) -> None:
    try:
        _batch(data).records()
    except MalformedBytes as refused:
        assert refused.path.startswith("batch at offset 7")


@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        (Record(2**33, 0, None, None), {}),
        (Record(-1, 0, None, None), {}),
        (Record(5, 0, None, None), {"last_offset_delta": 4}),
        (Record(0, 2**63, None, None), {"base_timestamp_ms": 0}),
        (Record(0, 0, None, None, attributes=256), {}),
        (Record(0, 0, None, None, headers=(("\ud800", b""),)), {}),
        (Record(0, 0, None, None), {"producer_epoch": 2**15}),
        (Record(0, 0, None, None), {"max_timestamp_ms": 2**63}),
    ],
)
def test_what_has_no_bytes_is_refused(record: Record, arguments: dict[str, Any]) -> None:
    with pytest.raises(UnwritableValue, match=r"^batch at offset 0: "):
        encode_batch((record,), base_offset=0, partition_leader_epoch=0, **arguments)


@pytest.mark.parametrize("order", [(2, 0), (0, 2, 1), (0, 2, 1, 2)])
def test_records_are_in_the_order_of_their_offsets(order: tuple[int, ...]) -> None:
    with pytest.raises(UnwritableValue, match="its records' offsets do not ascend from 0 to 3"):
        encode_batch([RECORDS[index] for index in order], base_offset=7, partition_leader_epoch=0)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("10 00 00 00 01 01 00", "8 bytes do not fit in the 6 that are left"),
        ("0e 00 00 00 01 01 00 00", "its length is wrong by -1 bytes"),
        ("0a 00 00 00 01 01 00", "its length is wrong by 1 bytes"),
        ("0f 00 00 00 01 01 00", "-8 bytes do not fit in the 6 that are left"),
        ("0c 00 00 00 03 01 00", "-2 bytes do not fit in the 2 that are left"),
        ("0c 00 00 00 01 01 01", "-1 headers do not fit in the 0 bytes that are left"),
        ("10 00 00 00 01 01 04 00 01", "2 headers do not fit in the 2 bytes that are left"),
        ("12 00 00 00 01 01 02 02 ff 01", "'utf-8' codec can't decode byte"),
        ("20 00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00 00", "a varint has more than 64 bits"),
        ("20 00 ff ff ff ff ff ff ff ff ff 80 00 01 01 00 00", "a varint has more than 10 bytes"),
    ],
)
def test_what_is_no_record_is_refused(record: str, words: str) -> None:
    body = bytes.fromhex(record)
    header = _batch(BATCH)._replace(batch_length=HEADER_BYTES - 12 + len(body), record_count=1)
    with pytest.raises(MalformedBytes, match=rf"^batch at offset 7: records\[0\]: {words}"):
        _batch(HEADER.pack(*header[:-1]) + body).records()
