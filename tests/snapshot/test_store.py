"""The snapshots of a node are the files in a directory that are named like snapshots (SN-01, SN-02, SN-44)."""

from __future__ import annotations

import pytest

from kraftbase.errors import StorageError
from kraftbase.files.files import FileSystem, join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from snapshot.names import is_leftover, part_name, snapshot_name
from snapshot.store import SnapshotStore
from tests.snapshot.builders import (
    CONTENT,
    DIRECTORY,
    HEADER_OF_TESTS,
    an_id,
    open_store,
    snapshot_bytes,
    verify,
    write_snapshot,
)

LEFTOVERS = (
    part_name(an_id(), "0a1b"),
    part_name(an_id(7, 1), "ffffffffffffffff"),
    snapshot_name(an_id()) + ".deleted",
    snapshot_name(an_id(7, 1)) + ".deleted",
)
FOREIGN = (
    "notes",
    "notes.part",
    "notes.checkpoint",
    "notes.checkpoint.part",
    "notes.checkpoint.deleted",
    ".deleted",
    snapshot_name(an_id()) + ".part",
    snapshot_name(an_id()) + ".tmp",
    snapshot_name(an_id()) + ".deleted.deleted",
    part_name(an_id(), "0A1B"),
    part_name(an_id(), ""),
    "500-3.checkpoint",
    "00000000000000000000.log",
)


def touch(files: FileSystem, *names: str) -> None:
    for name in names:
        file = files.open(join(DIRECTORY, name), create=True)
        file.write_at(0, b"x")
        file.close()


def test_the_directory_is_made_if_it_is_missing_and_kept_if_it_is_there(files: FileSystem) -> None:
    store = open_store(files)
    assert files.list_directory(DIRECTORY) == []
    assert (store.ids(), store.latest()) == ((), None)
    write_snapshot(store, an_id())
    assert open_store(files).ids() == (an_id(),)


def test_sn02_ids_are_sorted_the_oldest_first_and_the_latest_is_the_last(files: FileSystem) -> None:
    store = open_store(files)
    in_order = [an_id(9, 1), an_id(10, 1), an_id(200, 1), an_id(100, 2), an_id(1000, 2), an_id(1000, 10)]
    for snapshot_id in (in_order[index] for index in (3, 0, 5, 1, 4, 2)):
        write_snapshot(store, snapshot_id)
    assert store.ids() == tuple(in_order)
    assert store.latest() == in_order[-1]
    assert sorted(store.path_of(snapshot_id) for snapshot_id in in_order) == [
        join(DIRECTORY, name) for name in files.list_directory(DIRECTORY)
    ]


def test_a_snapshot_that_is_there_is_not_made_again(files: FileSystem) -> None:
    store = open_store(files)
    path = write_snapshot(store, an_id())
    assert store.create(an_id(), HEADER_OF_TESTS) is None
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id())]
    assert read_whole(files, path) == snapshot_bytes(an_id())


def test_one_that_is_only_begun_is_not_there(files: FileSystem) -> None:
    store = SnapshotStore(files, DIRECTORY)
    with store.create(an_id(), HEADER_OF_TESTS) as begun:  # type: ignore[union-attr]
        assert store.ids() == ()
        write_snapshot(store, an_id())
        assert store.ids() == (an_id(),)
        assert not begun.is_frozen


def test_tokens_are_lower_case_hexadecimal_digits_and_differ(memory_files: MemoryFileSystem) -> None:
    store = SnapshotStore(memory_files, DIRECTORY)
    for _ in range(100):
        assert store.create(an_id(), HEADER_OF_TESTS) is not None
    names = memory_files.list_directory(DIRECTORY)
    assert len(names) == 100
    assert all(is_leftover(name) for name in names)


