"""Batches as bytes: encoded batches are decoded, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.checksum import crc32c
from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.types import Epoch, Offset
from kraftpb.v1.batch_pb2 import BatchBody
from raft.core.types import Batch
from raft.storage.batch import (
    CONTROL_ATTRIBUTE,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_OFFSET,
    batch_body,
    batch_timestamp,
    decode_batches,
    encode_batch,
    encode_body,
    records,
)
from tests.raft.storage.builders import batches_from, data_batch

epochs = st.integers(1, 2**31 - 1)
offsets = st.integers(0, 2**62)
times = st.integers(0, 2**62)
bodies = st.lists(st.binary(max_size=50), min_size=1, max_size=10)


def header_with(**changes: int) -> bytes:
    """An encoded batch without a body whose header has other values, under a CRC that is right."""
    names = ("length", "magic", "attributes", "base_offset", "epoch", "delta", "base_time", "max_time", "count")
    values = dict(zip(names, (HEADER_BYTES, MAGIC, 0, 7, 3, 1, 1000, 1000, 2), strict=True)) | changes
    covered = HEADER.pack(0, *(values[name] for name in names))[4:]
    return crc32c(covered).to_bytes(4, "big") + covered


def refusal(data: bytes) -> str:
    with pytest.raises(ApiError) as caught:
        decode_batches(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    return str(caught.value)


@given(offsets, epochs, bodies, times, st.booleans())
def test_what_is_encoded_is_decoded(base: int, epoch: int, values: list[bytes], time: int, is_control: bool) -> None:
    body = encode_body(values)
    batch = encode_batch(Offset(base), Epoch(epoch), body, len(values), time, is_control)
    assert decode_batches(batch.data) == (batch,)
    assert (batch.base_offset, batch.end_offset, batch.epoch) == (base, base + len(values), epoch)
    assert (batch.record_count, batch.is_control) == (len(values), is_control)
    assert batch_timestamp(batch) == time
    assert batch_body(batch) == body
    if not is_control:
        assert records(batch) == values


@given(bodies, bodies)
def test_bodies_joined_byte_by_byte_are_one_body_with_the_records_of_both(
    first: list[bytes], second: list[bytes]
) -> None:
    joined = encode_body(first) + encode_body(second)
    assert joined == encode_body(first + second)
    assert list(BatchBody.FromString(joined).records) == first + second


def test_several_batches_are_decoded_in_order() -> None:
    batches = batches_from(5, 4, epoch=2) + batches_from(11, 2, epoch=3)
    assert decode_batches(b"".join(batch.data for batch in batches)) == tuple(batches)
    assert decode_batches(b"") == ()


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_refused(mask: int) -> None:
    data = data_batch(7, 3, 2).data + data_batch(9, 3, 1).data
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= mask
        refusal(bytes(damaged))


def test_every_cut_is_refused() -> None:
    data = data_batch(7).data
    for length in range(1, len(data)):
        refusal(data[:length])


def test_bytes_behind_a_batch_that_are_none_are_refused() -> None:
    assert "byte" in refusal(data_batch(7).data + b"\0")
    assert "length is 0" in refusal(data_batch(7).data + bytes(200))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    if data:
        refusal(data)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"length": HEADER_BYTES - 1}, "length"),
        ({"length": HEADER_BYTES + 1}, "length"),
        ({"length": 2**32 - 1}, "length"),
        ({"magic": MAGIC + 1}, "magic"),
        ({"attributes": 1}, "attributes"),
        ({"attributes": CONTROL_ATTRIBUTE | 0x8000}, "attributes"),
        ({"base_offset": -1}, "offset"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": -1}, "epoch"),
        ({"count": 0, "delta": -1}, "count"),
        ({"count": -1, "delta": -2}, "count"),
        ({"count": 3}, "count"),
        ({"delta": 0}, "delta"),
        ({"base_offset": MAX_OFFSET - 1}, "count"),
        ({"base_time": -1}, "timestamps"),
        ({"base_time": 1001}, "timestamps"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused_though_its_crc_is_right(changes: dict[str, int], word: str) -> None:
    assert word in refusal(header_with(**changes))


def test_the_header_that_those_cases_start_from_is_taken() -> None:
    (batch,) = decode_batches(header_with())
    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.is_control) == (7, 8, 3, False)
    (batch,) = decode_batches(header_with(attributes=CONTROL_ATTRIBUTE, max_time=2000))
    assert batch.is_control
    (batch,) = decode_batches(header_with(base_offset=MAX_OFFSET - 2))
    assert batch.end_offset == MAX_OFFSET


def test_batches_that_leave_a_gap_or_overlap_are_refused() -> None:
    for base_offset in (8, 10):
        assert "ends at offset 9" in refusal(data_batch(7, 3, 2).data + data_batch(base_offset, 3).data)


def test_batches_whose_epochs_decrease_are_refused() -> None:
    assert "epoch" in refusal(data_batch(7, 3, 2).data + data_batch(9, 2).data)


def test_a_body_whose_records_are_not_as_many_as_the_header_says_is_refused() -> None:
    batch = encode_batch(Offset(0), Epoch(1), encode_body([b"a", b"b"]), 3, 0)
    with pytest.raises(ApiError, match="2 records, its header says 3") as caught:
        records(batch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_body_that_is_no_message_is_refused() -> None:
    with pytest.raises(ApiError, match="no BatchBody"):
        records(encode_batch(Offset(0), Epoch(1), b"\xff", 1, 0))


def test_what_could_not_be_decoded_is_not_encoded() -> None:
    good = {"base_offset": Offset(0), "epoch": Epoch(1), "body": b"", "record_count": 1, "timestamp_ms": 0}
    assert isinstance(encode_batch(**good), Batch)  # type: ignore[arg-type]
    for change in (
        {"base_offset": -1},
        {"base_offset": MAX_OFFSET},
        {"epoch": 0},
        {"record_count": 0},
        {"record_count": 2**31},
        {"timestamp_ms": -1},
    ):
        with pytest.raises(InvariantViolation):
            encode_batch(**(good | change))  # type: ignore[arg-type]
