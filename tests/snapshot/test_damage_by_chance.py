"""Random bytes: all are refused, by CorruptSnapshot, and a snapshot that is not refused is whole."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftbase.errors import CorruptSnapshot
from kraftbase.files.memory import MemoryFileSystem
from raft.storage.batch import HEADER_BYTES
from snapshot.names import snapshot_name
from tests.snapshot.builders import an_id, any_batch, put, read_batches, refusal, sealed, snapshot_bytes, split, verify

WHOLE = snapshot_bytes(an_id())
HEADER_BATCH, *_, FOOTER_BATCH = split(WHOLE)

BATCHES = st.builds(
    any_batch,
    st.binary(max_size=60) | st.just(HEADER_BATCH[HEADER_BYTES:]) | st.just(FOOTER_BATCH[HEADER_BYTES:]),
    length=st.none() | st.integers(0, 200) | st.integers(0, 2**32 - 1),
    attributes=st.sampled_from([0, 0, 0x20, 0x20, 0x21]),
    base_offset=st.integers(0, 4) | st.integers(-(2**63), 2**63 - 1),
    epoch=st.sampled_from([3, 3, 3, 2, 0, -1]),
    delta=st.integers(0, 2) | st.integers(-(2**31), 2**31 - 1),
    count=st.integers(1, 3) | st.integers(-(2**31), 2**31 - 1),
)
DATA_BATCHES = st.builds(lambda body: any_batch(body, attributes=0, base_offset=1), st.binary(max_size=60))
PIECES = st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 200)).map(lambda piece: WHOLE[piece[0] :][: piece[1]])


def assert_refused_or_whole(disk: MemoryFileSystem, data: bytes) -> None:
    path = put(disk, data)
    outcomes: list[object] = []
    for read in (verify, read_batches):
        try:
            outcomes.append(read(disk, path))
        except CorruptSnapshot as error:
            assert path in str(error)
            outcomes.append(str(error))
    assert isinstance(outcomes[0], str) == isinstance(outcomes[1], str)
    if not isinstance(outcomes[0], str):
        assert sha256(snapshot_name(an_id()).encode() + b"".join(split(data)[:-1])).digest() in split(data)[-1]


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(b"")
def test_arbitrary_bytes_are_refused(disk: MemoryFileSystem, data: bytes) -> None:
    refusal(disk, data)


@settings(deadline=None)
@given(st.lists(BATCHES, max_size=4), st.booleans(), st.booleans())
def test_arbitrary_batches_that_fit_their_crc_are_refused_or_whole(
    disk: MemoryFileSystem, batches: list[bytes], has_header: bool, has_footer: bool
) -> None:
    data = (HEADER_BATCH if has_header else b"") + b"".join(batches)
    assert_refused_or_whole(disk, sealed(data, 1 + len(batches)) if has_footer else data)


@settings(deadline=None)
@given(DATA_BATCHES)
def test_arbitrary_bodies_are_not_looked_into(disk: MemoryFileSystem, batch: bytes) -> None:
    assert verify(disk, put(disk, sealed(HEADER_BATCH + batch, 2))).batch_count == 1


@settings(deadline=None)
@given(st.lists(PIECES, max_size=6))
def test_pieces_of_a_snapshot_in_another_order_are_refused(disk: MemoryFileSystem, pieces: list[bytes]) -> None:
    data = HEADER_BATCH + b"".join(pieces)
    if data != WHOLE:
        refusal(disk, data)


@settings(deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, 100), st.binary(max_size=100))
def test_a_stretch_in_the_place_of_another_is_refused(
    disk: MemoryFileSystem, position: int, removed: int, put_in: bytes
) -> None:
    data = WHOLE[:position] + put_in + WHOLE[position + removed :]
    if data != WHOLE:
        refusal(disk, data)
