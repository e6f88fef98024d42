"""Rules SN-10 to SN-13: a snapshot from another node is checked as it arrives, and exists whole or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snapshot.writer
from kraftbase.errors import CorruptSnapshot, FlushFailed, InvariantViolation, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.batch import HEADER_BYTES, encode_body
from snapshot.format import BATCH_BYTES_MAX, SnapshotChecks, SnapshotHeader, header_batch
from snapshot.incoming import IncomingSnapshot
from snapshot.names import part_name, snapshot_name
from tests.effort import some
from tests.raft.storage.builders import room_for
from tests.raft.storage.images import crash_everywhere
from tests.snapshot.builders import (
    CONTENT,
    DIRECTORY,
    HEADER_OF_TESTS,
    TIMESTAMP_MS,
    an_id,
    any_batch,
    data_batch,
    open_store,
    put,
    refusal,
    sealed,
    snapshot_bytes,
    split,
    verify,
    write_snapshot,
)
from tests.snapshot.test_crash_images import CONTENT as CRASHING_CONTENT
from tests.snapshot.test_crash_images import Told, empty, verify_image, with_an_old_one, with_leftovers

WHOLE = snapshot_bytes(an_id())
HEADER_BATCH, FIRST, SECOND, THIRD, FOOTER_BATCH = split(WHOLE)
CLUSTER_ID = HEADER_OF_TESTS.cluster_id
PART_PATH = f"{DIRECTORY}/{part_name(an_id(), 'c0ffee')}"
PATH = f"{DIRECTORY}/{snapshot_name(an_id())}"
LARGE = snapshot_bytes(an_id(), [[bytes([index]) * 300] for index in range(100)])


def begin(
    files: FileSystem, snapshot_id: OffsetAndEpoch | None = None, cluster_id: str = CLUSTER_ID
) -> IncomingSnapshot:
    incoming = open_store(files).receive(snapshot_id or an_id(), cluster_id)
    assert incoming is not None
    return incoming


def receive(files: FileSystem, pieces: Iterable[bytes], snapshot_id: OffsetAndEpoch | None = None) -> str:
    """Take all pieces and freeze; returns its path."""
    with begin(files, snapshot_id) as incoming:
        for piece in pieces:
            position = incoming.size_bytes
            incoming.append(piece)
            assert incoming.size_bytes == position + len(piece)
        incoming.freeze()
        assert incoming.is_frozen
    return incoming.path


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[position : position + size] for position in range(0, len(data), size)]


def refused(pieces: Iterable[bytes], snapshot_id: OffsetAndEpoch | None = None, *, before_freeze: bool = False) -> str:
    """Why it is refused; no file is left."""
    files = MemoryFileSystem()
    with begin(files, snapshot_id) as incoming, pytest.raises(CorruptSnapshot) as error:
        for piece in pieces:
            incoming.append(piece)
        assert not before_freeze
        incoming.freeze()
    assert files.list_directory(DIRECTORY) == []
    described = f"the snapshot sent for {incoming.path} is damaged: "
    assert str(error.value).startswith(described)
    return str(error.value).removeprefix(described)


# --- whole snapshots are taken ----------------------------------------------------------------------------------------


def test_sn12_there_is_no_snapshot_before_freeze_and_one_after_it(files: FileSystem) -> None:
    store = open_store(files)
    with begin(files) as incoming:
        assert (incoming.size_bytes, incoming.path, incoming.snapshot_id) == (0, PATH, an_id())
        incoming.append(WHOLE)
        assert files.list_directory(DIRECTORY) == [part_name(an_id(), "c0ffee")]
        assert (store.ids(), incoming.is_frozen, incoming.size_bytes) == ((), False, len(WHOLE))
        incoming.freeze()
        assert (store.ids(), incoming.is_frozen) == ((an_id(),), True)
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]
    assert verify(files, PATH).record_count == sum(map(len, CONTENT))


def test_sn12_what_is_there_already_is_not_taken_again(files: FileSystem) -> None:
    store = open_store(files)
    write_snapshot(store, an_id())
    assert store.receive(an_id(), CLUSTER_ID) is None
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]


@pytest.mark.parametrize("size", some(range(1, len(WHOLE) + 1)))
def test_sn10_pieces_of_every_size_give_the_same_file(size: int) -> None:
    files = MemoryFileSystem()
    assert read_whole(files, receive(files, pieces_of(WHOLE, size))) == WHOLE
    assert verify(files, PATH).batch_count == len(CONTENT)


def test_sn10_two_pieces_split_anywhere_give_the_same_file(files: FileSystem) -> None:
    for position in some(range(len(WHOLE) + 1)):
        store = open_store(files)
        assert read_whole(files, receive(files, [WHOLE[:position], WHOLE[position:]])) == WHOLE
        store.delete(an_id())
        store.remove_deleted()


@given(st.lists(st.integers(0, len(LARGE)), max_size=20))
def test_sn10_any_pieces_give_the_same_file(cuts: list[int]) -> None:
    files = MemoryFileSystem()
    bounds = [0, *sorted(cuts), len(LARGE)]
    pieces = [LARGE[start:end] for start, end in itertools.pairwise(bounds)]
    assert read_whole(files, receive(files, pieces)) == LARGE


def test_a_snapshot_without_records_is_taken(files: FileSystem) -> None:
    data = snapshot_bytes(an_id(), [])
    assert read_whole(files, receive(files, [data])) == data


def test_a_batch_of_the_largest_size_is_taken() -> None:
    body = encode_body([bytes(BATCH_BYTES_MAX - HEADER_BYTES - 5)])
    batch = any_batch(body, attributes=0, base_offset=1)
    assert len(batch) == BATCH_BYTES_MAX
    data = sealed(HEADER_BATCH + batch, 2)
    files = MemoryFileSystem()
    receive(files, pieces_of(data, 2 * 1024 * 1024))
    assert verify(files, PATH).size_bytes == len(data)


def test_a_batch_in_many_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces of a large batch must not cost the square of its size."""
    taken: list[int] = []
    take = SnapshotChecks.take

    def take_and_tell(checks: SnapshotChecks, data: bytes) -> Batch:
        taken.append(len(data))
        return take(checks, data)

    monkeypatch.setattr(SnapshotChecks, "take", take_and_tell)
    receive(MemoryFileSystem(), pieces_of(WHOLE, 1))
    assert taken == [len(batch) for batch in split(WHOLE)]