def test_sn42_a_deleted_snapshot_is_none_and_can_be_made_again(files: FileSystem) -> None:
    store = open_store(files)
    write_snapshot(store, an_id(7, 1))
    write_snapshot(store, an_id())
    store.delete(an_id())
    assert (store.ids(), store.latest()) == ((an_id(7, 1),), an_id(7, 1))
    with pytest.raises(StorageError, match=store.path_of(an_id())):
        store.open(an_id())
    write_snapshot(store, an_id())
    assert store.ids() == (an_id(7, 1), an_id())
    store.delete(an_id())
    store.remove_deleted()
    assert files.list_directory(DIRECTORY) == [snapshot_name(an_id(7, 1))]


@pytest.mark.parametrize("last_step", [lambda _: None, SnapshotStore.remove_deleted, SnapshotStore.clean_up])
def test_sn42_whoever_has_it_open_reads_on_when_it_is_deleted(files: FileSystem, last_step: object) -> None:
    store = open_store(files)
    write_snapshot(store, an_id())
    with store.open(an_id()) as reader:
        batches = reader.batches()
        next(batches)
        store.delete(an_id())
        assert callable(last_step)
        last_step(store)
        assert len(list(batches)) == len(CONTENT) - 1
        assert reader.verify().batch_count == len(CONTENT)
        assert reader.read_at(0, reader.size_bytes) == snapshot_bytes(an_id())


def test_what_is_not_there_cannot_be_deleted(files: FileSystem) -> None:
    store = open_store(files)
    write_snapshot(store, an_id())
    with pytest.raises(StorageError, match=store.path_of(an_id(501))):
        store.delete(an_id(501))
    store.delete(an_id())
    with pytest.raises(StorageError, match=store.path_of(an_id())):
        store.delete(an_id())


def test_a_deleted_snapshot_stays_deleted_after_a_crash(memory_files: MemoryFileSystem) -> None:
    store = open_store(memory_files)
    write_snapshot(store, an_id())
    store.delete(an_id())
    memory_files.crash()
    assert memory_files.list_directory(DIRECTORY) == [snapshot_name(an_id()) + ".deleted"]


def test_sn02_foreign_names_are_not_seen_and_never_removed(files: FileSystem) -> None:
    store = open_store(files)
    touch(files, *FOREIGN)
    files.make_directories(join(DIRECTORY, "old"))
    assert (store.ids(), store.latest()) == ((), None)
    write_snapshot(store, an_id())
    assert store.ids() == (an_id(),)
    store.delete(an_id())
    store.remove_deleted()
    store.clean_up()
    assert files.list_directory(DIRECTORY) == sorted([*FOREIGN, "old"])


def test_sn44_clean_up_removes_what_was_begun_or_deleted_and_nothing_else(files: FileSystem) -> None:
    store = open_store(files)
    write_snapshot(store, an_id())
    write_snapshot(store, an_id(7, 1))
    touch(files, *LEFTOVERS, *FOREIGN)
    store.clean_up()
    assert files.list_directory(DIRECTORY) == sorted([snapshot_name(an_id()), snapshot_name(an_id(7, 1)), *FOREIGN])
    assert verify(files, store.path_of(an_id())).batch_count == len(CONTENT)
    store.clean_up()
    assert store.ids() == (an_id(7, 1), an_id())


def test_sn42_remove_deleted_leaves_what_is_being_written(files: FileSystem) -> None:
    store = open_store(files)
    touch(files, *LEFTOVERS, *FOREIGN)
    with store.create(an_id(), HEADER_OF_TESTS) as writer:  # type: ignore[union-attr]
        store.remove_deleted()
        remaining = [name for name in LEFTOVERS if not name.endswith(".deleted")]
        assert files.list_directory(DIRECTORY) == sorted([*FOREIGN, *remaining, part_name(an_id(), "c0ffee")])
        writer.freeze()
    assert verify(files, store.path_of(an_id())).batch_count == 0


def test_a_damaged_snapshot_is_listed_until_somebody_deletes_it(files: FileSystem) -> None:
    store = open_store(files)
    touch(files, snapshot_name(an_id()))
    assert store.ids() == (an_id(),)
    assert store.create(an_id(), HEADER_OF_TESTS) is None
    store.delete(an_id())
    assert store.create(an_id(), HEADER_OF_TESTS) is not None
