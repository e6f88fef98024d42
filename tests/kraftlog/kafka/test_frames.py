"""Frames, however the bytes arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import InvariantViolation
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.frames import LENGTH, RESERVED_BYTES_MAX, SPACE_BYTES, FrameReader


def _framed(*frames: bytes) -> bytes:
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


def _all(reader: FrameReader) -> list[bytes]:
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(bytes(frame))
    return found


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.sampled_from([4, 5, 100, SPACE_BYTES - 4, SPACE_BYTES - 3, SPACE_BYTES, 3 * SPACE_BYTES]), max_size=5),
    st.lists(st.integers(0, 300_000), max_size=6),
)
def test_the_frames_are_the_same_however_the_bytes_are_cut(sizes: list[int], cuts: list[int]) -> None:
    frames = [bytes((number,)) * size for number, size in enumerate(sizes)]
    data = _framed(*frames)
    reader = FrameReader()
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        reader.receive_data(data[start:end])
    assert _all(reader) == frames
    assert reader.is_between_frames


def test_every_byte_by_itself() -> None:
    reader = FrameReader()
    found = []
    for number, byte in enumerate(_framed(b"first", b"other"), start=1):
        reader.receive_data(bytes((byte,)))
        assert reader.is_between_frames == (number in (9, 18))
        found.append(reader.next_frame())
    assert found == [None] * 8 + [b"first"] + [None] * 8 + [b"other"]
    assert [type(frame) for frame in found if frame is not None] == [bytes, bytes]


def test_a_large_frame_is_read_into_its_own_memory() -> None:
    reader = FrameReader()
    frame = bytes(range(256)) * 4096
    reader.receive_data(LENGTH.pack(len(frame)) + frame[:100])
    space = reader.space()
    assert len(space) == len(frame) - 100
    space[:] = frame[100:]
    reader.received(len(space))
    taken = reader.next_frame()
    assert isinstance(taken, memoryview)
    assert taken.obj is space.obj
    assert taken == frame


def test_a_length_alone_reserves_little() -> None:
    reader = FrameReader()
    reader.receive_data(LENGTH.pack(100 * 1024 * 1024))
    assert len(reader.space()) == RESERVED_BYTES_MAX
    reader.receive_data(bytes(RESERVED_BYTES_MAX))
    assert len(reader.space()) == RESERVED_BYTES_MAX
    reader.receive_data(bytes(RESERVED_BYTES_MAX + 1))
    assert len(reader.space()) == 2 * RESERVED_BYTES_MAX - 1


def test_a_frame_that_outgrows_its_memory_is_whole() -> None:
    frame = bytes(range(256)) * 20_000
    reader = FrameReader()
    reader.receive_data(_framed(frame, b"next"))
    assert _all(reader) == [frame, b"next"]


def test_memory_that_is_kept_serves_the_next_large_frame_unless_somebody_still_looks_at_it() -> None:
    reader = FrameReader(keeps_memory=True)
    sizes = (300_000, 200_000, 200_000, 400_000)
    contents = [bytes([number]) * size for number, size in enumerate(sizes)]

    def next_one(number: int) -> memoryview:
        reader.receive_data(_framed(contents[number]))
        frame = reader.next_frame()
        assert isinstance(frame, memoryview)
        assert frame == contents[number]
        return frame

    first = next_one(0)
    memory = first.obj
    del first
    second = next_one(1)
    assert second.obj is memory
    assert next_one(2).obj is not memory
    assert second == contents[1]
    del second
    assert next_one(3).obj is not memory


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 9, 101, 2**31 - 1])
def test_a_length_out_of_range_is_refused(length: int) -> None:
    reader = FrameReader(frame_bytes_max=100, frame_bytes_min=10)
    with pytest.raises(MalformedBytes, match=f"^frame: its length is {length}, and must be from 10 to 100"):
        reader.receive_data(_framed(b"0123456789") + LENGTH.pack(length))
    assert _all(reader) == [b"0123456789"]


def test_more_bytes_than_space_are_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="more bytes than there is space"):
        FrameReader().received(SPACE_BYTES + 1)


@pytest.mark.parametrize("size", [9, 3 * SPACE_BYTES])
def test_a_reader_to_which_nothing_comes_any_longer_has_no_memory_left(size: int) -> None:
    reader = FrameReader(keeps_memory=True)
    reader.receive_data(_framed(b"first") + LENGTH.pack(size) + b"part")
    reader.drop_all()
    assert (len(reader._shared), reader._own, reader.waiting_bytes, reader.next_frame()) == (0, None, 0, None)
    assert reader.is_between_frames