# --- damaged snapshots are refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [len(WHOLE), 50, 1])
def test_every_flipped_bit_is_refused_at_the_latest_by_freeze(size: int) -> None:
    for position in some(range(len(WHOLE))):
        for bit in range(8) if size > 1 else [position // 8 % 8]:
            damaged = bytearray(WHOLE)
            damaged[position] ^= 1 << bit
            refused(pieces_of(bytes(damaged), size))


def test_every_truncation_is_refused_by_freeze() -> None:
    for size in range(len(WHOLE)):
        assert refused([WHOLE[:size]]) == f"it ends at byte {size} without a footer"


@pytest.mark.parametrize("tail", [b"\0", b"x", FOOTER_BATCH, THIRD, WHOLE])
def test_bytes_behind_the_footer_are_refused_when_they_come(tail: bytes) -> None:
    for pieces in ([WHOLE + tail], [WHOLE, tail], [WHOLE[:-1], WHOLE[-1:] + tail], [WHOLE, b"", tail]):
        assert refused(pieces, before_freeze=True) == f"{len(tail)} bytes follow its footer"


@pytest.mark.parametrize("other_id", [an_id(501, 3), an_id(0, 3), an_id(500, 4), an_id(500, 0), an_id(3, 500)])
def test_sn13_another_ids_bytes_are_refused(other_id: OffsetAndEpoch) -> None:
    said = refused([WHOLE], other_id, before_freeze=True)
    assert "epoch 3" in said if other_id.epoch != 3 else said == "its digest is not that of its name and content"


def test_another_clusters_is_refused_at_its_header() -> None:
    files = MemoryFileSystem()
    with begin(files, cluster_id="another") as incoming, pytest.raises(CorruptSnapshot) as error:
        incoming.append(HEADER_BATCH)
    assert f"it is of cluster {CLUSTER_ID}, not of another" in str(error.value)
    nameless = header_batch(an_id(), SnapshotHeader(TIMESTAMP_MS, "")).data
    assert refused([nameless], before_freeze=True) == f"it is of cluster , not of {CLUSTER_ID}"


@pytest.mark.parametrize("length", [BATCH_BYTES_MAX + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("before", [b"", HEADER_BATCH], ids=["first", "second"])
def test_a_huge_length_is_refused_as_soon_as_it_is_read(before: bytes, length: int) -> None:
    start = any_batch(b"", length=length, base_offset=1 if before else 0)
    said = refused([before, *pieces_of(start, 1)], before_freeze=True)
    assert said == f"the batch at byte {len(before)} has a length of {length} bytes in its header"


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1])
def test_a_length_below_that_of_a_header_is_refused(length: int) -> None:
    said = refused([HEADER_BATCH + any_batch(b"", length=length, base_offset=1)], before_freeze=True)
    assert f"its length is {length}" in said


@pytest.mark.parametrize(
    "batches",
    [
        [HEADER_BATCH, SECOND, FIRST, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, FIRST, SECOND, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, FIRST, THIRD, FOOTER_BATCH],
        [HEADER_BATCH, HEADER_BATCH, FIRST],
        [HEADER_BATCH, FOOTER_BATCH],
        [FIRST, SECOND, THIRD, FOOTER_BATCH],
        [FOOTER_BATCH],
        [HEADER_BATCH, data_batch(1, [b"a"], epoch=4)],
        [data_batch(0, [b"a"])],
        [sealed(b"", 0)],
        [sealed(HEADER_BATCH + FIRST, 3)[: -len(FOOTER_BATCH)], sealed(HEADER_BATCH, 3)[len(HEADER_BATCH) :]],
    ],
)
def test_what_no_reader_takes_is_refused_for_the_same_reason(batches: list[bytes]) -> None:
    files = MemoryFileSystem()
    open_store(files)
    data = b"".join(batches)
    assert refused([data], before_freeze=True) == refusal(files, data)
    assert refused(pieces_of(data, 1), before_freeze=True) == refusal(files, data)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100) | st.sampled_from(split(WHOLE)), max_size=8))
