"""Rule SN-05: append, freeze, close. Until it is frozen there is no snapshot, and an unfrozen file is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

import snapshot.writer
from kraftbase.errors import FlushFailed, InvariantViolation, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFileSystem
from raft.storage.batch import HEADER_BYTES, encode_body
from snapshot.format import BATCH_BYTES_MAX, SnapshotHeader
from snapshot.names import part_name, snapshot_name
from snapshot.writer import SnapshotWriter
from tests.raft.storage.builders import room_for
from tests.snapshot.builders import (
    CONTENT,
    DIRECTORY,
    HEADER_OF_TESTS,
    an_id,
    open_store,
    put,
    snapshot_bytes,
    verify,
    write_snapshot,
)

BODY = encode_body([b"abc", b"de"])
PART_PATH = f"{DIRECTORY}/{part_name(an_id(), 'c0ffee')}"
PATH = f"{DIRECTORY}/{snapshot_name(an_id())}"


def begin(files: FileSystem) -> SnapshotWriter:
    writer = open_store(files).create(an_id(), HEADER_OF_TESTS)
    assert writer is not None
    return writer


def test_sn05_there_is_no_snapshot_before_freeze_and_one_after_it(files: FileSystem) -> None:
    store = open_store(files)
    with begin(files) as writer:
        writer.append(BODY, 2)
        assert files.list_directory(DIRECTORY) == [part_name(an_id(), "c0ffee")]
        assert (store.ids(), writer.is_frozen) == ((), False)
        writer.freeze()
        assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]
        assert (store.ids(), writer.is_frozen) == ((an_id(),), True)
        assert verify(files, writer.path).record_count == 2
    assert store.ids() == (an_id(),)
    assert writer.size_bytes == len(read_whole(files, writer.path))


def test_sn05_a_snapshot_is_read_only(files: FileSystem) -> None:
    with begin(files) as writer:
        files.open(PART_PATH).close()
        writer.freeze()
    if isinstance(files, PosixFileSystem):  # root may still write to it
        assert Path(PATH).stat().st_mode & 0o777 == 0o400
    else:
        with pytest.raises(StorageError, match="read-only"):
            files.open(PATH)


@pytest.mark.parametrize("appended", [0, 1])
def test_sn05_close_without_freeze_leaves_nothing(files: FileSystem, appended: int) -> None:
    writer = begin(files)
    for _ in range(appended):
        writer.append(BODY, 2)
    writer.close()
    writer.close()
    assert files.list_directory(DIRECTORY) == []


def test_sn05_an_error_within_the_block_leaves_nothing(files: FileSystem) -> None:
    with pytest.raises(KeyError), begin(files) as writer:
        writer.append(BODY, 2)
        raise KeyError
    assert files.list_directory(DIRECTORY) == []


def test_sn05_closing_is_no_error_if_somebody_has_removed_the_file(files: FileSystem) -> None:
    writer = begin(files)
    files.remove(PART_PATH)
    writer.close()
    assert files.list_directory(DIRECTORY) == []


@pytest.mark.parametrize("last_step", [SnapshotWriter.freeze, SnapshotWriter.close], ids=["freeze", "close"])
def test_sn05_nothing_is_taken_after_freeze_or_close(files: FileSystem, last_step: object) -> None:
    writer = begin(files)
    assert callable(last_step)
    last_step(writer)
    before = [(name, read_whole(files, f"{DIRECTORY}/{name}")) for name in files.list_directory(DIRECTORY)]
    with pytest.raises(InvariantViolation):
        writer.append(BODY, 2)
    with pytest.raises(InvariantViolation):
        writer.freeze()
    writer.close()
    assert [(name, read_whole(files, f"{DIRECTORY}/{name}")) for name in files.list_directory(DIRECTORY)] == before


@pytest.mark.parametrize(("body", "record_count"), [(b"", 0), (BODY, -1), (bytes(BATCH_BYTES_MAX), 1)])
def test_what_no_reader_would_take_is_not_written(
    memory_files: MemoryFileSystem, body: bytes, record_count: int
) -> None:
    with begin(memory_files) as writer:
        size_before = writer.size_bytes
        with pytest.raises(InvariantViolation):
            writer.append(body, record_count)
        assert writer.size_bytes == size_before


def test_a_batch_of_the_largest_size_is_written_and_read(memory_files: MemoryFileSystem) -> None:
    with begin(memory_files) as writer:
        writer.append(bytes(BATCH_BYTES_MAX - HEADER_BYTES), 1)
        writer.freeze()
    assert verify(memory_files, PATH).batch_count == 1


def test_a_header_that_no_reader_would_take_leaves_nothing(files: FileSystem) -> None:
    with pytest.raises(InvariantViolation):
        open_store(files).create(an_id(0, 1), SnapshotHeader(-1, "cluster"))
    assert files.list_directory(DIRECTORY) == []


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_out_of_space_at_any_byte_leaves_no_snapshot_and_no_leftover(files: FileSystem) -> None:
    size = len(snapshot_bytes(an_id()))
    store = open_store(files)
    for room in range(size):
        with room_for(files, room), pytest.raises(OutOfSpace, match=PART_PATH):
            write_snapshot(store, an_id())
        assert files.list_directory(DIRECTORY) == []
    with room_for(files, size):
        write_snapshot(store, an_id())
    assert verify(files, PATH).batch_count == len(CONTENT)


def test_a_write_that_failed_is_not_gone_on_from(files: FileSystem) -> None:
    """A part of it may be written: the next batch could be followed by the rest of it."""
    with begin(files) as writer:
        with room_for(files, writer.size_bytes + 200), pytest.raises(OutOfSpace):
            writer.append(bytes(1000), 1)
        with pytest.raises(InvariantViolation):
            writer.append(b"", 1)
        with pytest.raises(InvariantViolation):
            writer.freeze()
    assert files.list_directory(DIRECTORY) == []


def test_a_freeze_that_failed_is_not_tried_again(memory_files: MemoryFileSystem) -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "rename":
            memory_files.before_operation = None
            raise StorageError(f"cannot rename {path}")

    with begin(memory_files) as writer:
        memory_files.before_operation = fail
        with pytest.raises(StorageError, match="cannot rename"):
            writer.freeze()
        with pytest.raises(InvariantViolation):
            writer.freeze()
    assert memory_files.list_directory(DIRECTORY) == []


# --- durability ------------------------------------------------------------------------------------------------------


def test_the_file_is_synced_before_its_name_changes_and_the_directory_after(memory_files: MemoryFileSystem) -> None:
    done: list[tuple[str, str]] = []
    store = open_store(memory_files)
    memory_files.before_operation = lambda operation, path: done.append((operation, path))
    write_snapshot(store, an_id())
    assert done == [
        ("create", PART_PATH),
        *[("write_at", PART_PATH)] * (len(CONTENT) + 2),
        ("make_read_only", PART_PATH),
        ("fsync", PART_PATH),
        ("rename", PART_PATH),
        ("fsync_directory", DIRECTORY),
    ]


def test_a_large_snapshot_is_synced_in_pieces(memory_files: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot.writer, "FLUSH_BYTES", 1000)
    written_at_syncs: list[int] = []
    with begin(memory_files) as writer:
        memory_files.before_operation = lambda operation, _: (
            written_at_syncs.append(writer.size_bytes) if operation == "fdatasync" else None
        )
        for _ in range(50):
            writer.append(encode_body([bytes(100)]), 1)
    assert len(written_at_syncs) >= 6
    pieces = [after - before for before, after in zip([0, *written_at_syncs], written_at_syncs, strict=False)]
    assert all(1000 <= piece < 1000 + 200 for piece in pieces)


@pytest.mark.parametrize("path", [PART_PATH, DIRECTORY], ids=["file", "directory"])
def test_a_sync_that_failed_ends_the_process_and_nothing_is_promised(memory_files: MemoryFileSystem, path: str) -> None:
    writer = begin(memory_files)
    memory_files.failing_syncs = {path}
    with pytest.raises(FlushFailed):
        writer.freeze()
    assert not writer.is_frozen
    assert open_store(memory_files).ids() == ()  # nor does it count before that: its name may not be durable
    memory_files.crash()
    memory_files.failing_syncs = set()
    store = open_store(memory_files)
    store.clean_up()
    assert store.ids() == ()


def test_one_that_was_there_stays_if_the_sync_of_another_of_its_name_fails(memory_files: MemoryFileSystem) -> None:
    writer = begin(memory_files)
    other = open_store(memory_files, token="other").create(an_id(), HEADER_OF_TESTS)
    assert other is not None
    with other:
        other.freeze()
    memory_files.failing_syncs = {DIRECTORY}
    with pytest.raises(FlushFailed):
        writer.freeze()
    assert verify(memory_files, PATH).snapshot_id == an_id()


def test_sn44_a_start_makes_the_names_durable_that_a_killed_process_has_left(memory_files: MemoryFileSystem) -> None:
    writer = begin(memory_files)
    memory_files.fsync_directory = lambda path: None  # type: ignore[method-assign]
    writer.freeze()  # killed before the directory is synced
    del memory_files.fsync_directory
    open_store(memory_files).clean_up()
    memory_files.crash()
    assert open_store(memory_files).ids() == (an_id(),)


def test_a_snapshot_of_that_name_is_replaced_by_the_one_that_is_frozen(files: FileSystem) -> None:
    """Only if it was stored while this one was being written: both are equal, or the older one is damaged."""
    with begin(files) as writer:
        put(files, b"damaged")
        writer.freeze()
    assert verify(files, PATH).snapshot_id == an_id()
