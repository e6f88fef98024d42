"""Frames: every byte is under a checksum, and a frame is valid only where it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.checksum import crc32c
from kraftbase.errors import StorageError
from kraftbase.types import Offset
from raft.storage.batch import encode_body
from raft.storage.frame import (
    HEAD,
    HEAD_BYTES,
    MAGIC,
    decode_frame,
    encode_frames,
    encode_marker,
    find_frames,
    framed_bytes_max,
)
from tests.raft.storage.builders import batches_from, data_batch


@given(st.integers(0, 2**31), st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.integers(1, 4))
def test_what_is_framed_is_read_back(position: int, previous_crc: int, durable_before: int, count: int) -> None:
    batches = batches_from(3, count)
    data, last_crc = encode_frames(batches, position, previous_crc, Offset(durable_before))
    at = position
    for batch in batches:
        frame = decode_frame(data, at, position)
        assert frame is not None
        assert (frame.batch, frame.previous_crc, frame.durable_before) == (batch, previous_crc, durable_before)
        at, previous_crc = frame.end_position, frame.crc
    assert (at, previous_crc) == (position + len(data), last_crc)


def test_a_marker_is_read_back() -> None:
    data, crc = encode_marker(100, 7, Offset(5))
    frame = decode_frame(data, 100, 100)
    assert frame is not None
    assert (frame.batch, frame.crc, frame.previous_crc, frame.durable_before) == (None, crc, 7, 5)
    assert len(data) == HEAD_BYTES == frame.end_position - frame.position


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
@pytest.mark.parametrize(
    "data", [encode_frames([data_batch(3)], 0, 9, Offset(2))[0], encode_marker(0, 9, Offset(2))[0]]
)
def test_every_flipped_byte_makes_it_no_frame(data: bytes, mask: int) -> None:
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= mask
        assert decode_frame(bytes(damaged), 0) is None


def test_a_frame_that_is_cut_or_elsewhere_is_none() -> None:
    data, _ = encode_frames([data_batch(3)], 0, 9, Offset(2))
    for length in range(len(data)):
        assert decode_frame(data[:length], 0) is None
    assert decode_frame(b"x" + data, 1) is None
    assert decode_frame(data, 1, 1) is None


def test_a_frame_of_another_version_or_kind_is_refused_by_name() -> None:
    for version, kind, flags in ((2, 1, 0), (1, 3, 0), (1, 2, 1)):
        covered = HEAD.pack(0, MAGIC, version, kind, flags, HEAD_BYTES, 0, 9, 2)[4:]
        with pytest.raises(StorageError, match=f"version {version}, kind {kind} and flags {flags:#x}"):
            decode_frame(crc32c(covered).to_bytes(4, "big") + covered, 0)


def test_frames_behind_damage_are_found() -> None:
    first, crc = encode_frames([data_batch(0)], 0, 0, Offset(0))
    others, _ = encode_frames(batches_from(1, 3), len(first), crc, Offset(0))
    data = bytearray(first + others)
    data[10] ^= 1
    found = list(find_frames(bytes(data), 0))
    assert [frame.batch for frame in found] == batches_from(1, 3)
    assert list(find_frames(bytes(data), found[1].position)) == found[1:]


def test_a_frame_inside_a_record_is_not_taken_for_one() -> None:
    inner, _ = encode_frames([data_batch(0)], 0, 0, Offset(0))
    batch = data_batch(0, size=0)
    outer, _ = encode_frames([batch], 0, 0, Offset(0))
    body = encode_body([inner])
    data = bytearray(outer + body)
    data[0] ^= 1
    assert list(find_frames(bytes(data), 0)) == []


@given(st.lists(st.integers(0, 60), max_size=20))
def test_the_bound_on_framed_bytes_holds_for_any_number_of_batches(sizes: list[int]) -> None:
    batches = [data_batch(0, size=size) for size in sizes]
    framed, _ = encode_frames(batches, 0, 0, Offset(0))
    assert len(framed) <= framed_bytes_max(sum(len(batch.data) for batch in batches))