def test_what_is_taken_is_what_a_reader_takes(pieces: list[bytes]) -> None:
    files = MemoryFileSystem()
    try:
        receive(files, pieces)
    except CorruptSnapshot:
        refusal(files, b"".join(pieces))
    else:
        assert verify(files, PATH).size_bytes == sum(map(len, pieces))


# --- errors, and the files after them --------------------------------------------------------------------------------


@pytest.mark.parametrize("received", [0, 1, 100, len(WHOLE)])
def test_sn13_close_without_freeze_leaves_nothing(files: FileSystem, received: int) -> None:
    incoming = begin(files)
    incoming.append(WHOLE[:received])
    incoming.close()
    incoming.close()
    assert files.list_directory(DIRECTORY) == []


def test_closing_is_no_error_if_somebody_has_removed_the_file(files: FileSystem) -> None:
    incoming = begin(files)
    files.remove(PART_PATH)
    incoming.close()
    assert files.list_directory(DIRECTORY) == []


def assert_takes_no_more(incoming: IncomingSnapshot) -> None:
    with pytest.raises(InvariantViolation):
        incoming.append(b"")
    with pytest.raises(InvariantViolation):
        incoming.freeze()


def test_nothing_is_taken_after_freeze_or_close(files: FileSystem) -> None:
    with begin(files) as incoming:
        incoming.append(WHOLE)
        incoming.freeze()
        assert_takes_no_more(incoming)
    assert_takes_no_more(incoming)
    assert read_whole(files, PATH) == WHOLE


def test_nothing_is_taken_after_what_was_refused(files: FileSystem) -> None:
    with begin(files) as incoming:
        with pytest.raises(CorruptSnapshot):
            incoming.append(FIRST)
        assert_takes_no_more(incoming)
    with begin(files) as incoming:
        with pytest.raises(CorruptSnapshot):
            incoming.freeze()
        assert_takes_no_more(incoming)
    assert files.list_directory(DIRECTORY) == []


@pytest.mark.parametrize("size", [len(WHOLE), 100, 7])
def test_out_of_space_at_any_byte_leaves_nothing(files: FileSystem, size: int) -> None:
    for room in range(0, len(WHOLE), 1 if size == len(WHOLE) else 13):
        with room_for(files, room), begin(files) as incoming:
            with pytest.raises(OutOfSpace, match=PART_PATH):
                for piece in pieces_of(WHOLE, size):
                    incoming.append(piece)
            assert_takes_no_more(incoming)
        assert files.list_directory(DIRECTORY) == []
    with room_for(files, len(WHOLE)):
        receive(files, pieces_of(WHOLE, size))
    assert verify(files, PATH).batch_count == len(CONTENT)


def test_a_file_that_cannot_be_made_leaves_nothing(memory_files: MemoryFileSystem) -> None:
    def fail(operation: str, path: str) -> None:
        raise OutOfSpace(f"cannot {operation} {path}")

    store = open_store(memory_files)
    memory_files.before_operation = fail
    with pytest.raises(OutOfSpace, match=PART_PATH):
        store.receive(an_id(), CLUSTER_ID)
    memory_files.before_operation = None
    assert memory_files.list_directory(DIRECTORY) == []


def test_a_freeze_that_failed_is_not_tried_again(memory_files: MemoryFileSystem) -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "rename":
            memory_files.before_operation = None
            raise StorageError(f"cannot rename {path}")

    with begin(memory_files) as incoming:
        incoming.append(WHOLE)
        memory_files.before_operation = fail
        with pytest.raises(StorageError, match="cannot rename"):
            incoming.freeze()
        assert_takes_no_more(incoming)
    assert memory_files.list_directory(DIRECTORY) == []


def test_two_downloads_of_the_same_snapshot_do_not_disturb_each_other(files: FileSystem) -> None:
    one = open_store(files, token="1").receive(an_id(), CLUSTER_ID)
    other = open_store(files, token="2").receive(an_id(), CLUSTER_ID)
    assert one is not None and other is not None
    with one, other:
        for position in range(0, len(WHOLE), 100):
            one.append(WHOLE[position : position + 100])
            other.append(WHOLE[position : position + 100])
        one.freeze()
        other.freeze()
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]
    assert read_whole(files, PATH) == WHOLE


def test_a_damaged_one_of_that_name_is_replaced(files: FileSystem) -> None:
    with begin(files) as incoming:
        put(files, b"damaged")
        incoming.append(WHOLE)
        incoming.freeze()
    assert read_whole(files, PATH) == WHOLE


# --- durability ------------------------------------------------------------------------------------------------------


def test_the_file_is_synced_before_its_name_changes_and_the_directory_after(memory_files: MemoryFileSystem) -> None:
    done: list[tuple[str, str]] = []
    store = open_store(memory_files)
    memory_files.before_operation = lambda operation, path: done.append((operation, path))
    with store.receive(an_id(), CLUSTER_ID) as incoming:  # type: ignore[union-attr]
        incoming.append(WHOLE[:100])
        incoming.append(WHOLE[100:])
        incoming.freeze()
    assert done == [
        ("create", PART_PATH),
        ("write_at", PART_PATH),
        ("write_at", PART_PATH),
        ("make_read_only", PART_PATH),
        ("fsync", PART_PATH),
        ("rename", PART_PATH),
        ("fsync_directory", DIRECTORY),
    ]


def test_a_large_snapshot_is_synced_in_pieces(memory_files: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot.writer, "FLUSH_BYTES", 1000)
    written_at_syncs: list[int] = []
    with begin(memory_files) as incoming:
        memory_files.before_operation = lambda operation, _: (
            written_at_syncs.append(incoming.size_bytes) if operation == "fdatasync" else None
        )
        for piece in pieces_of(LARGE, 100):
            incoming.append(piece)
    assert written_at_syncs == list(range(1000, len(LARGE), 1000))


@pytest.mark.parametrize("path", [PART_PATH, DIRECTORY], ids=["file", "directory"])
def test_a_sync_that_failed_ends_the_process_and_nothing_is_promised(memory_files: MemoryFileSystem, path: str) -> None:
    incoming = begin(memory_files)
    incoming.append(WHOLE)
    memory_files.failing_syncs = {path}
    with pytest.raises(FlushFailed):
        incoming.freeze()
    assert not incoming.is_frozen
    memory_files.crash()
    memory_files.failing_syncs = set()
    store = open_store(memory_files)
    store.clean_up()
    assert store.ids() == ()


SENT = snapshot_bytes(an_id(), CRASHING_CONTENT[an_id()])


def _receives(files: MemoryFileSystem, told: Told) -> None:
    with begin(files) as incoming:
        for piece in pieces_of(SENT, 130):
            incoming.append(piece)
        told.in_doubt = {an_id()}
        incoming.freeze()
        told.in_doubt = set()
        told.there.add(an_id())


def _gives_up_and_begins_anew(files: MemoryFileSystem, told: Told) -> None:
    """The leader has changed, or no longer has it."""
    with begin(files) as incoming:
        incoming.append(SENT[:200])
    _receives(files, told)


def _is_sent_damage_and_begins_anew(files: MemoryFileSystem, told: Told) -> None:
    with begin(files) as incoming, pytest.raises(CorruptSnapshot):
        incoming.append(SENT[:-1] + bytes([SENT[-1] ^ 1]))
    _receives(files, told)


def _is_sent_what_it_is_writing(files: MemoryFileSystem, told: Told) -> None:
    with told.begin(open_store(files, token="1"), an_id()) as writer:
        _receives(files, told)
        writer.freeze()


@pytest.mark.parametrize(
    "story", [_receives, _gives_up_and_begins_anew, _is_sent_damage_and_begins_anew, _is_sent_what_it_is_writing]
)
@pytest.mark.parametrize("prepare", [empty, with_an_old_one, with_leftovers])
def test_whatever_a_crash_leaves_is_no_snapshot_or_the_whole_one(
    prepare: Callable[[MemoryFileSystem], Told], story: Callable[[MemoryFileSystem, Told], None]
) -> None:
    coverage = crash_everywhere(prepare, story, verify_image)
    assert coverage.images >= 37


def test_whatever_a_crash_leaves_of_many_sectors_is_no_snapshot_or_the_whole_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With syncs in between."""
    monkeypatch.setattr(snapshot.writer, "FLUSH_BYTES", 200)
    coverage = crash_everywhere(empty, _receives, verify_image, sector_bytes=100)
    assert (coverage.images >= 50, coverage.sampled) == (True, 0), coverage
